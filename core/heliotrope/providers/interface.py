"""What every source of carbon intensity gives."""

from dataclasses import dataclass
from typing import Protocol

from heliotrope.carbon.series import Series
from heliotrope.carbon.signal import Reading


@dataclass(frozen=True, slots=True)
class Fetched:
    """One answer of a source."""

    reading: Reading
    forecast: Series | None = None
    """Values from now on, the current one first, on the real clock; None where the source has none."""
    forecast_source: str | None = None
    """Who made the forecast; None without one."""


class Provider(Protocol):
    """One region's source. Bounded in time and memory; safe to ask again at any rate."""

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value that holds now, and the forecast if there is one.

        Raises:
            SignalUnavailableError: if there is no usable value; the caller keeps the last one until it is stale.
        """
        ...
