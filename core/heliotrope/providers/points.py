"""From the values in a source's answer to what it gives: one reading, a forecast, or a past series."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil, inf, nan
from statistics import median
from typing import Any

from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1.regionprofile import RegionProfileSpec
from heliotrope.carbon.series import Point, Series, unix_seconds
from heliotrope.carbon.settlement import SignalKind
from heliotrope.carbon.signal import EmissionFactor, Reading, SignalType
from heliotrope.errors import BadAnswerError, InvalidInputError, NoDataError
from heliotrope.providers.curtailment import CurtailmentCredit
from heliotrope.providers.history import with_gaps
from heliotrope.providers.interface import Fetched
from heliotrope.providers.recorded import FORECAST_POINTS
from heliotrope.units import SECONDS_PER_HOUR

MAX_G_PER_KWH = 10_000.0
"""The dirtiest grids stay below 1,500; more is another unit."""
AHEAD_OF_CLOCK_S = 600.0
"""A value may say that it begins this much later than this machine's now: clocks differ."""
LATEST_UNIX_S = 4_102_444_800.0
"""The year 2100."""
_GAP_STEPS = 1.5


@dataclass(slots=True)
class Meaning:
    """What a source's values mean, and what is made of them."""

    source: str
    kind: SignalKind
    credit: CurtailmentCredit = field(default_factory=CurtailmentCredit)

    @classmethod
    def of(cls, source: str, spec: RegionProfileSpec) -> "Meaning":
        """As a RegionProfile states it."""
        kind = SignalKind(SignalType(spec.signal.type.value), EmissionFactor(spec.signal.emission_factor.value))
        marginal = kind.signal_type is SignalType.MARGINAL
        return cls(source, kind, CurtailmentCredit(spec.curtailment_credit if marginal else 0.0))

    def fetched(
        self,
        points: Iterable[Point],
        now_unix_s: float,
        *,
        current: Point | None = None,
        horizon_s: float = inf,
        forecast_failure: str | None = None,
    ) -> Fetched:
        """The newest value that has begun, and those that follow it without a gap within the horizon.

        Args:
            points: in any order; of two of one time the later one counts.
            now_unix_s: Unix seconds.
            current: what the source itself calls its newest value; None chooses it from the points.
            horizon_s: how far ahead the forecast is wanted; 0 wants none.
            forecast_failure: why there is none.

        Raises:
            NoDataError: if no value has begun.
        """
        ordered = in_order(points if current is None else [*points, current])
        if current is None:
            current = _newest_begun(ordered, now_unix_s, self.source)
        _check_clock(current, now_unix_s, self.source)
        following = [point for point in ordered if point.time_unix_s > current.time_unix_s]
        self.credit.learn(ordered)
        credited = self.credit.applied([current, *following])
        current, following = credited[0], credited[1:]
        ahead = forecast_series(current, following, now_unix_s + horizon_s) if horizon_s > 0 else None
        reading = Reading(
            intensity_g_per_kwh=current.intensity_g_per_kwh,
            measured_unix_s=current.time_unix_s,
            source=self.source,
            signal_type=self.kind.signal_type,
            emission_factor=self.kind.emission_factor,
            estimated=current.estimated,
        )
        return Fetched(reading, ahead, None if ahead is None else self.source, forecast_failure)

    def past(self, points: Iterable[Point], start_unix_s: float, end_unix_s: float) -> Series:
        """What begins in [start, end); a value holds for at most two of the usual steps, so gaps stay gaps.

        Raises:
            NoDataError: if nothing does.
        """
        ordered = [each for each in in_order(points) if start_unix_s <= each.time_unix_s < end_unix_s]
        if not ordered:
            span = " to ".join(format_time(moment(each)) for each in (start_unix_s, end_unix_s))
            raise NoDataError(f"{self.source} has no values of {span}")
        self.credit.learn(ordered)
        return with_gaps(Series.from_points(self.credit.applied(ordered), last_holds_s=step_of(ordered)))


def moment(unix_s: float) -> datetime:
    """The instant, to the second, in UTC."""
    return datetime.fromtimestamp(int(unix_s), UTC)


def in_order(points: Iterable[Point]) -> list[Point]:
    """By time; of two of one time the later one counts, as pages of an answer may overlap."""
    by_time = {point.time_unix_s: point for point in points}
    return [by_time[time] for time in sorted(by_time)]


