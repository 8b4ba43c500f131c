"""One region's forecaster: the method that errs least on what it had not seen, with its measured spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.anomalies import Anomalies
from heliotrope.carbon.forecast.backtest import HeldOut, backtest, mean_absolute_errors
from heliotrope.carbon.forecast.hours import HIGHEST_G_PER_KWH, Hours
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, Fitted, Method
from heliotrope.carbon.forecast.same_hour import SameHourYesterday
from heliotrope.carbon.forecast.spread import NO_SPREAD, Spread
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.units import SECONDS_PER_HOUR

SOURCE_PREFIX = "heliotrope "
BASELINE: Method = SameHourYesterday()
CANDIDATES: tuple[Method, ...] = (Anomalies(),)
MIN_KNOWN_HOURS = DAY
"""With less of it there is no hour of yesterday for most hours."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A method against the baseline on held-out weeks, g/kWh."""

    name: str
    mean_absolute_error: float
    baseline_mean_absolute_error: float

    @property
    def beats_baseline(self) -> bool:
        """False also where nothing is known."""
        return self.mean_absolute_error < self.baseline_mean_absolute_error


@dataclass(frozen=True, slots=True)
class Forecaster:
    """What was learned of a region; it forecasts from any later hour."""

    name: str
    """Of the method in use."""
    fitted: Fitted
    spread: Spread
    judged: tuple[Judged, ...]
    """The candidates that had enough history to be judged."""

    def forecast(self, hours: Hours, now_unix_s: float) -> CarbonForecast | None:
        """What to expect from the hour of now on, with its spread, from the newest hour that is known.

        Returns:
            None where nothing can be said: nothing is known, or the newest value is older than the horizon.
        """
        return _forecast(self.name, self.fitted, self.spread, hours, now_unix_s)


def baseline_forecast(hours: Hours, now_unix_s: float, baseline: Method = BASELINE) -> CarbonForecast | None:
    """The same of the baseline, without a spread: what others are measured against."""
    fitted = baseline.fit(hours)
    return None if fitted is None else _forecast(baseline.name, fitted, NO_SPREAD, hours, now_unix_s)


def train(hours: Hours, candidates: Sequence[Method] = CANDIDATES, baseline: Method = BASELINE) -> Forecaster | None:
    """Judge the candidates on the newest weeks and take the best; the baseline where none beats it.

    The same hours give the same forecaster. It takes about half a second and a few megabytes for 120 days.

    Returns:
        None with less than a day of known hours.
    """
    if hours.known < MIN_KNOWN_HOURS:
        return None
    yesterday = baseline.fit(hours)
    if yesterday is None:
        return None
    of_baseline = backtest(baseline, hours)
    judged: list[tuple[Judged, Method, HeldOut]] = []
    if of_baseline is not None:
        for method in candidates:
            held_out = backtest(method, hours)
            if held_out is not None:
                judged.append((Judged(method.name, *mean_absolute_errors(held_out, of_baseline)), method, held_out))
    verdicts = tuple(verdict for verdict, _, _ in judged)
    better = sorted((each for each in judged if each[0].beats_baseline), key=lambda each: each[0].mean_absolute_error)
    for _, method, held_out in better:
        fitted = method.fit(hours)
        if fitted is not None:
            return Forecaster(method.name, fitted, Spread.of(held_out.residuals), verdicts)
    return Forecaster(
        baseline.name, yesterday, NO_SPREAD if of_baseline is None else Spread.of(of_baseline.residuals), verdicts
    )


def _forecast(name: str, fitted: Fitted, spread: Spread, hours: Hours, now_unix_s: float) -> CarbonForecast | None:
    newest = hours.newest
    if newest is None:
        return None
    ahead = fitted.predict(hours.before(newest + 1), np.array([newest - hours.first]))[0]
    times = (newest + 1.0 + np.arange(HORIZON_HOURS)) * SECONDS_PER_HOUR
    useful = times + SECONDS_PER_HOUR > now_unix_s
    if not np.isfinite(ahead[useful]).any():
        return None
    ahead = np.minimum(ahead, HIGHEST_G_PER_KWH)
    low, high = spread.around(ahead)
    return CarbonForecast.of(
        times[useful].tolist(),
        ahead[useful].tolist(),
        low[useful].tolist(),
        high[useful].tolist(),
        issued_unix_s=now_unix_s,
        source=SOURCE_PREFIX + name,
    )
