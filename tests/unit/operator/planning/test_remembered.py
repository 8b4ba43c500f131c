"""Prometheus' memory of the pickers' counters, asked over HTTP: seeds, fallback, and what stays unknown."""

import random
import re
from collections.abc import Iterator

import pytest
from tests.support.demand_memory import DAY_BINS, Memory
from tests.support.upstream import Upstream, upstream
from tests.unit.operator.planning.fleet import BROWN, GREEN, MODEL, POOL, Fleet

from heliotrope.errors import BadAnswerError, CredentialsMissingError, NoDataError
from heliotrope.providers.http import Limits, Network
from heliotrope.providers.prometheus_api import PrometheusApi
from heliotrope.scale.demand import Bin
from heliotrope_operator.kube import Document
from heliotrope_operator.planning.controller import ALLOCATION, demand_finding
from heliotrope_operator.planning.observed import ModelRates
from heliotrope_operator.planning.prometheus import TOTALS, DemandQueries, access_to
from heliotrope_operator.planning.remembered import Remembered
from heliotrope_operator.planning.watch import Observed
from heliotrope_operator.secrets import OwnSecrets

WIDTH_S = 300.0


@pytest.fixture
def memory() -> Memory:
    return Memory(MODEL)


@pytest.fixture
def server(memory: Memory) -> Iterator[Upstream]:
    with upstream(memory) as running:
        yield running


@pytest.fixture
def queries(server: Upstream) -> DemandQueries:
    return DemandQueries(PrometheusApi(Network(Limits(total_s=5.0)), server.url))


def remembered(fleet: Fleet, queries: DemandQueries) -> Remembered:
    """Put in beside the fleet's own watch, as the part does."""
    found = Remembered(
        fleet.cluster,
        fleet.histories,
        queries,
        silent=lambda pool: fleet.watch.silent(pool),
        clock=fleet.clock,
        unix_clock=fleet.clock,
        rng=random.Random(1),
    )
    fleet.watch._remembered = lambda pool: (found.told(pool), found.problem(pool))
    return found


