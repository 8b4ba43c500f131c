"""The carbon signal of each region: published by the operator in Kubernetes, polled by the picker itself in a folder.

Neither is ever waited for. A region's last value stays until a newer one comes; whether it is fresh is a question of
its age at the moment of the decision (`CarbonSignal.freshness`).
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Protocol

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.forecast.published import forecast_of
from heliotrope.carbon.series import Series
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.errors import InvalidInputError, SignalUnavailableError, ThrottledError
from heliotrope.providers import NetworkSources, Provider, build, timing
from heliotrope.providers.static import StaticProvider
from heliotrope_epp.datalayer import tasks

_log = logging.getLogger(__name__)

_FETCH_TIMEOUT_S = 30.0
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 60.0
_ASKED_AT_ONCE = 16

Changed = Callable[[Mapping[str, CarbonSignal]], None]


class SignalBook(Protocol):
    """Follows the regions that it is told of and hands out their signals whenever one changes."""

    def update(self, regions: Iterable[RegionProfile]) -> None:
        """These are the regions now."""
        ...

    async def close(self) -> None:
        """Stop following; safe to call twice."""
        ...

    @property
    def problems(self) -> Mapping[str, str]:
        """By region: why it has no new value."""
        ...


class PublishedSignals:
    """Reads the status that the operator keeps in each RegionProfile."""

    def __init__(self, changed: Changed, *, clock: Callable[[], float] = time.time) -> None:
        self._changed = changed
        self._clock = clock

    def update(self, regions: Iterable[RegionProfile]) -> None:
        """Take over the regions' statuses."""
        now = self._clock()
        self._changed({region.metadata.name: published_signal(region, now) for region in regions})

    async def close(self) -> None:
        """Nothing runs."""

    @property
    def problems(self) -> Mapping[str, str]:
        """None: the operator tells them in each RegionProfile's conditions."""
        return {}


def published_signal(region: RegionProfile, now_unix_s: float) -> CarbonSignal:
    """The signal in a RegionProfile's status. A static source needs no operator: its spec says it all.

    The status of a spec that has since changed its kind of signal is not used.
    """
    spec, status = region.spec, region.status
    if spec.source.static is not None:
        return CarbonSignal(StaticProvider(spec, spec.source.static).reading(now_unix_s), stale_after_s=inf)
    stale_after_s = timing(spec).stale_after_s
    if status is None or status.intensity is None:
        return CarbonSignal(None, stale_after_s)
    value = status.intensity
    if value.signal_type != spec.signal.type or value.emission_factor != spec.signal.emission_factor:
        return CarbonSignal(None, stale_after_s)
    reading = Reading(
        intensity_g_per_kwh=value.value,
        measured_unix_s=value.time.timestamp(),
        source=value.source,
        signal_type=SignalType(value.signal_type.value),
        emission_factor=EmissionFactor(value.emission_factor.value),
        estimated=value.estimated,
    )
    return CarbonSignal(reading, stale_after_s, _published_forecast(region))


def _published_forecast(region: RegionProfile) -> Series | None:
    """The forecast behind the current value, so that together they cover the time from now on."""
    try:
        forecast = forecast_of(region.status)
    except InvalidInputError as error:
        _log.warning("RegionProfile %s: status.forecast is not used: %s", region.metadata.name, error)
        return None
    return None if forecast is None else forecast.expected


@dataclass(slots=True)
class _Followed:
    """A region that is polled, and the part of its spec that was when polling began."""

    key: object
    task: asyncio.Task[None] | None
    signal: CarbonSignal


