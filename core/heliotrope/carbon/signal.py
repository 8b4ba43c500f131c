"""The carbon signal of a region: fresh, stale or absent, never silently zero."""

from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

from heliotrope.carbon.series import Series
from heliotrope.errors import InvalidInputError


class Freshness(StrEnum):
    """Whether a signal may steer decisions."""

    FRESH = "Fresh"
    STALE = "Stale"
    ABSENT = "Absent"


class SignalType(StrEnum):
    """What the grams per kWh mean. The two are never mixed or compared."""

    AVERAGE = "average"
    MARGINAL = "marginal"


class EmissionFactor(StrEnum):
    """Which emissions of a power plant count."""

    LIFECYCLE = "lifecycle"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of a grid's carbon intensity as a source gave it. Zero is a valid, clean value."""

    intensity_g_per_kwh: float
    measured_unix_s: float
    """The time that the value describes, not when it was fetched."""
    source: str
    signal_type: SignalType
    emission_factor: EmissionFactor
    estimated: bool | None = None
    """None: the source does not say."""

    def __post_init__(self) -> None:
        """Refuse what is not an intensity.

        Raises:
            InvalidInputError: if the value is negative or not finite.
        """
        if not isfinite(self.intensity_g_per_kwh) or self.intensity_g_per_kwh < 0:
            raise InvalidInputError("intensity", f"{self.intensity_g_per_kwh} g/kWh from {self.source} is not a value")


@dataclass(frozen=True, slots=True)
class CarbonSignal:
    """The newest reading of a region with its expiry, and the forecast if there is one."""

    reading: Reading | None
    stale_after_s: float
    forecast: Series | None = None

    def age_s(self, now_unix_s: float) -> float | None:
        """Seconds since the time that the reading describes; None without a reading."""
        return None if self.reading is None else now_unix_s - self.reading.measured_unix_s

    def freshness(self, now_unix_s: float) -> Freshness:
        """Absent without a reading, stale once older than `stale_after_s`, else fresh."""
        age = self.age_s(now_unix_s)
        if age is None:
            return Freshness.ABSENT
        return Freshness.FRESH if age <= self.stale_after_s else Freshness.STALE

    def expected_g_per_kwh(self, now_unix_s: float, duration_s: float) -> float | None:
        """Intensity expected over the coming `duration_s`, in g/kWh; None unless fresh.

        The forecast's mean where it covers the whole time, else the reading's value.
        """
        if self.reading is None or self.freshness(now_unix_s) is not Freshness.FRESH:
            return None
        if self.forecast is not None:
            mean = self.forecast.average(now_unix_s, now_unix_s + duration_s)
            if mean is not None:
                return mean
        return self.reading.intensity_g_per_kwh


ABSENT = CarbonSignal(reading=None, stale_after_s=0.0)
