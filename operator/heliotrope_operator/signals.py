"""The carbon sources of all RegionProfiles: each is asked at its own interval, and its last answer is kept.

Workers of the queue do not wait for sources. One that does not answer almost at once is asked on beside the queue, and
its region is looked at again when it has; so a source that hangs holds up nobody else.
"""

import asyncio
import logging
import random
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from pydantic import ValidationError

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.api.v1alpha1.regionprofile import (
    EmissionFactor,
    Forecast,
    ForecastError,
    ForecastPoint,
    IntensityReading,
    SignalType,
)
from heliotrope.carbon.forecast.published import MAX_POINTS, fitting
from heliotrope.carbon.series import Series
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers import Fetched, HistoryProvider, Provider, build, timing
from heliotrope.providers.online import Online
from heliotrope_operator.configmap import ConfigMapProvider
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.polling import Outcome, asked_to_wait_s, backoff_of, outcome_of
from heliotrope_operator.resources import Key
from heliotrope_operator.secrets import OwnSecrets

_log = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 30.0
PATIENCE_S = 0.5
"""How long a worker waits for a source."""
ASKED_AT_ONCE = 16
SHORTEST_POLL_S = 1.0
"""A replay in fast motion shortens poll intervals; the API server is not for faster news than this."""
_ABOUT_CREDENTIALS = frozenset({Outcome.SUCCESS, Outcome.CREDENTIALS_MISSING, Outcome.CREDENTIALS_REFUSED})


@dataclass(frozen=True, slots=True)
class Published:
    """An answer of a source as a status holds it."""

    intensity: IntensityReading
    forecast: Forecast | None
    forecast_failure: str | None = None
    """Why there is no new forecast though one was asked for."""
    forecast_error: ForecastError | None = None
    """How wrong forecasts of the region turned out to be."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a region's source at a moment."""

    published: Published | None = None
    """The newest answer since this process started; None if there was none."""
    failure: str | None = None
    """Why the newest attempt gave nothing; None if it did."""
    pending: bool = False
    """Whether it was never answered yet, but is being asked."""
    credentials: Outcome | None = None
    """Of a source that needs a Secret: success, or how its key failed; None if that is not known."""
    needs_credentials: bool = False
    invalid: str | None = None
    """Why the source cannot be asked at all."""
    next_poll_s: float | None = None
    """Seconds until the source is asked again; None: never, as it stands."""


@dataclass(slots=True)
class _Source:
    """A provider with the part of the spec that it was made of."""

    made_of: object
    provider: Provider
    needs_credentials: bool
    task: asyncio.Task[None] | None = None
    """Asks at the moment."""
    late: bool = False
    """Whether nobody waits for it any more, so that its end has to be told."""
    asked: float | None = None
    jitter: float = 1.0
    retry_s: float | None = None
    """Time until the next attempt after a failure."""
    published: Published | None = None
    failure: str | None = None
    failures: int = 0
    credentials: Outcome | None = None

    def due(self, poll_s: float) -> float:
        """When to ask, on the event loop's clock."""
        if self.asked is None:
            return -inf
        return self.asked + (poll_s * self.jitter if self.retry_s is None else self.retry_s)


