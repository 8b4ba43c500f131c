"""When work that may wait should start: in the cleanest window of the forecast that still meets its deadline.

Waiting is asked for by evidence: a later window must be expected to be cleaner by more than is worth the wait, and by
more than the forecast may be wrong. Whatever is not known - the signal, a forecast that reaches far enough - starts the
work at once, as it would have started without anybody planning it.

A plan, once made, is kept until another window beats it by as much as the plan had to beat an immediate start. So it
does not move with every new forecast; and it is dropped when half of the gain that it once needed is no longer there.

The power of the work is taken as constant while it runs, so the mean intensity of a window orders plans as grams do.
"""

from dataclasses import dataclass
from enum import StrEnum
from math import hypot, inf, isfinite

from heliotrope.carbon.forecast.value import CarbonForecast, Expectation
from heliotrope.carbon.forecast.windows import cleanest_window
from heliotrope.errors import InvalidInputError

SIGMAS_BETWEEN_QUANTILES = 2.5631
"""Standard deviations of a normal distribution from its 10 % to its 90 % quantile, the bounds of a forecast."""
ASSUMED_SPREAD = 0.15
"""Standard deviation as a share of the expected intensity where a forecast states none: unknown is not certain."""
ON_TIME_S = 60.0
"""A start within this time of the planned one is as planned, also where the plan was the latest start."""
KEPT_SHARE = 0.5
"""Work goes on waiting while this share of the gain that it needed to begin waiting is still expected."""


class Reason(StrEnum):
    """Why work starts now, or does not."""

    CLEANER_LATER = "CleanerLater"
    """It waits: a later window is cleaner."""
    PLANNED_START = "PlannedStart"
    """The planned time has come."""
    CLEANEST_NOW = "CleanestNow"
    """No later window is expected to be cleaner."""
    GAIN_TOO_SMALL = "GainTooSmall"
    """A later window is cleaner, but not by as much as waiting must gain."""
    WITHIN_NOISE = "WithinNoise"
    """A later window looks cleaner by less than the forecast may be wrong."""
    DEADLINE_RISK = "DeadlineRisk"
    """Later, the deadline could be missed."""
    LONGEST_DELAY = "LongestDelay"
    """It has waited for as long as the policy allows."""
    SIGNAL_LOST = "SignalLost"
    """There is no forecast, or the signal is not fresh."""
    FORECAST_TOO_SHORT = "ForecastTooShort"
    """The forecast does not cover the work if it started now, so there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a policy says of waiting."""

    longest_delay_s: float
    """Longest wait since the work came."""
    safety_margin_s: float
    """Time left between the longest duration and the deadline."""
    least_gain: float = 0.03
    """Share of the intensity that waiting must save to be worth it, from 0 to below 1."""
    sigmas: float = 0.5
    """How many standard deviations of the difference of two windows a gain must exceed; 0: the forecast is believed."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidInputError: naming the field.
        """
        for name in ("longest_delay_s", "safety_margin_s", "sigmas"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0.0):
                raise InvalidInputError(name, f"{value} must be a number of at least 0")
        if not 0.0 <= self.least_gain < 1.0:
            raise InvalidInputError("least_gain", f"{self.least_gain} must be from 0 to below 1")


@dataclass(frozen=True, slots=True)
class Work:
    """Something that may wait."""

    arrived_unix_s: float
    """Since when it could run."""
    expected_s: float
    """How long it is expected to run, > 0."""
    longest_s: float
    """How long it may run, at least `expected_s`: the deadline is kept for this."""
    deadline_unix_s: float | None = None
    """When it must have ended; None: only the policy's longest delay limits the wait."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            InvalidInputError: naming the field.
        """
        if not (isfinite(self.expected_s) and self.expected_s > 0.0):
            raise InvalidInputError("expected_s", f"{self.expected_s} must be a number above 0")
        if not (isfinite(self.longest_s) and self.longest_s >= self.expected_s):
            raise InvalidInputError("longest_s", f"{self.longest_s} must be at least the expected {self.expected_s}")


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with a piece of work."""

    start: bool
    """Start it now."""
    reason: Reason
    planned_unix_s: float
    """When it starts: now, or later."""
    latest_unix_s: float
    """It must start by then."""
    now: Expectation | None
    """Intensity of the window that begins now; None if it is not known."""
    planned: Expectation | None
    """Intensity of the window that begins at `planned_unix_s`; None if it is not known."""

    @property
    def saving(self) -> float | None:
        """Share of the grams that the plan is expected to save against a start now; None if that is not known."""
        if self.now is None or self.planned is None:
            return None
        return 1.0 - self.planned.expected / self.now.expected if self.now.expected > 0.0 else 0.0


def latest_start(work: Work, rules: Rules) -> tuple[float, Reason]:
    """When the work must start, and whether its deadline or the policy's longest delay says so (Unix seconds)."""
    by_delay = work.arrived_unix_s + rules.longest_delay_s
    if work.deadline_unix_s is None:
        return by_delay, Reason.LONGEST_DELAY
    by_deadline = work.deadline_unix_s - work.longest_s - rules.safety_margin_s
    return (by_deadline, Reason.DEADLINE_RISK) if by_deadline < by_delay else (by_delay, Reason.LONGEST_DELAY)