class PolledSignals:
    """Asks each region's provider at its own interval, in tasks of the running loop."""

    def __init__(
        self,
        changed: Changed,
        *,
        folder: Path | None = None,
        online: NetworkSources | None = None,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
    ) -> None:
        """What is followed, and how.

        Args:
            changed: told of new signals.
            folder: where relative paths of file sources start.
            online: makes the providers of network sources; None reports them as problems.
            clock: Unix seconds.
            rng: spreads polls.
        """
        self._changed = changed
        self._folder = folder
        self._online = online
        self._asking = asyncio.Semaphore(_ASKED_AT_ONCE)
        self._clock = clock
        self._rng = rng or random.Random()
        self._started_unix_s = clock()
        self._followed: dict[str, _Followed] = {}
        self._problems: dict[str, str] = {}

    def update(self, regions: Iterable[RegionProfile]) -> None:
        """Follow exactly these regions. One whose source or signal changed starts anew, without a value."""
        wanted = {region.metadata.name: region for region in regions}
        for name in [name for name in self._followed if name not in wanted]:
            self._drop(name)
        for name, region in wanted.items():
            key = _polling_key(region)
            present = self._followed.get(name)
            if present is None or present.key != key:
                self._drop(name)
                self._followed[name] = self._follow(region, key)
        self._publish()

    @property
    def problems(self) -> Mapping[str, str]:
        """By region: why it has no new value."""
        return self._problems

    async def close(self) -> None:
        """Stop every task."""
        running = [followed.task for followed in self._followed.values() if followed.task is not None]
        self._followed.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def _drop(self, name: str) -> None:
        followed = self._followed.pop(name, None)
        self._problems.pop(name, None)
        if followed is not None and followed.task is not None:
            followed.task.cancel()

    def _follow(self, region: RegionProfile, key: object) -> _Followed:
        name = region.metadata.name
        absent = CarbonSignal(None, timing(region.spec).stale_after_s)
        try:
            provider = build(region, folder=self._folder, started_unix_s=self._started_unix_s, online=self._online)
        except InvalidInputError as error:
            self._report(name, f"{error}")
            return _Followed(key, None, absent)
        task = tasks.start(self._poll(region, provider), f"carbon signal of {name}")
        return _Followed(key, task, absent)

    async def _poll(self, region: RegionProfile, provider: Provider) -> None:
        name, spec = region.metadata.name, region.spec
        times = timing(spec)
        failures = 0
        while True:
            at_least_s = 0.0
            try:
                async with self._asking, asyncio.timeout(_FETCH_TIMEOUT_S):
                    fetched = await provider.fetch(self._clock())
            except (SignalUnavailableError, TimeoutError) as error:
                failures += 1
                self._report(name, str(error) or f"no answer within {_FETCH_TIMEOUT_S:.0f} s")
                pause = min(_FIRST_RETRY_S * 2.0 ** min(failures - 1, 16), max(times.poll_s, _LONGEST_RETRY_S))
                if isinstance(error, ThrottledError) and error.retry_after_s is not None:
                    at_least_s = error.retry_after_s
            except Exception as error:  # noqa: BLE001 - a defect in one source must not end its polling
                # Its message is not told: it may hold what was sent.
                failures += 1
                self._report(name, f"unexpected {type(error).__name__}; please report it")
                pause = max(times.poll_s, _LONGEST_RETRY_S)
            else:
                failures = 0
                if self._problems.pop(name, None) is not None:
                    _log.info("carbon signal of region %s is back", name)
                signal = CarbonSignal(fetched.reading, times.stale_after_s, fetched.forecast)
                self._followed[name].signal = signal
                self._publish()
                pause = times.poll_s
            await asyncio.sleep(max(pause * self._rng.uniform(0.9, 1.0), at_least_s))

    def _report(self, name: str, problem: str) -> None:
        if self._problems.get(name) != problem:
            _log.warning("carbon signal of region %s: %s", name, problem)
        self._problems[name] = problem

    def _publish(self) -> None:
        self._changed({name: followed.signal for name, followed in self._followed.items()})


def _polling_key(region: RegionProfile) -> object:
    spec = region.spec
    return (spec.zone, spec.source, spec.signal, spec.curtailment_credit, spec.poll_interval, spec.stale_after)
