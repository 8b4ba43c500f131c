"""Forecasts of all RegionProfiles: the source's own where it has one, else ours, both with their measured errors.

What is remembered of a region lives in this process: up to 120 days of hours, and the forecasts of two weeks. After a
start the past comes from the source where that has one, else it builds up anew; until then the status keeps the
forecast and the error that it has. Learning runs in one thread, one region after the other.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import Forecast, ForecastError, RegionProfileStatus
from heliotrope.carbon.forecast.hours import MAX_HOURS, History, hour_of
from heliotrope.carbon.forecast.published import published
from heliotrope.carbon.forecast.record import ForecastRecord, RollingError, with_spread
from heliotrope.carbon.forecast.training import SOURCE_PREFIX, Forecaster, baseline_forecast, train
from heliotrope.carbon.forecast.value import CarbonForecast
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import (
    CredentialsMissingError,
    CredentialsRefusedError,
    InvalidInputError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope.providers import replay_speed
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import Key
from heliotrope_operator.signals import Published, made_of

_log = logging.getLogger(__name__)

ERROR_HORIZON_HOURS = 24
"""Of the error in a status."""
TRAIN_EVERY_S = 6.0 * SECONDS_PER_HOUR
FIRST_TRAIN_EVERY_S = SECONDS_PER_HOUR
"""While there is no forecaster, because too little is known."""
HISTORY_SPANS_S = (MAX_HOURS * SECONDS_PER_HOUR, 30.0 * SECONDS_PER_DAY, 9.0 * SECONDS_PER_DAY, SECONDS_PER_DAY)
"""Asked for one after the other until the source gives something: plans differ in how far back they go."""
HISTORY_TIMEOUT_S = 120.0
HISTORIES_AT_ONCE = 2
HISTORY_RETRY_S = 6.0 * SECONDS_PER_HOUR
PROVEN_SAMPLES = 7 * 24
"""Comparisons from which on the error since this start takes the place of the one before it."""

_WHATEVER_THE_SPAN = (TimeoutError, ThrottledError, CredentialsMissingError, CredentialsRefusedError)
"""Failures that asking for less does not mend."""

HistoryOf = Callable[[str, float, float], Awaitable[Series | None]]
"""The past that a region's source has; None if it never has any."""


@dataclass(slots=True, eq=False)
class _Region:
    """What is remembered of one region with the part of the spec that it belongs to."""

    made_of: object
    history: History = field(default_factory=History)
    record: ForecastRecord = field(default_factory=ForecastRecord)
    forecaster: Forecaster | None = None
    task: asyncio.Task[None] | None = None
    train_at: float = -inf
    """On the event loop's clock."""
    history_at: float | None = -inf
    """When to ask the source for its past; None: it has been asked, or has none."""
    state: tuple[int, int | None, Forecaster | None] | None = None
    """The hour of now, the newest that is known, and the forecaster, of which the next three are."""
    own: tuple[CarbonForecast, Forecast] | None = None
    """Our forecast, and as a status has it."""
    baseline: CarbonForecast | None = None
    error: RollingError | None = None
    given: tuple[Forecast, Forecast] | None = None
    """The source's forecast as it came, and as it is published with its spread."""


