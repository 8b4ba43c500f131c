"""Puts a region scheduler together; `heliotrope_epp.serving` runs it."""

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope.carbon.signal import CarbonSignal
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp import serving
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.policy_history import PolicyHistory
from heliotrope_epp.datalayer.resources import Resources as Published
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import resolve
from heliotrope_epp.plugins.sessions.gate_file import NO_GATE, load_gate
from heliotrope_epp.plugins.sessions.settings import SessionSettings
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.region.batch import placement_spec
from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.collector import Collector
from heliotrope_epp.region.deadlines import DeadlineQueue
from heliotrope_epp.region.decided import Resources
from heliotrope_epp.region.director import RegionDirector
from heliotrope_epp.region.metrics import RegionCollector, RegionMetrics
from heliotrope_epp.region.placer import GREEDY, Placer
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.reading import Reader
from heliotrope_epp.region.recorder import WindowLog
from heliotrope_epp.region.schedulers import INLINE
from heliotrope_epp.region.settings import RegionSettings
from heliotrope_epp.region.solver import SolverProcess
from heliotrope_epp.region.state import Parts, state_document
from heliotrope_epp.region.warm_up import warm_up
from heliotrope_epp.serving import Ports, cancelled, drained
from heliotrope_epp.sources import sources
from heliotrope_epp.telemetry.admin import AdminServer
from heliotrope_epp.telemetry.metrics import StateCollector
from heliotrope_epp.telemetry.sessions import SessionCollector
from heliotrope_epp.tracing.runtime import Tracing
from heliotrope_epp.transport.aio.server import AioServer

_log = logging.getLogger(__name__)


def run(settings: RegionSettings, announce: Callable[[Ports], None] | None = None) -> None:
    """Run a region scheduler until SIGTERM or SIGINT, then drain it; errors as `serving.run`."""
    serving.run(lambda: RegionPicker(settings, Clock()), announce)


