"""A cluster whose endpoint picker is another's: demand is what Prometheus scrapes of engines, and replicas go, too."""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.demand_memory import Engine, Memory
from tests.support.upstream import Upstream, upstream
from tests.unit.operator.planning.fleet import BROWN, GREEN, MODEL, POOL, Fleet

from heliotrope.providers.http import Limits, Network
from heliotrope.providers.prometheus_api import PrometheusApi
from heliotrope_operator.planning.controller import ALLOCATION, demand_finding
from heliotrope_operator.planning.prometheus import DemandQueries
from heliotrope_operator.planning.remembered import ROUND_S, Remembered
from heliotrope_operator.planning.scraped import FIRST_TOKENS, WAITING


@pytest.fixture
def memory() -> Memory:
    found = Memory(MODEL)
    found.up = []  # nobody scrapes a picker of ours
    return found


@pytest.fixture
def server(memory: Memory) -> Iterator[Upstream]:
    with upstream(memory) as running:
        yield running


class Bench:
    """A fleet without a picker that answers, and a Prometheus that scrapes its engines."""

    def __init__(self, memory: Memory, server: Upstream, replicas: int = 3, **autoscaling: object) -> None:
        self.fleet = Fleet(replicas=replicas, **({"actuation": "Scale", "scaleDown": {"dwell": "60s"}} | autoscaling))
        self.fleet.starved = True
        self.memory = memory
        self.model = Engine()
        self.others: dict[str, Engine] = {}
        """Pods that are scraped otherwise."""
        self.unseen: set[str] = set()
        memory.clock = self.fleet.clock
        queries = DemandQueries(PrometheusApi(Network(Limits(total_s=5.0)), server.url))
        self.found = Remembered(
            self.fleet.cluster,
            self.fleet.histories,
            queries,
            silent=lambda pool: self.fleet.watch.silent(pool),
            clock=self.fleet.clock,
            unix_clock=self.fleet.clock,
            rng=random.Random(1),
        )
        self.fleet.watch._remembered = lambda pool: (self.found.told(pool), self.found.problem(pool))

    def pods(self) -> list[str]:
        keys = [key for name in (GREEN, BROWN) for key, _ in self.fleet.cluster.pods_of(self.fleet.key(name))]
        return [key.name for key in keys]

    async def run(self, seconds: float, requests_per_second: float) -> None:
        """So much is served by all engines together for a while; wanted replicas are made so."""
        for _ in range(int(seconds / ROUND_S)):
            pods = self.pods()
            each = replace(self.model, rate=requests_per_second / max(len(pods), 1))
            self.memory.engines = {pod: self.others.get(pod, each) for pod in pods if pod not in self.unseen}
            await self.fleet.run(ROUND_S, 0.0)
            await self.found.round()
            await self.fleet.controller.reconcile(ALLOCATION)
            for name in (GREEN, BROWN):
                wanted = self.fleet.wanted(name)
                if wanted is not None:
                    self.fleet.scale(name, wanted)

    @property
    def replicas(self) -> int:
        return sum(scale.wanted or 0 for scale in self.fleet.tables.scales.values())

    def condition(self) -> str:
        return demand_finding({f"ns/pool/{MODEL}": True}, self.fleet.watch.of(POOL)).message


