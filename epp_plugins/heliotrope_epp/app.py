"""Puts the picker together and runs it until it is told to stop."""

import asyncio
import contextlib
import logging
import platform
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope.cache.rules import KvRules
from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.session_rules import SessionRules
from heliotrope.cache.sessions import Sessions
from heliotrope.carbon.signal import CarbonSignal
from heliotrope.decide.quality import Predictor
from heliotrope.engine import profiles
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp import serving
from heliotrope_epp.clock import Clock
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.kv_events import KvEventSubscriber
from heliotrope_epp.datalayer.policy_history import PolicyHistory
from heliotrope_epp.datalayer.region_state import PATH as STATE_PATH
from heliotrope_epp.datalayer.region_state import encode
from heliotrope_epp.datalayer.resources import Resources
from heliotrope_epp.datalayer.scrape import Scraper, ScrapeSettings
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import resolve
from heliotrope_epp.demand.book import DemandBook
from heliotrope_epp.demand.page import PATH as DEMAND_PATH
from heliotrope_epp.demand.page import PoolName, demand_page
from heliotrope_epp.demand.page import encode as encode_demand
from heliotrope_epp.director.director import Director
from heliotrope_epp.director.recorder import DecisionLog
from heliotrope_epp.learning.learner import Learner
from heliotrope_epp.ledger.runtime import Accounts
from heliotrope_epp.metering.metering import Metering
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.installed import register_installed
from heliotrope_epp.plugins.kv_labels import kv_event_ports
from heliotrope_epp.plugins.models.predictor import CpuMeter, QualityPredictor, load_predictor
from heliotrope_epp.plugins.models.router import ModelRouter
from heliotrope_epp.plugins.models.scorer import HttpScorer
from heliotrope_epp.plugins.pickers.warm_up import warm_up
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.producers.precise_prefix_cache import PrecisePrefixCacheProducer
from heliotrope_epp.plugins.retention import RetentionAdvisor
from heliotrope_epp.plugins.sessions.gate_file import NO_GATE, load_gate
from heliotrope_epp.plugins.sessions.settings import SessionSettings
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.serving import Ports, cancelled, drained
from heliotrope_epp.settings import EppSettings
from heliotrope_epp.sources import sources
from heliotrope_epp.telemetry.admin import AdminServer
from heliotrope_epp.telemetry.debug import state_document
from heliotrope_epp.telemetry.demand import DemandCollector
from heliotrope_epp.telemetry.engine_lines import endpoint_lines
from heliotrope_epp.telemetry.kv import KvCollector
from heliotrope_epp.telemetry.metrics import Metrics, StateCollector
from heliotrope_epp.telemetry.models import ScorerCollector
from heliotrope_epp.telemetry.policies import PolicyCollector
from heliotrope_epp.telemetry.region_state import state_page
from heliotrope_epp.telemetry.sessions import SessionCollector, sessions_document
from heliotrope_epp.tracing.runtime import Tracing
from heliotrope_epp.transport.aio.server import AioServer

_log = logging.getLogger(__name__)


def run(settings: EppSettings, announce: Callable[[Ports], None] | None = None) -> None:
    """Run a picker until SIGTERM or SIGINT, then drain it.

    Args:
        settings: places and limits.
        announce: called with the ports once requests are taken and endpoints are known.

    Raises:
        InvalidInputError: if configuration or resources cannot be used.
        OSError: if a port cannot be bound.
    """
    serving.run(lambda: Picker(settings, Clock()), announce)