class RegionPicker:
    """The parts of one process of the region tier, wired."""

    def __init__(self, settings: RegionSettings, clock: Clock) -> None:
        """Build every part without starting any.

        Raises:
            InvalidInputError: if the settings cannot be used.
        """
        tier = settings.tier
        self._settings = settings
        self._clock = clock
        self._registry = CollectorRegistry()
        self._store = EndpointStore(home_region=tier.home_region)
        self._source, self._signals = sources(
            settings.folder,
            settings.kubernetes,
            self._signals_changed,
            clock=clock.unix,
            endpoints=False,
            secrets=settings.secrets_folder,
        )
        self._gate = NO_GATE if settings.sessions is None else load_gate(settings.sessions.gate)
        self._sessions = None if settings.sessions is None else self._tracker(settings.sessions)
        self._tracing = Tracing(settings.tracing, clock, self._registry) if settings.tracing.enabled else None
        self._provisioner = Provisioner(tier, clock=clock, rng=random.Random())
        self._solver = SolverProcess(clock=clock.monotonic)
        self._beliefs = Beliefs(tier.schedulers)
        self._log = WindowLog(tier.windows_kept)
        lengths = OutputLengths()
        self._director = RegionDirector(
            header=tier.region_header,
            reader=Reader(self._store, lengths, self._sessions, self._beliefs.prefixes, clock),
            lengths=lengths,
            sessions=self._sessions,
            provisioner=self._provisioner,
            beliefs=self._beliefs,
            log=self._log,
            metrics=RegionMetrics(self._registry),
            nearest=self._nearest,
            clock=clock,
            max_inflight=settings.max_inflight,
            tracer=None if self._tracing is None else self._tracing.tracer,
        )
        self._placer = Placer(
            provisioner=self._provisioner,
            resources=self._resources,
            beliefs=self._beliefs,
            solver=self._solver,
            schedulers={GREEDY: greedy},
            gate=self._gate.gate,
            peers=tier.schedulers - 1,
            settled=self._director,
            clock=clock,
        )
        self._collector = Collector(lambda: self._resources().spec, self._placer.place, clock.monotonic)
        self._deadlines = DeadlineQueue(
            tier.deadlines,
            tier.when_full,
            names=tier.names,
            views=self._store.regions,
            release=self._collector.add,
            monotonic=clock.monotonic,
            unix=clock.unix,
        )
        self._director.wire(self._collector, self._deadlines)
        self._server = AioServer(self._director, settings.limits, clock=clock.monotonic)
        self._admin = AdminServer(
            registry=self._registry,
            ready=self._not_ready,
            decision=self._log.get,
            decisions=self._log.newest,
            decisions_kept=self._log.kept,
            state=self._state,
            pages={"/debug/windows": lambda: json.dumps(self._log.windows(), allow_nan=False).encode()},
        )
        self._policies = PolicyHistory()
        self._draining = False
        self._published = asyncio.Event()
        self.first_world = asyncio.Event()
        """Set once the source has published and every region was asked."""
        self.ports = Ports(0, 0, 0)

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the ports and begin to read regions; `stack` takes everything down again, in reverse order.

        Raises:
            OSError: if a port cannot be bound.
        """
        s = self._settings
        await asyncio.to_thread(warm_up)
        if self._tracing is not None:
            self._tracing.start()
            stack.push_async_callback(self._tracing.close)
        stack.push_async_callback(self._solver.close)
        await stack.enter_async_context(self._provisioner)
        stack.push_async_callback(self._signals.close)
        for work, name in (
            (self._placer.run(), "windows for the solver"),
            (self._deadlines.run(), "requests that wait"),
            (self._all_known(), "first state of all regions"),
        ):
            stack.push_async_callback(cancelled, tasks.start(work, name))
        if self._sessions is not None:
            self._registry.register(SessionCollector(self._sessions.counts, self._gate))
        self._registry.register(
            RegionCollector(
                provisioner=self._provisioner,
                windows=self._collector,
                placer=self._placer,
                deadlines=self._deadlines,
                solver=self._solver,
                beliefs=self._beliefs,
                clock=self._clock.monotonic,
            )
        )
        self._registry.register(
            StateCollector(
                transport=self._server.stats,
                endpoints=tuple,
                regions=lambda: self._store.regions().values(),
                source_healthy=lambda: self._source.healthy,
                problems=lambda: len(self._problems()),
                unix_clock=self._clock.unix,
            )
        )
        metrics_port = await self._admin.start(s.host, s.metrics_port)
        stack.push_async_callback(self._admin.stop)
        bound = await self._server.start(
            f"{s.host}:{s.grpc_port}", tls=s.tls, health_address=f"{s.host}:{s.health_port}"
        )
        stack.push_async_callback(self._server.shutdown, s.grace_seconds)
        stack.push_async_callback(self._let_everything_go)
        self.ports = Ports(bound.port or 0, bound.health_port or 0, metrics_port)
        fields = {"tier": "region", "tls": s.tls is not None, "grpc_port": self.ports.grpc_port}
        _log.info("listening", extra={"fields": fields | {"metrics_port": metrics_port}})

    def set_serving(self) -> None:
        """Tell gateways that requests are welcome."""
        self._server.set_serving(True)

    async def drain(self) -> None:
        """Send gateways elsewhere while requests still come in; what waits is placed at the end of it."""
        self._draining = True
        _log.info("draining", extra={"fields": {"in_flight": self._director.inflight}})
        await drained(self._server, self._director.inflight, self._settings.drain_seconds)

    async def follow_source(self) -> None:
        """Apply whatever the source publishes, for ever."""
        await self._source.run(self._publish)

    async def _let_everything_go(self) -> None:
        self._deadlines.drain()
        self._collector.close()
        self._placer.drain()

    async def _all_known(self) -> None:
        await self._published.wait()
        await self._provisioner.tried.wait()
        self.first_world.set()

    def _publish(self, published: Published) -> None:
        pool = None if self._settings.kubernetes is None else self._settings.kubernetes.pool
        before = self._store.world
        world = resolve(replace(published, endpoints=(), variants=()), pool, {})
        self._store.apply(world)
        self._policies.follow(world, self._clock.unix())
        self._signals.update(world.regions.values())
        self._deadlines.plan()
        self._published.set()
        if placement_spec(world.policy_resource).scheduler.value not in INLINE:
            # It takes memory, and seconds to compile, which Greedy alone needs not.
            self._solver.start()
        policy = world.policy
        fields = {"regions": len(world.regions), "policy": None if policy is None else policy.name}
        _log.info("resources", extra={"fields": fields})
        for problem in world.problems:
            if problem not in before.problems:
                _log.warning("resource problem", extra={"fields": {"problem": problem}})

    def _signals_changed(self, signals: Mapping[str, CarbonSignal]) -> None:
        self._store.set_signals(signals)
        self._deadlines.plan()

    def _tracker(self, settings: SessionSettings) -> SessionTracker:
        def rules() -> SessionRules | None:
            policy = self._store.policy()
            return None if policy is None else policy.sessions

        return SessionTracker(Sessions(settings.max_sessions), SessionKeys(), rules, self._clock)

    def _resources(self) -> Resources:
        world = self._store.world
        return Resources(world.policy, placement_spec(world.policy_resource), self._store.regions(), world.regions)

    def _nearest(self) -> str | None:
        """The region of the shortest round trip that is up; where none tells its state, the first."""
        names = self._provisioner.up(self._clock.monotonic())
        views = self._store.regions()

        def far(name: str) -> float:
            rtt = views[name].rtt_seconds if name in views else float("inf")
            return rtt if rtt == rtt else float("inf")  # NaN: unknown

        return min(names, key=far) if names else self._settings.tier.names[0]

    def _not_ready(self) -> str | None:
        if self._draining:
            return "draining"
        return None if self.first_world.is_set() else "resources and regions have not been read yet"

    def _problems(self) -> list[str]:
        known = self._store.world.regions
        missing = (
            f"region {name}: there is no RegionProfile of this name, so its grid and distance are unknown"
            for name in self._settings.tier.names
            if name not in known
        )
        signals = (f"carbon signal of region {name}: {why}" for name, why in self._signals.problems.items())
        gate = () if self._gate.problem is None else (self._gate.problem,)
        return [*self._store.world.problems, *missing, *signals, *gate]

    def _state(self) -> dict[str, Any]:
        return state_document(
            Parts(self._settings.tier, self._store, self._provisioner, self._beliefs, self._deadlines, self._solver),
            now_s=self._clock.monotonic(),
            now_unix_s=self._clock.unix(),
            source_healthy=self._source.healthy,
            problems=self._problems(),
            policy=self._policies.document(self._clock.unix()),
        )
