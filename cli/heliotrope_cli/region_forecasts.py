"""What to expect of a region: as the operator publishes it, or learned at once from its source."""

from math import inf
from pathlib import Path

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.forecast.hours import MAX_HOURS, History
from heliotrope.carbon.forecast.method import HORIZON_HOURS
from heliotrope.carbon.forecast.published import forecast_of
from heliotrope.carbon.forecast.training import train
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.signal import Freshness
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers import HistoryProvider, build, replay_speed, timing
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_cli.forecast_text import RegionError, RegionForecast

NOTHING_PUBLISHED = "the operator has published no value; see whether it runs, and the RegionProfile's conditions"
NO_FORECAST = "there is no forecast: the source has none, and less than a day of its past is known"


def published(profile: RegionProfile, now_unix_s: float) -> RegionForecast:
    """As the operator has it in the status."""
    name, zone, status = profile.metadata.name, profile.spec.zone, profile.status
    if status is None or status.intensity is None:
        return RegionForecast(name, zone, Freshness.ABSENT, None, None, None, NOTHING_PUBLISHED)
    reading, measured = status.intensity, status.forecast_error
    try:
        ahead = forecast_of(status)
        problem = NO_FORECAST if ahead is None else None
    except InvalidInputError as error:
        ahead, problem = None, str(error)
    return RegionForecast(
        name,
        zone,
        _freshness(profile, reading.time.timestamp(), now_unix_s),
        reading.value,
        ahead,
        None
        if measured is None
        else RegionError(
            measured.mean_absolute_error,
            measured.baseline_mean_absolute_error,
            measured.horizon_hours,
            measured.samples,
            "forecasts as issued",
        ),
        problem,
    )


async def learned(profile: RegionProfile, folder: Path, now_unix_s: float) -> RegionForecast:
    """As the source has it, and as it can be learned from its past."""
    name, zone = profile.metadata.name, profile.spec.zone
    try:
        provider = build(profile, folder=folder, started_unix_s=now_unix_s)
        fetched = await provider.fetch(now_unix_s)
    except (InvalidInputError, SignalUnavailableError) as error:
        return RegionForecast(name, zone, Freshness.ABSENT, None, None, None, str(error))
    reading = fetched.reading
    freshness = _freshness(profile, reading.measured_unix_s, now_unix_s)
    known = reading.intensity_g_per_kwh
    if fetched.forecast is not None:
        series = fetched.forecast
        given = CarbonForecast(series, None, None, now_unix_s, fetched.forecast_source or reading.source)
        return RegionForecast(name, zone, freshness, known, given, None)
    if not isinstance(provider, HistoryProvider) or replay_speed(profile.spec) != 1:
        problem = "the source has neither a forecast nor a past to learn from"
        return RegionForecast(name, zone, freshness, known, None, None, problem)
    history = History()
    try:
        past = await provider.history(now_unix_s - MAX_HOURS * SECONDS_PER_HOUR, now_unix_s)
    except SignalUnavailableError as error:
        return RegionForecast(name, zone, freshness, known, None, None, str(error))
    history.add_series(past, now_unix_s)
    hours = history.hours()
    trained = train(hours)
    ahead = None if trained is None else trained.forecast(hours, now_unix_s)
    if trained is None or ahead is None:
        problem = f"too little of the past is known to learn from: {hours.known} hours"
        return RegionForecast(name, zone, freshness, known, None, None, problem)
    judged = next(iter(trained.judged), None)
    measured = None
    if judged is not None:
        used = judged.mean_absolute_error if judged.name == trained.name else judged.baseline_mean_absolute_error
        baseline = judged.baseline_mean_absolute_error
        measured = RegionError(used, baseline, HORIZON_HOURS, None, "held-out weeks")
    return RegionForecast(name, zone, freshness, known, ahead.starting_with(reading.measured_unix_s, known), measured)


def _freshness(profile: RegionProfile, measured_unix_s: float, now_unix_s: float) -> Freshness:
    stale_after_s = inf if profile.spec.source.static is not None else timing(profile.spec).stale_after_s
    return Freshness.FRESH if now_unix_s - measured_unix_s <= stale_after_s else Freshness.STALE