async def test_the_past_is_bins_of_five_minutes_up_to_the_last_whole_one(
    queries: DemandQueries, server: Upstream
) -> None:
    now_s = 1_000 * DAY_BINS * WIDTH_S + 17.0
    past = await queries.past("ns", "p", [MODEL, "other"], now_s)
    assert past.keys() == {MODEL}
    bins = past[MODEL]
    newest = int(now_s // WIDTH_S) - 1
    assert max(bins) == newest
    assert len(bins) == DAY_BINS  # the oldest lies beside a gap
    assert bins[newest] == Bin(300.0, 600.0, 300_000.0, 120_000.0)
    asked = server.asked[0]
    assert asked.one("step") == "300.000"
    assert float(asked.one("end") or "") == (newest + 1) * WIDTH_S
    assert float(asked.one("start") or "") == (newest + 2 - 15 * DAY_BINS) * WIDTH_S
    query = asked.one("query") or ""
    assert 'increase(heliotrope_demand_requests_total{namespace="ns",service="p"}[300s])' in query
    assert 'increase(heliotrope_demand_requests_total{namespace="ns",job="p"}[300s])' in query
    assert 'min_over_time(up{namespace="ns",service="p"}[300s])' in query


async def test_a_gap_stays_unknown_with_its_neighbours(queries: DemandQueries, memory: Memory) -> None:
    now_s = 1_000 * DAY_BINS * WIDTH_S
    newest = int(now_s // WIDTH_S) - 1
    memory.gaps = {newest - 10}
    bins = (await queries.past("ns", "p", [MODEL], now_s))[MODEL]
    assert not {newest - 9, newest - 10, newest - 11} & bins.keys()
    assert {newest - 8, newest - 12, newest} <= bins.keys()


async def test_an_answer_in_part_is_none(queries: DemandQueries, memory: Memory) -> None:
    memory.warnings = ["a store did not answer"]
    with pytest.raises(BadAnswerError, match="partial: a store"):
        await queries.past("ns", "p", [MODEL], 1e9)
    with pytest.raises(BadAnswerError, match="partial: a store"):
        await queries.now("ns", "p")


async def test_rates_of_now(queries: DemandQueries, memory: Memory) -> None:
    memory.held = "3"
    told = await queries.now("ns", "p")
    assert told.models == {MODEL: ModelRates(2.0, 1_000.0, 400.0, 3.0)}
    assert told.held == {MODEL: 3.0}


@pytest.mark.parametrize("up", [[], ["0"], ["NaN"]])
async def test_pickers_that_are_not_scraped_are_unknown(queries: DemandQueries, memory: Memory, up: list[str]) -> None:
    memory.up = up
    with pytest.raises(NoDataError, match=r"not every picker of Service ns/p was scraped"):
        await queries.now("ns", "p")


@pytest.mark.parametrize("rate", ["NaN", "+Inf", "-1"])
async def test_a_rate_that_is_no_number_is_unknown(queries: DemandQueries, memory: Memory, rate: str) -> None:
    memory.rate = rate
    with pytest.raises(BadAnswerError, match="no number"):
        await queries.now("ns", "p")


async def test_a_fleet_begins_with_the_past_and_asks_for_it_once(queries: DemandQueries, server: Upstream) -> None:
    fleet = Fleet()
    found = remembered(fleet, queries)
    await found.round()
    await found.round()
    history = fleet.histories.of(POOL, MODEL)
    assert history is not None
    assert len(history.bins) >= DAY_BINS - 1
    mix = history.mix()
    assert mix is not None
    assert (mix.prompt_tokens, mix.output_tokens) == (pytest.approx(500.0), pytest.approx(200.0))
    assert found.counts == {("past", "success"): 1}
    assert sum(asked.path.endswith("query_range") for asked in server.asked) == len(TOTALS)
    assert fleet.histories.forecast(POOL, MODEL, fleet.now_s, 300.0, 2) is None, "the past says nothing of now"


async def test_what_was_seen_for_longer_counts(queries: DemandQueries) -> None:
    fleet = Fleet()
    await fleet.run(900.0, 7.0)
    known = fleet.histories.of(POOL, MODEL)
    assert known is not None
    whole = [number for number, each in known.bins.items() if each.seconds >= 299.0]
    part = min(known.bins)
    await remembered(fleet, queries).round()
    merged = fleet.histories.of(POOL, MODEL)
    assert merged is not None
    assert whole
    assert all(merged.bins[number].requests / 300.0 == pytest.approx(7.0, rel=0.05) for number in whole)
    assert merged.bins[part].seconds == 300.0


async def test_prometheus_tells_while_pickers_are_silent(queries: DemandQueries, memory: Memory) -> None:
    fleet = Fleet(replicas=1)
    fleet.starved = True
    found = remembered(fleet, queries)
    memory.rate = 60.0
    for _ in range(8):
        await fleet.run(5.0, 60.0)
        await found.round()
    observed = fleet.watch.of(POOL)
    assert observed.by_prometheus
    assert observed.models is not None
    assert observed.models[MODEL].requests_per_second == 60.0
    await fleet.controller.reconcile(ALLOCATION)
    facts, _ = fleet.controller.groups["ns/pool/m"]
    assert facts.demand is not None
    assert (fleet.wanted(GREEN) or 0) + (fleet.wanted(BROWN) or 0) > 2
    assert found.counts["now", "success"] > 0

    memory.rate = 0.0
    for _ in range(200):
        await fleet.run(5.0, 0.0)
        await found.round()
    fleet.scale(GREEN, 4)
    await fleet.controller.reconcile(ALLOCATION)
    assert (fleet.wanted(GREEN), fleet.reason(GREEN)) == (4, "MetricsUnknown"), "nobody measures the engines"

    fleet.starved = False
    await fleet.run(10.0, 1.0)
    assert not fleet.watch.of(POOL).by_prometheus


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_an_outage_of_both_holds_with_back_off(
    queries: DemandQueries, memory: Memory, server: Upstream, status: int
) -> None:
    fleet = Fleet(replicas=3)
    fleet.starved = True
    found = remembered(fleet, queries)
    memory.status = status
    for _ in range(60):
        await fleet.run(10.0, 2.0)
        await found.round()
        await fleet.controller.reconcile(ALLOCATION)
    assert (fleet.wanted(GREEN), fleet.reason(GREEN)) == (3, "DemandUnknown")
    assert len(server.asked) < 40
    problem = fleet.watch.of(POOL).problem
    assert problem is not None
    assert re.search(r"a: no answer; Prometheus: .*", problem)
    assert sum(found.counts.values()) == sum(n for (_, outcome), n in found.counts.items() if outcome != "success")


async def test_an_old_answer_counts_no_longer(queries: DemandQueries, memory: Memory) -> None:
    fleet = Fleet()
    fleet.starved = True
    found = remembered(fleet, queries)
    await fleet.run(5.0, 2.0)
    await found.round()
    assert found.told(POOL) is None, "a picker that has just started tells in its second round"
    await found.round()
    assert found.told(POOL) is not None
    memory.status = 500
    await fleet.run(100.0, 2.0)
    await found.round()
    assert found.told(POOL) is None
    assert fleet.watch.of(POOL).models is None


async def test_held_requests_that_only_prometheus_sees_wake(queries: DemandQueries, memory: Memory) -> None:
    fleet = Fleet(replicas=0, actuation="Scale", scaleToZero=True)
    fleet.starved = True
    found = remembered(fleet, queries)
    memory.rate, memory.held = 0.0, "2"
    await fleet.run(5.0, 0.0)
    await found.round()
    await found.round()
    await fleet.run(5.0, 0.0)
    assert fleet.woken == 1


async def test_a_pool_that_goes_is_forgotten(queries: DemandQueries) -> None:
    fleet = Fleet()
    found = remembered(fleet, queries)
    await found.round()
    fleet.cluster.forget(next(iter(fleet.cluster.policies)))
    await found.round()
    assert found._known == {}


def test_the_policy_says_who_tells() -> None:
    observed = Observed({}, {}, {}, "a: no answer", by_prometheus=True)
    finding = demand_finding({"ns/pool/m": True}, observed)
    assert finding.reason == "DemandFromPrometheus"
    assert "by the pickers' counters; nothing is taken away, as no engine is among what it scrapes" in finding.message
    assert finding.message.endswith("as a: no answer")


class Kubes:
    """Holds one Secret."""

    def __init__(self, data: dict[str, str]) -> None:
        self._data = data

    async def get(self, path: str) -> Document:
        assert path == "/api/v1/namespaces/system/secrets/prom"
        return {"data": self._data}


TOKEN = "aHVudGVyMg=="


@pytest.mark.parametrize(
    ("data", "authorization"),
    [
        ({"token": TOKEN}, "Bearer hunter2"),
        ({"ca.crt": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"}, None),
    ],
)
async def test_the_secret_has_a_token_or_an_authority(data: dict[str, str], authorization: str | None) -> None:
    access = await access_to(OwnSecrets(Kubes(data), "system"), "system", "prom")()  # type: ignore[arg-type]
    assert access.authorization == authorization
    assert (access.ca_pem is not None) == ("ca.crt" in data)


async def test_a_secret_with_neither_is_refused() -> None:
    read = access_to(OwnSecrets(Kubes({"x": TOKEN}), "system"), "system", "prom")  # type: ignore[arg-type]
    with pytest.raises(CredentialsMissingError, match="system/prom, key token"):
        await read()
