"""What every source of carbon intensity gives."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

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
    forecast_failure: str | None = None
    """Why there is no new forecast though one was asked for; None if that went well or none was asked for."""


class Provider(Protocol):
    """One region's source. Bounded in time and memory; safe to ask again at any rate."""

    async def fetch(self, now_unix_s: float) -> Fetched:
        """The value that holds now, and the forecast if there is one.

        Raises:
            SignalUnavailableError: if there is no usable value; the caller keeps the last one until it is stale.
        """
        ...


@runtime_checkable
class HistoryProvider(Provider, Protocol):
    """A source that also knows the past, from which forecasts are learned at a start."""

    async def history(self, start_unix_s: float, end_unix_s: float) -> Series:
        """What it has of [start, end), on the real clock and as the signal is wanted; perhaps less than was asked for.

        Raises:
            SignalUnavailableError: if it has nothing of it, or could not be asked.
        """
        ...
