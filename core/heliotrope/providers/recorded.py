"""A series that is known whole, read at the real time or replayed."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from heliotrope.api.v1alpha1 import carbonsource
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Replay, Series
from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType
from heliotrope.errors import SignalUnavailableError
from heliotrope.providers.curtailment import with_curtailment_credit
from heliotrope.providers.interface import Fetched

FORECAST_POINTS = 96
"""Points of a forecast: what a RegionProfile's status can hold."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A series on the real clock with what its values mean."""

    series: Series
    source: str
    signal_type: SignalType
    emission_factor: EmissionFactor
    forecast_source: str

    @classmethod
    def of(
        cls, series: Series, spec: RegionProfileSpec, replayed: carbonsource.Replay | None, started_unix_s: float
    ) -> "Recorded":
        """A series as a RegionProfile wants it read.

        Replayed, the values ahead are what will be read, so the forecast is named perfect foresight.

        Args:
            series: on its own clock.
            spec: says what the values mean and what curtailment counts as.
            replayed: moves the series onto the real clock; None leaves it.
            started_unix_s: when the reader started: that is when a replay without `wallStart` begins.

        Raises:
            InvalidInputError: if the curtailment credit cannot be computed.
        """
        signal_type = SignalType(spec.signal.type.value)
        if signal_type is SignalType.MARGINAL:
            series = with_curtailment_credit(series, spec.curtailment_credit)
        if replayed is not None:
            wall = started_unix_s if replayed.wall_start is None else replayed.wall_start.timestamp()
            series = Replay(replayed.series_start.timestamp(), wall, float(replayed.speed)).applied_to(series)
        return cls(
            series=series,
            source="file" if replayed is None else "file replay",
            signal_type=signal_type,
            emission_factor=EmissionFactor(spec.signal.emission_factor.value),
            forecast_source="file" if replayed is None else "file replay (perfect foresight)",
        )

    def at(self, now_unix_s: float) -> Fetched:
        """The value that holds at a time, and those that follow.

        Raises:
            SignalUnavailableError: before the series starts and after it has run out.
        """
        point = self.series.at(now_unix_s)
        if point is None:
            raise SignalUnavailableError(f"the series has no value now: it spans {self._span()}")
        reading = Reading(
            intensity_g_per_kwh=point.intensity_g_per_kwh,
            measured_unix_s=point.time_unix_s,
            source=self.source,
            signal_type=self.signal_type,
            emission_factor=self.emission_factor,
            estimated=point.estimated,
        )
        ahead = self._ahead(now_unix_s)
        return Fetched(reading, ahead, None if ahead is None else self.forecast_source)

    def past(self, start_unix_s: float, end_unix_s: float) -> Series:
        """The values that begin in [start, end).

        Raises:
            SignalUnavailableError: if there are none.
        """
        times = self.series.times_unix_s
        window = slice(bisect_left(times, start_unix_s), bisect_left(times, end_unix_s))
        if not times[window]:
            raise SignalUnavailableError(f"the series has no value then: it spans {self._span()}")
        return self._part(window)

    def _ahead(self, now_unix_s: float) -> Series | None:
        first = bisect_right(self.series.times_unix_s, now_unix_s) - 1
        window = slice(first, first + FORECAST_POINTS)
        if len(self.series.times_unix_s[window]) == 1:
            return None
        return self._part(window)

    def _part(self, window: slice) -> Series:
        return replace(
            self.series,
            times_unix_s=self.series.times_unix_s[window],
            values_g_per_kwh=self.series.values_g_per_kwh[window],
            estimated=self.series.estimated[window],
        )

    def _span(self) -> str:
        start, end = self.series.times_unix_s[0], self.series.times_unix_s[-1] + self.series.last_holds_s
        return " to ".join(datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for time in (start, end))
