"""A region scheduler without its ports: real store, windows, schedulers and queues; tests hold clocks and states."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from prometheus_client import CollectorRegistry
from tests.unit.epp.region.builders import NOW_UNIX_S, Client, load, page, tier

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile
from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.sessions import Sessions
from heliotrope.carbon.series import Series
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.place.assignment import Scheduler
from heliotrope.place.schedulers.greedy import greedy
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.resources import Resources as Published
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import resolve
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.region.batch import placement_spec
from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.collector import Collector
from heliotrope_epp.region.deadlines import DeadlineQueue
from heliotrope_epp.region.decided import Resources
from heliotrope_epp.region.director import RegionDirector
from heliotrope_epp.region.metrics import RegionCollector, RegionMetrics
from heliotrope_epp.region.placer import Placer
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.reading import Reader
from heliotrope_epp.region.recorder import WindowLog
from heliotrope_epp.region.solver import SolverProcess
from heliotrope_epp.transport.interface import Cause, Report

PLENTY = {"engines": 4, "running": 2.0}


def chat(text: str = "how green is it " * 100, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "llama", "messages": messages, "max_tokens": 64, **fields}).encode()


def policy(**placement: Any) -> CarbonPolicy:
    spec = placement.pop("spec", {})
    return CarbonPolicy.model_validate(
        {
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {
                "targetRefs": [{"name": "pool"}],
                "slo": {"ttft": "2s", "tpot": "100ms"},
                "enforcement": "Enforce",
                "placement": {"window": "10ms", **placement},
                **spec,
            },
        }
    )


def profile(name: str, **spec: Any) -> RegionProfile:
    plain = {"zone": "Z", "source": {"static": {"intensityGramsPerKwh": "1"}}}
    return RegionProfile.model_validate({"metadata": {"name": name}, "spec": plain | spec})


def report(status: int | None = 200, *, cause: Cause = Cause.COMPLETE, output: int = 20) -> Report:
    tail = json.dumps({"usage": {"prompt_tokens": 400, "completion_tokens": output}}).encode()
    return Report(status, {}, None, 1, 10, 0.0, 0.0, 0.1, 0.2, 0.3, tail, cause)


class Bench:
    """Times are held; a window closes when the test says so, or by its number of requests."""

    def __init__(
        self,
        intensities: Mapping[str, float],
        *,
        carbon_policy: CarbonPolicy | None = None,
        profiles: Sequence[RegionProfile] | None = None,
        extra: str = "",
        gate: Gate = OFF,
        scheduler: Scheduler = greedy,
        max_inflight: int = 1_000,
    ) -> None:
        self.now_s = 1_000.0
        self._made = 0
        self.clock = Clock(monotonic=lambda: self.now_s, unix=lambda: NOW_UNIX_S + self.now_s - 1_000.0)
        self.tier = tier(*intensities, extra=extra)
        self.store = EndpointStore()
        self.provisioner = Provisioner(self.tier, clock=self.clock)
        self.registry = CollectorRegistry()
        self.sessions = SessionTracker(Sessions(100), SessionKeys(), self._rules, self.clock)
        self.beliefs = Beliefs(self.tier.schedulers)
        self.log = WindowLog(50)
        self.solver = SolverProcess(clock=self.clock.monotonic)
        self.apply(carbon_policy, profiles or [profile(name) for name in intensities])
        self.intensities(intensities)
        lengths = OutputLengths()
        self.director = RegionDirector(
            header=self.tier.region_header,
            reader=Reader(self.store, lengths, self.sessions, self.beliefs.prefixes, self.clock),
            lengths=lengths,
            sessions=self.sessions,
            provisioner=self.provisioner,
            beliefs=self.beliefs,
            log=self.log,
            metrics=RegionMetrics(self.registry),
            nearest=lambda: next(iter(self.provisioner.up(self.now_s)), None),
            clock=self.clock,
            max_inflight=max_inflight,
        )
        self.placer = Placer(
            provisioner=self.provisioner,
            resources=self._resources,
            beliefs=self.beliefs,
            solver=self.solver,
            schedulers={"Greedy": scheduler},
            gate=gate,
            peers=self.tier.schedulers - 1,
            settled=self.director,
            clock=self.clock,
        )
        self.collector = Collector(lambda: self._resources().spec, self.placer.place, self.clock.monotonic)
        self.deadlines = DeadlineQueue(
            self.tier.deadlines,
            self.tier.when_full,
            names=self.tier.names,
            views=self.store.regions,
            release=self.collector.add,
            monotonic=self.clock.monotonic,
            unix=self.clock.unix,
        )
        self.director.wire(self.collector, self.deadlines)
        self.registry.register(
            RegionCollector(
                provisioner=self.provisioner,
                windows=self.collector,
                placer=self.placer,
                deadlines=self.deadlines,
                solver=self.solver,
                beliefs=self.beliefs,
                clock=self.clock.monotonic,
            )
        )
        for name in intensities:
            self.state(name, **PLENTY)

    def apply(self, carbon_policy: CarbonPolicy | None, profiles: Sequence[RegionProfile]) -> None:
        policies = () if carbon_policy is None else (carbon_policy,)
        self.store.apply(resolve(Published(policies=policies, regions=tuple(profiles)), None, {}))

    def intensities(self, values: Mapping[str, float], forecasts: Mapping[str, Series] | None = None) -> None:
        signals = {}
        for name, value in values.items():
            reading = Reading(value, self.clock.unix(), "test", SignalType.AVERAGE, EmissionFactor.LIFECYCLE)
            signals[name] = CarbonSignal(reading, 1e6, (forecasts or {}).get(name))
        self.store.set_signals(signals)

    def state(self, name: str, **values: Any) -> None:
        """A new state of a region, just polled."""
        feed = self.provisioner.feeds[name]
        feed.accept(page(load(name, **values), time_unix_s=self.clock.unix()), self.now_s, self.clock.unix())

    def later(self, seconds: float, *alive: str, **values: Any) -> None:
        """Time passes; those alive are polled again."""
        self.now_s += seconds
        for name in alive:
            self.state(name, **(PLENTY | values))

    def send(self, *clients: Client) -> list[Client]:
        """One window of these."""
        for client in clients:
            self.director.decide(client)
        self.collector.close()
        return list(clients)

    def places(self, count: int, **headers: str) -> list[str | None]:
        """Where a window of so many requests goes."""
        return [c.sent.get("x-heliotrope-region") for c in self.send(*self.clients(count, **headers))]

    def clients(self, count: int, **headers: str) -> list[Client]:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self._made += count
        # No two prompts begin alike: nothing of them is cached anywhere.
        return [Client(chat(f"{self._made - i} " + "green " * 200), given) for i in range(count)]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

    def _rules(self) -> Any:
        found = self.store.policy()
        return None if found is None else found.sessions

    def _resources(self) -> Resources:
        world = self.store.world
        return Resources(world.policy, placement_spec(world.policy_resource), self.store.regions(), world.regions)


def turned(client: Client, bench: Bench, **fields: Any) -> None:
    """The request's answer ends well."""
    bench.director.done(client.ctx, replace(report(**fields), tail=report().tail))