def plan(
    work: Work, rules: Rules, forecast: CarbonForecast | None, now_unix_s: float, planned_unix_s: float | None = None
) -> Plan:
    """Start now, or wait and until when.

    Args:
        work: what may wait.
        rules: what the policy says of waiting.
        forecast: of the region where it will run; None if there is none or the signal is not fresh.
        now_unix_s: the time.
        planned_unix_s: the start that was planned last time, None at first.
    """
    latest, limit = latest_start(work, rules)
    now = None if forecast is None else forecast.mean_over(now_unix_s, now_unix_s + work.expected_s)
    came = planned_unix_s is not None and planned_unix_s <= now_unix_s
    if now_unix_s >= latest:
        on_time = planned_unix_s is not None and planned_unix_s <= now_unix_s <= planned_unix_s + ON_TIME_S
        return Plan(True, Reason.PLANNED_START if on_time else limit, now_unix_s, latest, now, now)
    if forecast is None or now is None:
        reason = Reason.SIGNAL_LOST if forecast is None else Reason.FORECAST_TOO_SHORT
        return Plan(True, reason, now_unix_s, latest, None, None)
    chooser = _Chooser(forecast, work.expected_s, rules)
    best = cleanest_window(forecast, work.expected_s, now_unix_s, latest + work.expected_s)
    assert best is not None, "the window that begins now fits and is covered"

    kept = now_unix_s
    if (
        planned_unix_s is not None
        and now_unix_s < planned_unix_s <= latest
        and chooser.mean(planned_unix_s) is not None
    ):
        kept = planned_unix_s
    to_best = chooser.compare(kept, best.start_unix_s)
    if to_best.worth(1.0):
        kept = best.start_unix_s
    if kept > now_unix_s:
        against_now = chooser.compare(now_unix_s, kept)
        if against_now.worth(KEPT_SHARE):
            return Plan(False, Reason.CLEANER_LATER, kept, latest, now, chooser.mean(kept))
        return Plan(True, against_now.shortfall(KEPT_SHARE), now_unix_s, latest, now, now)
    if came:
        reason = Reason.PLANNED_START
    else:
        reason = Reason.CLEANEST_NOW if best.start_unix_s == now_unix_s else to_best.shortfall(1.0)
    return Plan(True, reason, now_unix_s, latest, now, now)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What one start gains against another, g/kWh, and what it must gain."""

    gain: float
    least: float
    noise: float

    def worth(self, share: float) -> bool:
        return self.gain > 0.0 and self.gain >= share * max(self.least, self.noise)

    def shortfall(self, share: float) -> Reason:
        """Why it is not worth it."""
        if self.gain <= 0.0:
            return Reason.CLEANEST_NOW
        return Reason.GAIN_TOO_SMALL if self.gain < share * self.least else Reason.WITHIN_NOISE


class _Chooser:
    """Compares windows of one length in one forecast."""

    def __init__(self, forecast: CarbonForecast, duration_s: float, rules: Rules) -> None:
        self._forecast = forecast
        self._duration_s = duration_s
        self._rules = rules

    def mean(self, start_unix_s: float) -> Expectation | None:
        """Over the window that begins then."""
        return self._forecast.mean_over(start_unix_s, start_unix_s + self._duration_s)

    def compare(self, one_unix_s: float, other_unix_s: float) -> _Comparison:
        """What the second start gains. What the two windows share is the same for both, errors included."""
        first, second = self.mean(one_unix_s), self.mean(other_unix_s)
        assert first is not None
        assert second is not None
        apart = min(abs(other_unix_s - one_unix_s), self._duration_s)
        if apart == 0.0:
            return _Comparison(0.0, inf, inf)
        early, late = sorted((one_unix_s, other_unix_s))
        end = late + self._duration_s
        alone = hypot(self._deviation(early, early + apart), self._deviation(end - apart, end))
        noise = self._rules.sigmas * alone * apart / self._duration_s
        return _Comparison(first.expected - second.expected, self._rules.least_gain * first.expected, noise)

    def _deviation(self, start_unix_s: float, end_unix_s: float) -> float:
        """Standard deviation of the mean over a time that the forecast covers."""
        mean = self._forecast.mean_over(start_unix_s, end_unix_s)
        assert mean is not None, "a part of a covered window is covered"
        return deviation(mean)


def deviation(mean: Expectation) -> float:
    """Standard deviation of an expectation, g/kWh; an assumed one where the forecast states no bounds."""
    if mean.lower is None or mean.upper is None:
        return ASSUMED_SPREAD * mean.expected
    return (mean.upper - mean.lower) / SIGMAS_BETWEEN_QUANTILES
