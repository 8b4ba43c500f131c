"""The carbon sources of all RegionProfiles: each is asked at its own interval, and its last answer is kept."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from pathlib import Path

from pydantic import ValidationError

from heliotrope.api.struct import camel
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import EmissionFactor, Forecast, ForecastPoint, IntensityReading, SignalType
from heliotrope.errors import InvalidInputError, SignalUnavailableError
from heliotrope.providers import Fetched, Provider, build, timing
from heliotrope_operator.configmap import ConfigMapProvider
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.workqueue import Backoff

FETCH_TIMEOUT_S = 30.0
SHORTEST_POLL_S = 1.0
"""A replay in fast motion shortens poll intervals; the API server is not for faster news than this."""
SUPPORTED = ("static", "file", "configMap")
FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
MAX_POINTS = 96
"""Points of a forecast in a status."""


@dataclass(frozen=True, slots=True)
class Published:
    """An answer of a source as a status holds it."""

    intensity: IntensityReading
    forecast: Forecast | None


@dataclass(frozen=True, slots=True)
class Observation:
    """What is known of a region's source at a moment."""

    published: Published | None = None
    """The newest answer since this process started; None if there was none."""
    failure: str | None = None
    """Why the newest attempt gave nothing; None if it did."""
    unsupported: str | None = None
    """Name of a source that this version cannot ask."""
    invalid: str | None = None
    """Why the source cannot be asked at all."""
    next_poll_s: float | None = None
    """Seconds until the source is asked again; None: never, as it stands."""


@dataclass(slots=True)
class _Source:
    """A provider with the part of the spec that it was made of."""

    made_of: object
    provider: Provider
    asked: float | None = None
    jitter: float = 1.0
    retry_s: float | None = None
    """Time until the next attempt after a failure."""
    published: Published | None = None
    failure: str | None = None
    failures: int = 0

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
        rng: random.Random | None = None,
    ) -> None:
        """`namespace` holds ConfigMaps that name none; `folder` is where relative paths of files start."""
        self._kube = kube
        self._metrics = metrics
        self._namespace = namespace
        self._folder = folder
        self._unix_clock = unix_clock
        self._rng = rng or random.Random()
        self._started_unix_s = unix_clock()
        self._sources: dict[str, _Source] = {}

    def forget(self, name: str) -> None:
        """The RegionProfile is gone."""
        if self._sources.pop(name, None) is not None:
            self._metrics.forget_region(name)

    async def observe(self, profile: RegionProfile) -> Observation:
        """Ask the region's source if it is due, and return what is known.

        A changed source or kind of signal starts anew, without the last answer.
        """
        name = profile.metadata.name
        set_source = _source_name(profile)
        if set_source not in SUPPORTED:
            self.forget(name)
            return Observation(unsupported=set_source)
        made_of = _made_of(profile)
        source = self._sources.get(name)
        if source is None or source.made_of != made_of:
            try:
                source = self._sources[name] = _Source(made_of, self._provider(profile))
            except InvalidInputError as error:
                self.forget(name)
                return Observation(invalid=str(error))
        poll_s = max(timing(profile.spec).poll_s, SHORTEST_POLL_S)
        clock = asyncio.get_running_loop().time
        if source.due(poll_s) <= clock():
            await self._ask(name, source, poll_s)
        return Observation(source.published, source.failure, next_poll_s=max(source.due(poll_s) - clock(), 0.0))

    def _provider(self, profile: RegionProfile) -> Provider:
        config_map = profile.spec.source.config_map
        if config_map is None:
            return build(profile, folder=self._folder, started_unix_s=self._started_unix_s)
        return ConfigMapProvider(
            self._kube, config_map.namespace or self._namespace, profile.spec, config_map, self._started_unix_s
        )

    async def _ask(self, name: str, source: _Source, poll_s: float) -> None:
        now_unix_s = self._unix_clock()
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_S):
                source.published = _published(await source.provider.fetch(now_unix_s), now_unix_s)
        except (SignalUnavailableError, TimeoutError) as error:
            source.failures += 1
            source.failure = str(error) or f"no answer within {FETCH_TIMEOUT_S:.0f} s"
            backoff = Backoff(FIRST_RETRY_S, max(poll_s, LONGEST_RETRY_S))
            source.retry_s = backoff.delay_s(source.failures, self._rng)
        else:
            source.failure, source.failures, source.retry_s = None, 0, None
            source.jitter = self._rng.uniform(0.9, 1.0)
        self._metrics.polls.labels(name, "success" if source.failure is None else "error").inc()
        source.asked = asyncio.get_running_loop().time()


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
            return Published(intensity, None)
        pairs = zip(series.times_unix_s[:MAX_POINTS], series.values_g_per_kwh[:MAX_POINTS], strict=True)
        forecast = Forecast(
            issued_at=_time(now_unix_s),
            source=fetched.forecast_source or reading.source,
            points=tuple(ForecastPoint(time=_time(time), value=value) for time, value in pairs),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SignalUnavailableError(f"the source gave {first['input']!r}: {first['msg']}; check its unit") from None
    return Published(intensity, forecast)


def _time(unix_s: float) -> datetime:
    """To the millisecond, which is as exact as statuses need to be to compare equal."""
    return datetime.fromtimestamp(round(unix_s, 3), UTC)


def _source_name(profile: RegionProfile) -> str:
    source = profile.spec.source
    return next(camel(name) for name in type(source).model_fields if getattr(source, name) is not None)


def _made_of(profile: RegionProfile) -> object:
    spec = profile.spec
    return (profile.metadata.uid, spec.zone, spec.source, spec.signal, spec.curtailment_credit)