async def test_replicas_go_step_by_step_to_the_last_one_and_come_back(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    await bench.run(1_800.0, 1.0)
    assert bench.replicas == 1
    observed = bench.fleet.watch.of(POOL)
    assert (observed.by_prometheus, observed.by_engines) == (True, True)
    entry = bench.fleet.tables.wanted.get(bench.fleet.key(GREEN))
    assert entry is not None
    assert "requests/s by Prometheus" in entry.message
    assert "by the requests that engines serve; the last replica of a model stays" in bench.condition()

    await bench.run(600.0, 60.0)
    assert bench.replicas > 1


async def test_without_traffic_the_last_replica_stays_even_where_none_would_do(
    memory: Memory, server: Upstream
) -> None:
    bench = Bench(memory, server, scaleToZero=True)
    await bench.run(3_600.0, 0.0)
    assert bench.replicas == 1


async def test_a_first_replica_is_not_started_by_what_nobody_knows(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server, replicas=0, scaleToZero=True)
    await bench.run(600.0, 0.0)
    assert bench.replicas == 0
    assert bench.fleet.reason(GREEN) == "DemandUnknown"
    assert "no engine of it is awake" in (bench.fleet.watch.of(POOL).problem or "")


@pytest.mark.parametrize("missing", ["unseen", "stale", "no queue", "no requests", "NaN"])
async def test_one_engine_that_is_not_measured_holds_all(memory: Memory, server: Upstream, missing: str) -> None:
    bench = Bench(memory, server)
    pod = f"{BROWN}-1"
    broken = {
        "stale": Engine(age_s=60.0),
        "no queue": Engine(without=(WAITING,)),
        "no requests": Engine(without=(FIRST_TOKENS,)),
        "NaN": Engine(waiting="NaN"),
    }
    if missing == "unseen":
        bench.unseen = {pod}
    else:
        bench.others = {pod: broken[missing]}
    await bench.run(1_200.0, 1.0)
    assert bench.replicas == 6
    assert bench.fleet.reason(GREEN) in ("DemandUnknown", "MetricsUnknown")
    assert pod in demand_finding({f"ns/pool/{MODEL}": False}, bench.fleet.watch.of(POOL)).message


async def test_a_replica_that_has_just_started_does_not_stop_others_from_being_added(
    memory: Memory, server: Upstream
) -> None:
    bench = Bench(memory, server, replicas=1)
    await bench.run(300.0, 1.0)
    assert bench.replicas == 1
    bench.fleet.scale(GREEN, 1)
    bench.fleet.scale(BROWN, 1)
    pods = bench.pods()
    await bench.run(45.0, 200.0)
    bench.others = {pod: Engine(rate=10.0, young_s=16.0) for pod in bench.pods() if pod not in pods}
    before = bench.replicas
    await bench.run(60.0, 200.0)
    assert bench.replicas > before


async def test_a_queue_at_one_engine_holds_all_and_is_told(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    bench.others = {f"{BROWN}-1": Engine(rate=0.1, waiting=3.0)}
    await bench.run(1_200.0, 1.0)
    assert bench.replicas >= 6
    assert {bench.fleet.reason(name) for name in (GREEN, BROWN)} & {"Unserved"}
    assert f"nothing is taken away of {MODEL}: 3.0 requests wait at {BROWN}-1" in bench.condition()

    bench.others = {}
    await bench.run(1_800.0, 1.0)
    assert bench.replicas == 1


async def test_an_outage_holds_and_what_was_wished_before_it_starts_anew(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    await bench.run(60.0, 1.0)
    before = bench.replicas
    memory.status = 503
    await bench.run(1_200.0, 1.0)
    assert bench.replicas == before > 1
    assert bench.fleet.reason(GREEN) == "DemandUnknown"
    memory.status = 200
    await bench.run(2_400.0, 1.0)
    assert bench.replicas == 1


async def test_nothing_goes_on_what_is_no_longer_fresh(memory: Memory, server: Upstream) -> None:
    """Prometheus answers, but its newest samples are those of before."""
    bench = Bench(memory, server)
    await bench.run(150.0, 1.0)
    before = bench.replicas
    bench.model = Engine(age_s=46.0)
    await bench.run(1_200.0, 1.0)
    assert bench.replicas == before > 1


async def test_an_answer_ends_with_the_freshness_of_its_oldest_engine(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    await bench.run(60.0, 1.0)
    assert bench.found.told(POOL) is not None
    bench.fleet.now_s += 39.0
    assert bench.found.told(POOL) is not None
    bench.fleet.now_s += 2.0
    assert bench.found.told(POOL) is None


async def test_a_clock_that_is_off_makes_nothing_fresh_or_stale(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    memory.clock = lambda: bench.fleet.now_s + 3_600.0
    await bench.run(1_800.0, 1.0)
    assert bench.replicas == 1


async def test_pickers_of_ours_that_prometheus_scrapes_count_before_engines(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    memory.up, memory.rate = ["1"], 2.0
    await bench.run(1_800.0, 1.0)
    observed = bench.fleet.watch.of(POOL)
    assert (observed.by_prometheus, observed.by_engines) == (True, False)
    assert observed.models is not None
    assert observed.models[MODEL].requests_per_second == 2.0
    assert bench.replicas == 1


async def test_engines_that_a_silent_picker_told_of_count_no_longer(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    bench.fleet.starved = False
    await bench.fleet.run(60.0, 1.0)
    assert bench.fleet.watch.of(POOL).engines
    bench.fleet.starved = True
    memory.up, memory.rate, bench.unseen = ["1"], 0.1, set(bench.pods())
    await bench.run(1_800.0, 0.1)
    assert bench.fleet.watch.of(POOL).engines == {}
    assert bench.replicas >= 6


async def test_what_engines_served_wakes_and_rests_nobody(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server)
    await bench.run(120.0, 1.0)
    demand = bench.fleet.tables.demand[POOL]
    assert (demand.requests_per_second, demand.engines) == (None, {})
    assert bench.fleet.tables.loads == {}


async def test_a_target_that_is_scraped_twice_is_asked_for_once(memory: Memory, server: Upstream) -> None:
    bench = Bench(memory, server, replicas=1)
    memory.doubled = [(pod, Engine(rate=30.0, labels={"job": "other"})) for pod in bench.pods()]
    await bench.run(120.0, 60.0)
    observed = bench.fleet.watch.of(POOL)
    assert observed.models is not None
    assert observed.models[MODEL].requests_per_second <= 61.0