class _Forgetting:
    """Tells the pipeline whose cache is gone."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def added(self, state: EndpointState) -> None:
        """Nothing is cached there yet."""

    def removed(self, key: str) -> None:
        self._pipeline.forget(key)

    def cache_lost(self, key: str) -> None:
        self._pipeline.forget(key)


class Picker:
    """The parts of one picker process, wired."""

    def __init__(self, settings: EppSettings, clock: Clock) -> None:
        """Build every part without starting any.

        Raises:
            InvalidInputError: if the configuration is wrong.
        """
        self._settings = settings
        self._clock = clock
        self._profiles = {name: profiles.load(name) for name in profiles.available()}
        self._store = EndpointStore(home_region=settings.home_region)
        registry = builtin_registry()
        for name in register_installed(registry):
            _log.info("plugins installed", extra={"fields": {"entry_point": name}})
        self._learner = (
            None if settings.learning is None else Learner(settings.learning, clock=clock, random=random.Random())
        )
        self._gate = NO_GATE if settings.sessions is None else load_gate(settings.sessions.gate)
        context = PluginContext(
            carbon=self._store,
            gate=self._gate.gate,
            clock=clock,
            random=random.Random(),
            metrics_stale_after_s=settings.director.metrics_stale_after_s,
            instance=platform.node(),
            models=self._models,
        )
        config = load(settings.config_text, registry, context)
        for warning in config.warnings:
            _log.warning(warning)
        self._pipeline = Pipeline(config.scheduling, context)
        self._sessions = None if settings.sessions is None else self._tracker(settings.sessions)
        interval_s = settings.refresh_metrics_interval_s
        path = "/metrics"
        if config.metrics is not None:
            path = config.metrics.path
            interval_s = config.metrics.interval or interval_s
        self._scrapes = config.metrics is not None
        self._scraper = Scraper(
            ScrapeSettings(interval_s=interval_s, path=path),
            cache_lost=self._store.cache_lost,
            clock=clock.monotonic,
            rng=random.Random(),
        )
        self._source, self._signals = sources(
            settings.folder,
            settings.kubernetes,
            self._signals_changed,
            clock=clock.unix,
            discovery=config.discovery,
            secrets=settings.secrets_folder,
        )
        self._metrics_registry = CollectorRegistry()
        self._decisions = DecisionLog(settings.decision_log_size)
        self._sinks = Sinks([self._decisions])
        self._accounts = Accounts(self._store, settings.ledger, clock, self._metrics_registry)
        for sink in self._accounts.sinks:
            self._sinks.add(sink)
        self._tracing = Tracing(settings.tracing, clock, self._metrics_registry) if settings.tracing.enabled else None
        if self._tracing is not None:
            self._sinks.add(self._tracing.energy)
        if self._learner is not None:
            self._sinks.add(self._learner)
            self._metrics_registry.register(self._learner.collector())
        learned, self._quality_problem = load_predictor(settings.models.quality_model)
        predictors: dict[Predictor, QualityPredictor] = {Predictor.LEARNED: learned}
        scorer = settings.models.scorer
        self._scorer = None if scorer is None else HttpScorer(scorer, clock, random.Random())
        if self._scorer is not None:
            predictors[Predictor.HTTP] = self._scorer
        self._retention = RetentionAdvisor(self._kv_rules, clock, settings.director.metrics_stale_after_s)
        self._metering = Metering(
            settings.metering,
            self._sinks,
            progress=lambda: self._server.inflight(),
            clock=clock,
            registry=self._metrics_registry,
        )
        self._demand = DemandBook(lambda: self._store.world.models)
        self._started_unix_s = clock.unix()
        self._director = Director(
            store=self._store,
            pipeline=self._pipeline,
            output_lengths=OutputLengths(),
            metrics=Metrics(self._metrics_registry),
            decisions=self._decisions,
            meter=self._metering.requests,
            clock=clock,
            settings=replace(settings.director, learning=self._learner is not None),
            tracer=None if self._tracing is None else self._tracing.tracer,
            sessions=self._sessions,
            retention=self._retention,
            model_router=ModelRouter(self._store, predictors, CpuMeter(settings.models.core_watts)),
            demand=self._demand,
        )
        self._server = AioServer(self._director, settings.limits, clock=clock.monotonic)
        self._admin = AdminServer(
            registry=self._metrics_registry,
            ready=self._not_ready,
            decision=self._decisions.get,
            decisions=self._decisions.newest,
            decisions_kept=self._decisions.capacity,
            state=self._state,
            pages={STATE_PATH: self._region_state, DEMAND_PATH: self._demand_page},
        )
        self._policies = PolicyHistory()
        self._draining = False
        self.first_world = asyncio.Event()
        """Set once the source has published."""
        self.ports = Ports(0, 0, 0)

    async def start(self, stack: contextlib.AsyncExitStack) -> None:
        """Open the ports and begin to read engines; `stack` takes everything down again, in reverse order.

        Raises:
            OSError: if a port cannot be bound, or a folder cannot be written.
        """
        s = self._settings
        await asyncio.to_thread(warm_up, next(iter(self._profiles.values())))
        if self._learner is not None:
            await self._learner.prepare()
            # Ended last, so that it learns from what the others settle when they close.
            stack.push_async_callback(cancelled, tasks.start(self._learner.run(), "learning"))
        self._accounts.start()
        stack.push_async_callback(self._accounts.close)
        if self._tracing is not None:
            self._tracing.start()
            stack.push_async_callback(self._tracing.close)
        await stack.enter_async_context(self._scraper)
        if self._scrapes:
            self._store.listen(self._scraper)
        self._store.listen(_Forgetting(self._pipeline))
        self._metrics_registry.register(
            KvCollector(self._pipeline.producers, self._retention.counts, await self._kv_subscribers(stack))
        )
        if self._sessions is not None:
            self._store.listen(self._sessions)
            self._metrics_registry.register(SessionCollector(self._sessions.counts, self._gate))
        if self._scorer is not None:
            await stack.enter_async_context(self._scorer)
            self._metrics_registry.register(ScorerCollector(self._scorer))
        await self._metering.start(stack, self._store)
        self._metrics_registry.register(DemandCollector(self._demand, self._director.held))
        stack.push_async_callback(cancelled, tasks.start(self._director.held.run(), "held requests"))
        stack.push_async_callback(self._signals.close)
        self._metrics_registry.register(
            PolicyCollector(self._policies, self._store, self._pipeline.memory, clock=self._clock.monotonic)
        )
        self._metrics_registry.register(
            StateCollector(
                transport=self._server.stats,
                endpoints=self._endpoint_rows,
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
        self.ports = Ports(bound.port or 0, bound.health_port or 0, metrics_port)
        _log.info(
            "listening",
            extra={
                "fields": {
                    "transport": "grpc.aio",
                    "tls": s.tls is not None,
                    "grpc_port": self.ports.grpc_port,
                    "health_port": self.ports.health_port,
                    "metrics_port": self.ports.metrics_port,
                }
            },
        )

    def set_serving(self) -> None:
        """Tell gateways that requests are welcome."""
        self._server.set_serving(True)

    async def drain(self) -> None:
        """Send gateways elsewhere while requests still come in; what is in flight ends during the shutdown."""
        self._draining = True
        held = len(self._director.held)
        _log.info("draining", extra={"fields": {"in_flight": self._director.inflight, "held": held}})
        # Another picker can wait longer for an engine than this one.
        self._director.held.drain()
        await drained(self._server, self._director.inflight, self._settings.drain_seconds)

    async def follow_source(self) -> None:
        """Apply whatever the source publishes, for ever."""
        await self._source.run(self._publish)

    def _publish(self, resources: Resources) -> None:
        pool = None if self._settings.kubernetes is None else self._settings.kubernetes.pool
        before = self._store.world
        world = resolve(resources, pool, self._profiles)
        self._store.apply(world)
        self._policies.follow(world, self._clock.unix())
        self._signals.update(world.regions.values())
        self.first_world.set()
        _log.info(
            "resources",
            extra={
                "fields": {
                    "endpoints": len(world.endpoints),
                    "regions": len(world.regions),
                    "policy": None if world.policy is None else world.policy.name,
                    "enforce": world.policy is not None and world.policy.enforce,
                }
            },
        )
        for problem in world.problems:
            if problem not in before.problems:
                _log.warning("resource problem", extra={"fields": {"problem": problem}})
        if world.conflicts and world.conflicts != before.conflicts:
            _log.warning("policies that lose to an older one", extra={"fields": {"policies": world.conflicts}})

    def _signals_changed(self, signals: Mapping[str, CarbonSignal]) -> None:
        self._store.set_signals(signals)

    def _tracker(self, settings: SessionSettings) -> SessionTracker:
        def rules() -> SessionRules | None:
            policy = self._store.policy()
            return None if policy is None else policy.sessions

        return SessionTracker(Sessions(settings.max_sessions), SessionKeys(), rules, self._clock)

    async def _kv_subscribers(self, stack: contextlib.AsyncExitStack) -> list[KvEventSubscriber]:
        """Listen to engines for every producer that wants their KV events."""
        started = []
        for producer in self._pipeline.producers:
            if isinstance(producer, PrecisePrefixCacheProducer) and producer.events is not None:
                subscriber = KvEventSubscriber(producer.events, producer, port_of=kv_event_ports)
                await stack.enter_async_context(subscriber)
                self._store.listen(subscriber)
                started.append(subscriber)
        return started

    def _kv_rules(self) -> KvRules | None:
        policy = self._store.policy()
        return None if policy is None else policy.kv

    def _models(self) -> LearnedModels | None:
        return None if self._learner is None else self._learner.holder.current

    def _not_ready(self) -> str | None:
        if self._draining:
            return "draining"
        return None if self.first_world.is_set() else "resources have not been read yet"

    def _endpoint_rows(self) -> Iterable[tuple[str, str, float | None, int]]:
        now_s = self._clock.monotonic()
        for state in self._store.states():
            age_s = None if state.metrics is None else now_s - state.metrics.scraped_s
            yield state.endpoint.key, state.traits.region or "unknown", age_s, len(state.inflight)

    def _state(self) -> dict[str, Any]:
        document = state_document(
            self._store,
            now_s=self._clock.monotonic(),
            now_unix_s=self._clock.unix(),
            stale_after_s=self._settings.director.metrics_stale_after_s,
            source_healthy=self._source.healthy,
            problems=self._problems(),
            energy=self._metering.row,
            policy=self._policies.document(self._clock.unix()),
        )
        return document | {
            "learning": None if self._learner is None else self._learner.document(),
            "sessions": None if self._sessions is None else sessions_document(self._sessions.counts(), self._gate),
        }

    def _region_state(self) -> bytes:
        kubernetes = self._settings.kubernetes
        page = state_page(
            self._store,
            pool=None if kubernetes is None else str(kubernetes.pool),
            now_s=self._clock.monotonic(),
            now_unix_s=self._clock.unix(),
            stale_after_s=self._settings.director.metrics_stale_after_s,
        )
        return encode(page)

    def _demand_page(self) -> bytes:
        kubernetes = self._settings.kubernetes
        page = demand_page(
            self._demand,
            self._director.held.held_by(self._demand.name),
            endpoint_lines(
                self._store.states(), self._clock.monotonic(), self._settings.director.metrics_stale_after_s
            ),
            pool=None if kubernetes is None else PoolName(kubernetes.pool.namespace, kubernetes.pool.name),
            instance=platform.node(),
            now_unix_s=self._clock.unix(),
            started_unix_s=self._started_unix_s,
        )
        return encode_demand(page)

    def _problems(self) -> list[str]:
        signals = self._signals.problems.items()
        gate = () if self._gate.problem is None else (self._gate.problem,)
        signal_problems = (f"carbon signal of region {name}: {why}" for name, why in signals)
        quality = () if self._quality_problem is None else (self._quality_problem,)
        return [*self._store.world.problems, *signal_problems, *gate, *quality]