def step_of(ordered: Sequence[Point]) -> float:
    """The usual time between points in seconds; an hour for one point."""
    steps = [after.time_unix_s - before.time_unix_s for before, after in pairwise(ordered)]
    return median(steps) if steps else SECONDS_PER_HOUR


def forecast_series(current: Point, following: Sequence[Point], until_unix_s: float) -> Series | None:
    """The current value and what follows without a gap, at most as many points as a status holds; None if nothing does.

    A finer forecast is averaged over longer, equal steps rather than cut short.
    """
    following = [point for point in following if point.time_unix_s < until_unix_s]
    if not following:
        return None
    step_s = step_of(following) if len(following) > 1 else following[0].time_unix_s - current.time_unix_s
    unbroken = [following[0]]
    for point in following[1:]:
        if point.time_unix_s - unbroken[-1].time_unix_s > step_s * _GAP_STEPS:
            break
        unbroken.append(point)
    series = Series.from_points([current, *unbroken], last_holds_s=step_s)
    if len(unbroken) < FORECAST_POINTS:
        return series
    return _averaged(series, step_s * ceil((len(unbroken) + 2) / FORECAST_POINTS))


def number(value: Any, what: str, most: float = MAX_G_PER_KWH) -> float:
    """An intensity as a source gives it, in g/kWh or in the unit in which `most` is the limit.

    Raises:
        BadAnswerError: if it is no number, negative, not finite or too large to be g/kWh.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise BadAnswerError(f"{what} is not a number")
    if not 0.0 <= value <= most:
        raise BadAnswerError(f"{what} is {str(value)[:16]}, which is no intensity; check its unit")
    return float(value)


def start(value: Any, what: str) -> float:
    """Unix seconds of a time as a source gives it, in any zone; one without a zone is UTC.

    Raises:
        BadAnswerError: if it is none.
    """
    try:
        time = unix_seconds(value) if isinstance(value, str) else nan
    except (InvalidInputError, OverflowError):
        time = nan
    return unix_time(time, what)


def unix_time(value: Any, what: str) -> float:
    """Unix seconds as a source gives them.

    Raises:
        BadAnswerError: if they are none, or of another century.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= LATEST_UNIX_S:
        raise BadAnswerError(f"{what} is not a time")
    return float(value)


def flag(value: Any) -> bool | None:
    """Whether a source says that it estimated a value; None if it does not say."""
    return value if isinstance(value, bool) else None


def member(document: Any, name: str, what: str) -> Any:
    """A member of a JSON object.

    Raises:
        BadAnswerError: if there is no such object or member.
    """
    if not isinstance(document, Mapping) or name not in document:
        raise BadAnswerError(f"{what} has no {name}; check the address and the version of the API")
    return document[name]


def items(document: Any, name: str, what: str) -> list[Any]:
    """A list in a JSON object.

    Raises:
        BadAnswerError: if there is none.
    """
    found = member(document, name, what)
    if not isinstance(found, list):
        raise BadAnswerError(f"{what}: {name} is not a list")
    return found


def _newest_begun(ordered: Sequence[Point], now_unix_s: float, source: str) -> Point:
    if not ordered:
        raise NoDataError(f"{source} has no values of now")
    begun = [point for point in ordered if point.time_unix_s <= now_unix_s]
    return begun[-1] if begun else ordered[0]


def _check_clock(current: Point, now_unix_s: float, source: str) -> None:
    if current.time_unix_s > now_unix_s + AHEAD_OF_CLOCK_S:
        begins = format_time(moment(current.time_unix_s))
        raise NoDataError(f"{source} has values from {begins} on only; is the clock of this machine right?")


def _averaged(series: Series, step_s: float) -> Series:
    """Means over steps that begin at whole multiples of their length, the first at the series' own start."""
    times, end = series.times_unix_s, series.times_unix_s[-1] + series.last_holds_s
    edges = [times[0], *(step_s * n for n in range(int(times[0] // step_s) + 1, int(end // step_s) + 1))]
    means = [(edge, series.average(edge, following)) for edge, following in pairwise(edges)]
    points = [Point(edge, mean) for edge, mean in means if mean is not None]
    return Series.from_points(points[:FORECAST_POINTS], last_holds_s=step_s)
