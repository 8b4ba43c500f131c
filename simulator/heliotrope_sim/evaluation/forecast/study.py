"""One zone over a year: learn again and again from the months before, forecast the weeks after, compare."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.carbon.forecast.hours import MAX_HOURS, FloatMatrix, FloatVector, Hours
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, Method
from heliotrope.carbon.forecast.training import BASELINE, train

WINDOW_HOURS = 6
"""Of the means whose intervals are checked as well: a Job takes hours."""
QUICK_ZONES = ("BR-CS", "GB", "KR", "US-CAL-CISO", "US-TEX-ERCO", "UY")


@dataclass(frozen=True, slots=True)
class Settings:
    """How much of the year is used. An operator learns every six hours; here it has to do with less."""

    learn_every_days: int = 28
    origin_every_hours: int = 5
    """Not a part of a day, so that all hours of the day are origins."""
    rivals: tuple[Method, ...] = ()
    """Other methods to compare, each always used."""

    @classmethod
    def of(cls, *, quick: bool, rivals: tuple[Method, ...] = ()) -> "Settings":
        """Fewer trainings and origins if it has to be quick."""
        found = cls(rivals=rivals)
        return replace(found, learn_every_days=56, origin_every_hours=11) if quick else found


@dataclass(frozen=True, slots=True)
class ZoneResult:
    """Errors over all origins and hours ahead, g/kWh, and shares from 0 to 1."""

    zone: str
    forecasts: int
    mean_g_per_kwh: float
    mae: float
    baseline_mae: float
    mape: float
    """Over hours whose intensity is above zero."""
    baseline_mape: float
    coverage: float
    """Share of hours within the 80 % interval."""
    window_coverage: float
    """Of the means over `WINDOW_HOURS`."""
    used: Mapping[str, int]
    """Trainings by the method that won."""
    rivals: Mapping[str, float]
    """Mean absolute errors."""
    mae_by_hour: FloatVector
    baseline_mae_by_hour: FloatVector
    coverage_by_hour: FloatVector

    @property
    def ratio(self) -> float:
        """Error over the baseline's."""
        return self.mae / self.baseline_mae


def evaluate_zone(zone: str, year: Hours, settings: Settings) -> ZoneResult:
    """Held out by time: nothing after an origin is known to its forecast, nothing after a training to its method.

    The first forecasts are made after the 120 days that an operator remembers.
    """
    parts = [
        _after(year, cut, min(cut + settings.learn_every_days * DAY, len(year.values) - HORIZON_HOURS), settings)
        for cut in range(MAX_HOURS, len(year.values) - HORIZON_HOURS - DAY, settings.learn_every_days * DAY)
    ]
    truth = np.concatenate([part.truth for part in parts])
    ours, baseline = (np.concatenate([getattr(part, name) for part in parts]) for name in ("ours", "baseline"))
    low, high = (np.concatenate([getattr(part, name) for part in parts]) for name in ("low", "high"))
    errors, baseline_errors = np.abs(truth - ours), np.abs(truth - baseline)
    inside = _inside(truth, low, high)
    windows = [_windowed(each) for each in (truth, low, high)]
    names = [method.name for method in settings.rivals]
    rivals = [np.concatenate([part.rivals[i] for part in parts]) for i in range(len(names))]
    positive = truth > 0.0
    return ZoneResult(
        zone=zone,
        forecasts=len(truth),
        mean_g_per_kwh=float(np.nanmean(year.values)),
        mae=_mean(errors),
        baseline_mae=_mean(baseline_errors),
        mape=_mean(errors[positive] / truth[positive]),
        baseline_mape=_mean(baseline_errors[positive] / truth[positive]),
        coverage=_mean(inside),
        window_coverage=_mean(_inside(*windows)),
        used=Counter(part.used for part in parts),
        rivals={name: _mean(np.abs(truth - rival)) for name, rival in zip(names, rivals, strict=True)},
        mae_by_hour=np.nanmean(errors, axis=0),
        baseline_mae_by_hour=np.nanmean(baseline_errors, axis=0),
        coverage_by_hour=np.nanmean(inside, axis=0),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Forecasts of one training, (origins, HORIZON_HOURS) each."""

    used: str
    truth: FloatMatrix
    ours: FloatMatrix
    baseline: FloatMatrix
    low: FloatMatrix
    high: FloatMatrix
    rivals: tuple[FloatMatrix, ...]


def _after(year: Hours, cut: int, end: int, settings: Settings) -> _Part:
    start = cut - MAX_HOURS
    history = Hours(year.first + start, year.values[start:cut])
    seen = Hours(year.first + start, year.values[start:end])
    trained = train(history)
    baseline = BASELINE.fit(history)
    assert trained is not None
    assert baseline is not None
    origins = np.arange(MAX_HOURS - 1, end - start - 1, settings.origin_every_hours)
    ours = trained.fitted.predict(seen, origins)
    rivals = [fitted.predict(seen, origins) for method in settings.rivals if (fitted := method.fit(history))]
    assert len(rivals) == len(settings.rivals)
    return _Part(
        used=trained.name,
        truth=year.values[start + origins[:, None] + np.arange(1, HORIZON_HOURS + 1)],
        ours=ours,
        baseline=baseline.predict(seen, origins),
        low=np.maximum(ours + trained.spread.low, 0.0),
        high=ours + trained.spread.high,
        rivals=tuple(rivals),
    )


def _windowed(hours: FloatMatrix) -> FloatMatrix:
    """Means of consecutive hours ahead."""
    whole = HORIZON_HOURS // WINDOW_HOURS
    means: FloatMatrix = hours[:, : whole * WINDOW_HOURS].reshape(len(hours), whole, WINDOW_HOURS).mean(axis=2)
    return means


def _inside(truth: FloatMatrix, low: FloatMatrix, high: FloatMatrix) -> FloatMatrix:
    """1 within, 0 outside, NaN where the truth or an end is unknown."""
    within: FloatMatrix = ((truth >= low) & (truth <= high)).astype(np.float64)
    return np.where(np.isfinite(truth) & np.isfinite(low) & np.isfinite(high), within, np.nan)


def _mean(values: FloatMatrix) -> float:
    return float(np.nanmean(values))