class Signals:
    """Asks sources when they are due. Holds one entry for each RegionProfile that exists."""

    def __init__(
        self,
        kube: Kube,
        metrics: Metrics,
        *,
        namespace: str,
        folder: Path | None,
        unix_clock: Callable[[], float],
        enqueue: Callable[[Iterable[Key]], None] = lambda _: None,
        rng: random.Random | None = None,
    ) -> None:
        """What is asked, and with what.

        Args:
            kube: reads ConfigMaps and Secrets.
            metrics: counts polls.
            namespace: the operator's own: holds Secrets, and ConfigMaps that name none.
            folder: where relative paths of files start.
            unix_clock: Unix seconds.
            enqueue: has a region looked at again when a slow source has answered.
            rng: spreads polls.
        """
        self._kube = kube
        self._metrics = metrics
        self._namespace = namespace
        self._folder = folder
        self._unix_clock = unix_clock
        self._rng = rng or random.Random()
        self._started_unix_s = unix_clock()
        self._enqueue = enqueue
        self._online = Online(OwnSecrets(kube, namespace))
        self._asking = asyncio.Semaphore(ASKED_AT_ONCE)
        self._sources: dict[str, _Source] = {}

    def forget(self, name: str) -> None:
        """The RegionProfile is gone."""
        source = self._sources.pop(name, None)
        if source is not None:
            _cancel(source)
            self._metrics.forget_region(name)

    async def close(self) -> None:
        """Ask no more."""
        tasks = [source.task for source in self._sources.values() if source.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def observe(self, profile: RegionProfile) -> Observation:
        """Ask the region's source if it is due, and return what is known.

        A changed source or kind of signal starts anew, without the last answer.
        """
        name = profile.metadata.name
        made = made_of(profile)
        source = self._sources.get(name)
        if source is None or source.made_of != made:
            if source is not None:
                _cancel(source)
            try:
                provider = self._provider(profile)
            except InvalidInputError as error:
                self.forget(name)
                return Observation(invalid=str(error))
            source = self._sources[name] = _Source(made, provider, bool(_secret_refs(profile)))
        poll_s = max(timing(profile.spec).poll_s, SHORTEST_POLL_S)
        clock = asyncio.get_running_loop().time
        if source.task is None and source.due(poll_s) <= clock():
            source.late = False
            source.task = asyncio.create_task(self._ask(name, source, poll_s), name=f"carbon source of {name}")
        if source.task is not None:
            await asyncio.wait({source.task}, timeout=PATIENCE_S)
        asking = source.task is not None
        source.late = asking
        return Observation(
            source.published,
            source.failure,
            pending=asking and source.published is None and source.failure is None,
            credentials=source.credentials,
            needs_credentials=source.needs_credentials,
            next_poll_s=2.0 * FETCH_TIMEOUT_S if asking else max(source.due(poll_s) - clock(), 0.0),
        )

    async def history(self, name: str, start_unix_s: float, end_unix_s: float) -> Series | None:
        """What a region's source has of the past; None if it is none that keeps one.

        Raises:
            SignalUnavailableError: if it has nothing of that time, or could not be asked.
        """
        source = self._sources.get(name)
        if source is None or not isinstance(source.provider, HistoryProvider):
            return None
        return await source.provider.history(start_unix_s, end_unix_s)

    def _provider(self, profile: RegionProfile) -> Provider:
        config_map = profile.spec.source.config_map
        if config_map is None:
            return build(profile, folder=self._folder, started_unix_s=self._started_unix_s, online=self._online)
        return ConfigMapProvider(
            self._kube, config_map.namespace or self._namespace, profile.spec, config_map, self._started_unix_s
        )

    async def _ask(self, name: str, source: _Source, poll_s: float) -> None:
        outcome = Outcome.SUCCESS
        try:
            async with self._asking, asyncio.timeout(FETCH_TIMEOUT_S):
                now_unix_s = self._unix_clock()
                source.published = _published(await source.provider.fetch(now_unix_s), now_unix_s)
        except (SignalUnavailableError, TimeoutError) as error:
            outcome = outcome_of(error)
            self._failed(source, error, str(error) or f"no answer within {FETCH_TIMEOUT_S:.0f} s", poll_s)
        except Exception as error:  # noqa: BLE001 - a defect in one source must not stop the others
            # Neither its message nor its arguments are told: they may hold what was sent.
            kind, frames = type(error).__name__, "".join(traceback.format_tb(error.__traceback__))
            _log.error("carbon source of %s: unexpected %s\n%s", name, kind, frames)
            outcome = Outcome.ERROR
            self._failed(source, error, f"unexpected {kind}; the operator's log has more", poll_s)
        else:
            source.failure, source.failures, source.retry_s = None, 0, None
            source.jitter = self._rng.uniform(0.9, 1.0)
        if outcome in _ABOUT_CREDENTIALS:
            source.credentials = outcome
        self._metrics.polls.labels(name, outcome.value).inc()
        source.asked = asyncio.get_running_loop().time()
        source.task = None
        if source.late:
            self._enqueue([region_key(name)])

    def _failed(self, source: _Source, error: Exception, problem: str, poll_s: float) -> None:
        source.failures += 1
        source.failure = problem
        delay_s = backoff_of(error, poll_s).delay_s(source.failures, self._rng)
        source.retry_s = max(delay_s, asked_to_wait_s(error))


def _cancel(source: _Source) -> None:
    if source.task is not None:
        source.task.cancel()


def _published(fetched: Fetched, now_unix_s: float) -> Published:
    """The answer in the API's types, whose bounds catch values in another unit.

    Raises:
        SignalUnavailableError: if a value is out of bounds.
    """
    reading, series = fetched.reading, fetched.forecast
    try:
        intensity = IntensityReading(
            value=reading.intensity_g_per_kwh,
            time=_time(reading.measured_unix_s),
            source=reading.source,
            estimated=reading.estimated,
            signal_type=SignalType(reading.signal_type.value),
            emission_factor=EmissionFactor(reading.emission_factor.value),
        )
        if series is None:
            return Published(intensity, None, fetched.forecast_failure)
        series = fitting(series)
        pairs = zip(series.times_unix_s[:MAX_POINTS], series.values_g_per_kwh[:MAX_POINTS], strict=True)
        forecast = Forecast(
            issued_at=_time(now_unix_s),
            source=fetched.forecast_source or reading.source,
            points=tuple(ForecastPoint(time=_time(time), value=value) for time, value in pairs),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SignalUnavailableError(f"the source gave {first['input']!r}: {first['msg']}; check its unit") from None
    return Published(intensity, forecast, fetched.forecast_failure)


def _time(unix_s: float) -> datetime:
    """To the millisecond, which is as exact as statuses need to be to compare equal."""
    return datetime.fromtimestamp(round(unix_s, 3), UTC)


def _secret_refs(profile: RegionProfile) -> list[SecretKeyRef]:
    """The Secrets that the source names."""
    source = profile.spec.source
    chosen = next(found for name in type(source).model_fields if (found := getattr(source, name)) is not None)
    values = [getattr(chosen, name) for name in type(chosen).model_fields]
    return [value for value in values if isinstance(value, SecretKeyRef)]


def made_of(profile: RegionProfile) -> object:
    """The part of a spec with which everything known of a region's signal begins anew when it changes."""
    spec = profile.spec
    return (profile.metadata.uid, spec.zone, spec.source, spec.signal, spec.curtailment_credit)
