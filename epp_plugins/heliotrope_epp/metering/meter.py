"""Follows requests and counters, and tells the sinks what each request drew."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from heliotrope.units import joules_from_millijoules
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.node_energy import NodeReading
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.credited import Credited, Drawn
from heliotrope_epp.metering.domain import Domain
from heliotrope_epp.metering.encoding import encoding
from heliotrope_epp.metering.followed import Followed
from heliotrope_epp.metering.groups import Group, groups
from heliotrope_epp.metering.learned import LearnedWeights, accelerators_of
from heliotrope_epp.metering.ratios import TokenRatios
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.metering.timeline import Timeline
from heliotrope_epp.metering.totals import Totals, WithoutEnergy
from heliotrope_epp.outcomes.energy import EngineShare, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.meter import Routed
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.transport.interface import Progress

_log = logging.getLogger(__name__)

_SLOWEST_TICK_S = 1.0
_LARGEST_DUTY = 0.02
_YIELD_EVERY = 200


class EnergyMeter:
    """A `RequestMeter` and a listener of the endpoint store. It looks around while it is used as a context manager.

    Args:
        sinks: told of each request once its energy is settled, and of each interval.
        settings: places and limits.
        progress: the transport's requests in flight.
        node_readings: the last page of each node's exporter, by node address.
        clock: the picker's.
    """

    def __init__(
        self,
        sinks: Sinks,
        settings: MeteringSettings,
        *,
        progress: Callable[[], Sequence[Progress]],
        node_readings: Callable[[], Mapping[str, NodeReading]],
        clock: Clock,
    ) -> None:
        self._sinks = sinks
        self._settings = settings
        self._progress = progress
        self._node_readings = node_readings
        self._clock = clock
        self._timelines: dict[str, Timeline] = {}
        self._domains: dict[Group, Domain] = {}
        self._group_of: dict[Timeline, Group] = {}
        self._learned = LearnedWeights()
        self._followed: dict[object, Followed] = {}
        self._waiting: deque[Followed] = deque()
        self._ratios = TokenRatios()
        self._looked_s = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self.totals = Totals()

    async def __aenter__(self) -> "EnergyMeter":
        self._task = tasks.start(self._run(), "energy meter")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        self.flush()

    @property
    def waiting(self) -> int:
        """Requests that have ended and whose energy is not settled."""
        return len(self._waiting)

    def routed(self, key: object, request: Routed) -> None:
        """Follow a request."""
        decode = self._timelines.get(request.endpoint)
        prefill = decode if request.prefill_endpoint is None else self._timelines.get(request.prefill_endpoint)
        encoders = [self._timelines.get(at.endpoint) for at in request.encodes]
        if decode is None or prefill is None or None in encoders:
            return
        ratio = self._ratios.prompt(request.model)
        cached = min(request.cached_tokens, request.prompt_tokens) * ratio
        uncached = max(request.prompt_tokens * ratio - cached, 1.0)
        encodings = tuple(
            encoding(engine, at, request.dispatched_s)
            for engine, at in zip(encoders, request.encodes, strict=True)
            if engine is not None
        )
        followed = Followed(request, prefill, decode, uncached, cached, encodings)
        self._followed[key] = followed
        followed.sent()

    def ended(self, key: object, request: FinishedRequest) -> None:
        """Put its work right; the sinks are told when its energy is settled."""
        followed = self._followed.pop(key, None)
        if followed is None:
            self._tell_without(request, WithoutEnergy.UNKNOWN_ENDPOINT)
            return
        followed.finish(request, self._ratios)
        if not any(engine in self._group_of for _, engine in followed.parts):
            self._tell(followed)
            return
        self._waiting.append(followed)
        if len(self._waiting) > self._settings.max_waiting:
            oldest = self._waiting.popleft()
            assert oldest.ended is not None
            self._release(oldest)
            self._tell_without(oldest.ended, WithoutEnergy.SHED)

    def added(self, state: EndpointState) -> None:
        """Meter an endpoint."""
        weights = self._learned.of(state, self._timelines.values())
        self._timelines[state.endpoint.key] = Timeline(state, weights, self._clock.monotonic())

    def removed(self, key: str) -> None:
        """Forget an endpoint; what ran there is settled with what there is."""
        timeline = self._timelines.pop(key, None)
        if timeline is not None and timeline in self._group_of:
            self._dissolve(self._group_of[timeline])

    def cache_lost(self, key: str) -> None:
        """Nothing: the counters themselves tell of restarts."""

    async def _run(self) -> None:
        clock = self._clock.monotonic
        while True:
            since_s, worked_s = clock(), 0.0
            try:
                for _ in self._steps(since_s):
                    worked_s += clock() - since_s
                    await asyncio.sleep(0)
                    since_s = clock()
            except Exception:  # noqa: BLE001 - whatever it is, requests go on
                # One defect must not leave every later request waiting for its energy.
                self.totals.failures += 1
                _log.exception("a look at requests and counters failed; the next one is due")
            worked_s += clock() - since_s
            await asyncio.sleep(min(max(self._settings.tick_s, worked_s / _LARGEST_DUTY), _SLOWEST_TICK_S))

    def tick(self, now_s: float) -> None:
        """Take in whatever is new, at once."""
        for _ in self._steps(now_s):
            pass

    def _steps(self, now_s: float) -> Iterator[None]:
        """A tick in steps; between two of them requests may come and go."""
        longest_s = self._settings.limits.longest_seconds
        for timeline in self._timelines.values():
            timeline.learned = self._learned.of(timeline.state, self._timelines.values())
            timeline.page()
            timeline.give_up_waiting(now_s, longest_s)
        self._read(now_s)
        yield
        for number, progress in enumerate(self._progress(), start=1):
            followed = self._followed.get(progress.ctx)
            if followed is not None:
                followed.watch(progress, self._ratios.tokens_per_chunk(followed.request.model), self._looked_s)
            if number % _YIELD_EVERY == 0:
                yield
        self._looked_s = now_s
        until_s = now_s - self._settings.hold_s
        for domain in list(self._domains.values()):
            domain.fold(until_s)
            domain.settle(now_s)
            yield
        for timeline in [each for each in self._timelines.values() if each not in self._group_of]:
            for _ in timeline.fold(until_s):
                pass
        self._tell_settled(now_s)

    def flush(self) -> None:
        """Tell of every request that has ended, with what can be settled now."""
        now_s = self._clock.monotonic()
        for timeline in self._timelines.values():
            timeline.page()
        self._read(now_s)
        for domain in self._domains.values():
            domain.fold(now_s)
            domain.settle(now_s)
        while self._waiting:
            self._tell(self._waiting.popleft())

    def row(self, key: str) -> dict[str, Any] | None:
        """What `/debug/state` shows of an endpoint; None where nothing meters it."""
        timeline = self._timelines.get(key)
        if timeline is None or timeline not in self._group_of:
            return None
        group = self._group_of[timeline]
        last, learned = self._domains[group].last, timeline.learned
        row: dict[str, Any] = {
            "source": group.source,
            "shared_with": sorted(group.endpoints - {key}),
            "weights_joules": asdict(learned.weights),
            "idle_watts": learned.idle_watts,
            "learned_from_intervals": learned.intervals,
            "millijoules": asdict(self._domains[group].books),
        }
        if last is not None:
            seconds = last.end_s - last.start_s
            joules = None if last.millijoules is None else joules_from_millijoules(float(last.millijoules))
            row["last_interval"] = {
                "seconds": seconds,
                "joules": joules,
                "watts": None if joules is None or seconds <= 0.0 else joules / seconds,
                "refused": None if last.refusal is None else last.refusal.value,
            }
        return row

    def _read(self, now_s: float) -> None:
        """Hand new readings to their domains, and make domains where engines come to share or show counters."""
        found = groups((timeline.state for timeline in self._timelines.values()), self._node_readings())
        for group, reading in found.items():
            if group not in self._domains:
                self._establish(group, now_s)
            self._domains[group].read(reading.values, reading.read_s, now_s)
        for group, domain in self._domains.items():
            if group not in found:
                domain.silent(now_s)

    def _establish(self, group: Group, now_s: float) -> None:
        members = [self._timelines[key] for key in sorted(group.endpoints)]
        for member in members:
            if member in self._group_of:
                self._dissolve(self._group_of[member])
        self._domains[group] = Domain(
            members,
            self._settings.limits,
            accelerators=accelerators_of(members[0].state) if len(members) == 1 else None,
            stranger=group.stranger,
            refused=self.totals.refused,
            now_s=now_s,
            metered=self._sinks.metered,
            unix_offset_s=lambda: self._clock.unix() - self._clock.monotonic(),
        )
        self._group_of |= dict.fromkeys(members, group)

    def _dissolve(self, group: Group) -> None:
        for member in self._domains.pop(group).members:
            del self._group_of[member]

    def _tell_settled(self, now_s: float) -> None:
        still: deque[Followed] = deque()
        for followed in self._waiting:
            assert followed.ended is not None
            ended_s = followed.ended.ended_s
            late = now_s - ended_s > self._settings.longest_wait_s
            if late or all(self._settled(part, engine, ended_s) for part, engine in followed.parts):
                self._tell(followed)
            else:
                still.append(followed)
        self._waiting = still

    def _settled(self, part: Credited, engine: Timeline, ended_s: float) -> bool:
        """Whether nothing more is to come from an engine for a request that ended then."""
        group = self._group_of.get(engine)
        if group is None:
            return True
        domain = self._domains[group]
        return domain.settled_until_s >= ended_s and not engine.holds(part) and not domain.holds(part)

    def _tell(self, followed: Followed) -> None:
        request = followed.ended
        assert request is not None
        self._release(followed)
        coverage = followed.coverage()
        shares = [_share(engine, drawn) for engine, drawn in followed.drawn_by_engine().items()]
        millijoules = sum(share.millijoules for share in shares)
        if coverage <= 0.0 and not millijoules:
            metered = all(engine in self._group_of for _, engine in followed.parts)
            self._tell_without(request, WithoutEnergy.UNCOVERED if metered else WithoutEnergy.NO_COUNTER)
            return
        offset_s = self._clock.unix() - self._clock.monotonic()
        start_s, end_s = followed.metered_time() or (request.dispatched_s, request.ended_s)
        self.totals.with_energy += 1
        self._sinks.measured(
            request,
            RequestEnergy(
                start_unix_s=start_s + offset_s,
                end_unix_s=end_s + offset_s,
                millijoules=millijoules,
                idle_joules=sum(share.idle_joules for share in shares),
                host_joules=sum(share.host_joules for share in shares),
                accelerator_seconds=sum(share.accelerator_seconds for share in shares),
                coverage=coverage,
                engines=tuple(shares) if len(shares) > 1 else (),
            ),
        )

    def _release(self, followed: Followed) -> None:
        """Nothing is credited to it any more: it is about to be told."""
        for part, engine in followed.parts:
            engine.withdraw(part)
            if engine in self._group_of:
                self._domains[self._group_of[engine]].release(part)

    def _tell_without(self, request: FinishedRequest, reason: WithoutEnergy) -> None:
        self.totals.add_without(reason)
        self._sinks.measured(request, None)


def _share(engine: Timeline, drawn: Drawn) -> EngineShare:
    traits = engine.state.traits
    return EngineShare(
        endpoint=engine.key,
        region=traits.region,
        variant=traits.variant,
        millijoules=drawn.millijoules,
        idle_joules=drawn.idle_joules,
        host_joules=drawn.host_joules,
        accelerator_seconds=drawn.accelerator_seconds,
    )