class Forecasts:
    """Remembers regions, learns, forecasts. Owned by the event loop's thread."""

    def __init__(
        self,
        metrics: Metrics,
        history_of: HistoryOf,
        *,
        unix_clock: Callable[[], float],
        enqueue: Callable[[Iterable[Key]], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        """What it is made of.

        Args:
            metrics: counts learning.
            history_of: asks a region's source for its past.
            unix_clock: Unix seconds.
            enqueue: has a region looked at again when something was learned of it.
            rng: spreads learning over time.
        """
        self._metrics = metrics
        self._history_of = history_of
        self._unix_clock = unix_clock
        self._enqueue = enqueue
        self._rng = rng or random.Random()
        self._learning = asyncio.Semaphore(1)
        self._asking = asyncio.Semaphore(HISTORIES_AT_ONCE)
        self._regions: dict[str, _Region] = {}

    def forget(self, name: str) -> None:
        """The RegionProfile is gone."""
        region = self._regions.pop(name, None)
        if region is not None and region.task is not None:
            region.task.cancel()

    async def close(self) -> None:
        """Learn no more."""
        tasks = [region.task for region in self._regions.values() if region.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def complete(self, profile: RegionProfile, answer: Published) -> Published:
        """An answer of the region's source with the forecast and the error that its status should have.

        Learning begins beside it where the source has no forecast and it is due; the region is looked at again when it
        has ended.
        """
        name, previous = profile.metadata.name, profile.status
        if not _in_real_time(profile):
            self.forget(name)
            return answer
        key = made_of(profile)
        region = self._regions.get(name)
        if region is None or region.made_of != key:
            self.forget(name)
            region = self._regions[name] = _Region(key)
        if previous is not None and previous.observed_generation != profile.metadata.generation:
            # A changed spec may mean another grid or kind of signal, which the status is then not of.
            previous = None
        now_unix_s = self._unix_clock()
        reading = answer.intensity
        region.history.add([Point(reading.time.timestamp(), reading.value)], now_unix_s)
        if answer.forecast is None:
            self._learn(name, region)
        forecast = self._forecast(region, answer, now_unix_s)
        if forecast is None and region.task is not None:
            forecast = _still_ahead(previous, now_unix_s)
        error = _error(region.error, previous)
        return replace(answer, forecast=forecast, forecast_error=error)

    def _forecast(self, region: _Region, answer: Published, now_unix_s: float) -> Forecast | None:
        hours, hour = region.history.hours(), hour_of(now_unix_s)
        state = (hour, hours.newest, region.forecaster)
        if region.state != state:
            region.state = state
            region.record.observe(hours, now_unix_s)
            region.error = region.record.error(ERROR_HORIZON_HOURS)
            region.baseline = baseline_forecast(hours, now_unix_s)
            own = None if region.forecaster is None else region.forecaster.forecast(hours, now_unix_s)
            region.own = None if own is None else (own, published(own))
        if answer.forecast is not None:
            return self._of_source(region, answer.forecast, now_unix_s)
        if region.own is None:
            return None
        made, in_status = region.own
        region.record.issue(made, region.baseline, now_unix_s)
        return in_status

    def _of_source(self, region: _Region, forecast: Forecast, now_unix_s: float) -> Forecast:
        try:
            made = _read(forecast)
        except InvalidInputError as error:
            _log.warning("a source's forecast has no error and no spread: %s", error)
            return forecast
        region.record.issue(made, region.baseline, now_unix_s)
        if region.given is not None and region.given[0].points == forecast.points:
            return region.given[1]
        spread = region.record.spread(made.source)
        bounded = forecast
        if spread is not None:
            bounded = published(with_spread(made, spread, now_unix_s))
        region.given = forecast, bounded
        return bounded

    def _learn(self, name: str, region: _Region) -> None:
        clock = asyncio.get_running_loop().time()
        if region.task is not None or region.train_at > clock:
            return
        region.task = asyncio.create_task(self._learn_beside(name, region), name=f"forecaster of {name}")

    async def _learn_beside(self, name: str, region: _Region) -> None:
        clock = asyncio.get_running_loop().time
        outcome = "error"
        try:
            if region.history_at is not None and region.history_at <= clock():
                async with self._asking:
                    await self._ask_for_history(name, region)
            async with self._learning:
                began = clock()
                # Of a copy, so that readings may come in meanwhile.
                region.forecaster = await asyncio.to_thread(train, region.history.hours())
                outcome = "too_little_known" if region.forecaster is None else "learned"
                # After a start all regions are due: leave half of the time to everything else.
                await asyncio.sleep(clock() - began)
        except Exception:  # noqa: BLE001 - without it there is no own forecast of one region, and the rest goes on
            _log.exception("learning to forecast %s failed", name)
        finally:
            region.task = None
        every_s = FIRST_TRAIN_EVERY_S if region.forecaster is None else TRAIN_EVERY_S
        region.train_at = clock() + every_s * self._rng.uniform(0.8, 1.0)
        self._metrics.forecast_trainings.labels(outcome).inc()
        if self._regions.get(name) is region:
            self._enqueue([region_key(name)])

    async def _ask_for_history(self, name: str, region: _Region) -> None:
        """Take in what the source has of the past. A failure is asked again hours later, for it may be the plan's."""
        now_unix_s = self._unix_clock()
        problem = ""
        for span_s in HISTORY_SPANS_S:
            try:
                async with asyncio.timeout(HISTORY_TIMEOUT_S):
                    past = await self._history_of(name, now_unix_s - span_s, now_unix_s)
            except _WHATEVER_THE_SPAN as error:
                problem = str(error) or f"no answer within {HISTORY_TIMEOUT_S:.0f} s"
                break
            except SignalUnavailableError as error:
                problem = str(error)
                continue
            region.history_at = None
            if past is not None:
                region.history.add_series(past, now_unix_s)
            return
        _log.info("%s: forecasts begin without history: %s", name, problem)
        region.history_at = asyncio.get_running_loop().time() + HISTORY_RETRY_S


def _in_real_time(profile: RegionProfile) -> bool:
    """Whether hours of the clock are hours of the grid: not in a static value, nor where a series plays faster."""
    return profile.spec.source.static is None and replay_speed(profile.spec) == 1


def _read(forecast: Forecast) -> CarbonForecast:
    times = [point.time.timestamp() for point in forecast.points]
    return CarbonForecast.of(
        times,
        [point.value for point in forecast.points],
        issued_unix_s=forecast.issued_at.timestamp(),
        source=forecast.source,
        last_holds_s=times[-1] - times[-2] if len(times) > 1 else SECONDS_PER_HOUR,
    )


def _still_ahead(previous: RegionProfileStatus | None, now_unix_s: float) -> Forecast | None:
    """Our own forecast of an earlier process, while this one still learns."""
    forecast = None if previous is None else previous.forecast
    if forecast is None or not forecast.points or not forecast.source.startswith(SOURCE_PREFIX):
        return None
    return forecast if forecast.points[-1].time.timestamp() > now_unix_s else None


def _error(found: RollingError | None, previous: RegionProfileStatus | None) -> ForecastError | None:
    """The error since this start, or an earlier process's while that rests on more."""
    before = None if previous is None else previous.forecast_error
    if found is None or (before is not None and found.samples < min(before.samples, PROVEN_SAMPLES)):
        return before
    return ForecastError(
        horizon_hours=found.horizon_hours,
        mean_absolute_error=round(found.mean_absolute_error, 2),
        baseline_mean_absolute_error=round(found.baseline_mean_absolute_error, 2),
        samples=found.samples,
    )
