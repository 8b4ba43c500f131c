"""Plans beside the endpoints: against equation 8 written out pair by pair, and what must not become a plan."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.cache.action import KvAction
from heliotrope.cache.costs import pressure, recompute, transfer, worthwhile
from heliotrope.cache.links import Links, Place, Tier, link_class
from heliotrope.cache.plans import LEAST_TOKENS, MAX_OWNERS, MAX_PLANS, CacheView, kv_pool, own_actions, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import load

SMALL, LARGE = load("llama-3.1-8b-h100"), load("llama-3.1-70b-a100-80gb-tp4")
OTHER = replace(SMALL, model="another")
LINKS = Links()
ALL = KvRules()


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """Machine code is made before the first test's time counts."""
    plans_of(view([8000.0, 0.0]), kv_pool([LARGE, LARGE], [Place("n"), Place("n")], [True, True], LINKS), 9000.0, ALL)


def view(cached: list[float], offloaded: list[float] | None = None, **columns: list[float] | float) -> CacheView:
    n = len(cached)

    def column(name: str, default: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(np.broadcast_to(np.asarray(columns.get(name, default), dtype=np.float64), (n,)))

    held = np.array(cached, dtype=np.float64)
    return CacheView(
        cached_tokens=held,
        offloaded_tokens=held if offloaded is None else np.array(offloaded, dtype=np.float64),
        running=column("running", 0.0),
        waiting=column("waiting", 0.0),
        waiting_tokens=column("waiting_tokens", 0.0),
        kv_tokens=column("kv_tokens", 0.0),
        kv_capacity_tokens=column("kv_capacity_tokens", 400_000.0),
    )


BUSY_OWNER = {"running": [32.0, 1.0]}
TWO = [Place("n1", None, "r"), Place("n2", None, "r")]


def test_an_idle_endpoint_pulls_from_a_busy_owner() -> None:
    pool = kv_pool([LARGE, LARGE], TWO, [True, True], LINKS)
    plans = plans_of(view([8000.0, 0.0], **BUSY_OWNER), pool, 9000.0, ALL)
    assert (plans.rows.tolist(), plans.actions, plans.sources) == ([1], (KvAction.PEER_TRANSFER,), (0,))
    kind = link_class(*TWO)
    assert kind is not None
    moved = transfer(8000.0, LARGE.kv_bytes_per_token, LINKS.between[kind])
    assert plans.transfer_seconds[0] == pytest.approx(moved.seconds)
    assert plans.transfer_joules[0] == pytest.approx(moved.joules)
    assert plans.cached_tokens[0] == 8000.0
    assert plans.saved_joules[0] == pytest.approx(recompute(LARGE, 0.0, 8000.0).joules - moved.joules)


def test_nothing_is_pulled_where_the_owner_is_as_good() -> None:
    pool = kv_pool([LARGE, LARGE], TWO, [True, True], LINKS)
    assert len(plans_of(view([8000.0, 0.0], running=3.0), pool, 9000.0, ALL)) == 0
    elsewhere = kv_pool([LARGE, LARGE], [Place("n", None, "r"), Place("n", None, "s")], [True, True], LINKS)
    assert len(plans_of(view([8000.0, 0.0], running=3.0), elsewhere, 9000.0, ALL)) == 1


@pytest.mark.parametrize(
    ("engines", "places", "pulls", "why"),
    [
        ([LARGE, None], TWO, [True, True], "no step model, nobody knows what is saved"),
        ([SMALL, OTHER], TWO, [True, True], "blocks of another model"),
        ([SMALL, replace(SMALL, kv_bytes_per_token=65536)], TWO, [True, True], "blocks of another precision"),
        ([LARGE, LARGE], TWO, [True, False], "the receiver takes no part"),
        ([LARGE, LARGE], TWO, [False, True], "the owner takes no part"),
        ([LARGE, LARGE], [Place(), Place()], [True, True], "nobody knows where they are"),
        ([LARGE, LARGE], [Place("n1", "k", None), Place("n2", "k", "r")], [True, True], "nor by a rack alone"),
    ],
)
def test_what_cannot_be_pulled(
    engines: list[EngineModel | None], places: list[Place], pulls: list[bool], why: str
) -> None:
    pool = kv_pool(engines, places, pulls, LINKS)
    assert len(plans_of(view([8000.0, 0.0], **BUSY_OWNER), pool, 9000.0, ALL)) == 0, why


def test_unknown_beliefs_and_loads_make_no_plan_that_they_would_decide() -> None:
    pool = kv_pool([LARGE, LARGE], TWO, [True, True], LINKS)
    nan = float("nan")
    assert len(plans_of(view([nan, 0.0], **BUSY_OWNER), pool, 9000.0, ALL)) == 0
    assert len(plans_of(view([8000.0, nan], **BUSY_OWNER), pool, 9000.0, ALL)) == 0
    # Whether the owner is as good is unknown: the plan stays and the estimate decides.
    assert len(plans_of(view([8000.0, 0.0], running=[nan, 1.0]), pool, 9000.0, ALL)) == 1
    # With a price of pressure, unknown pressure decides against the transfer; without one it costs nothing.
    unknown = view([8000.0, 0.0], running=[32.0, 1.0], kv_tokens=nan)
    assert len(plans_of(unknown, pool, 9000.0, replace(ALL, memory_pressure_joules=1.0))) == 0
    assert len(plans_of(unknown, pool, 9000.0, ALL)) == 1


def test_blocks_come_up_from_a_lower_tier() -> None:
    pool = kv_pool([LARGE], [Place()], [False], LINKS, [Tier.CPU])
    plans = plans_of(view([1000.0], [9000.0]), pool, 10_000.0, ALL)
    assert (plans.actions, plans.sources) == ((KvAction.OFFLOAD_RELOAD,), (None,))
    moved = transfer(8000.0, LARGE.kv_bytes_per_token, LINKS.tiers[Tier.CPU])
    assert plans.transfer_joules[0] == pytest.approx(moved.joules)
    assert plans.saved_joules[0] == pytest.approx(recompute(LARGE, 1000.0, 9000.0).joules - moved.joules)
    assert len(plans_of(view([1000.0], [9000.0]), kv_pool([LARGE], [Place()], [False], LINKS), 10_000.0, ALL)) == 0


def test_the_better_of_a_pull_and_a_reload_is_kept() -> None:
    pool = kv_pool([LARGE, LARGE], TWO, [True, True], LINKS, [None, Tier.CPU])
    longer = plans_of(view([8000.0, 0.0], [8000.0, 4000.0], **BUSY_OWNER), pool, 9000.0, ALL)
    assert longer.actions == (KvAction.PEER_TRANSFER,)
    nearer = plans_of(view([8000.0, 0.0], [8000.0, 8000.0], **BUSY_OWNER), pool, 9000.0, ALL)
    assert nearer.actions == (KvAction.OFFLOAD_RELOAD,)


@pytest.mark.parametrize("action", [KvAction.PEER_TRANSFER, KvAction.OFFLOAD_RELOAD])
def test_what_the_policy_forbids_is_no_plan(action: KvAction) -> None:
    pool = kv_pool([LARGE, LARGE], TWO, [True, True], LINKS, [None, Tier.CPU])
    beliefs = view([8000.0, 0.0], [8000.0, 8000.0], **BUSY_OWNER)
    rules = KvRules(allowed=frozenset(KvAction) - {action})
    assert action not in plans_of(beliefs, pool, 9000.0, rules).actions


def test_a_pool_of_any_size_gets_a_bounded_number_of_plans() -> None:
    n = 64
    places = [Place(f"n{i}", None, "r") for i in range(n)]
    pool = kv_pool([LARGE] * n, places, [True] * n, LINKS)
    cached = [8000.0 - i if i < 2 * MAX_OWNERS else 0.0 for i in range(n)]
    plans = plans_of(view(cached, running=[64.0 - i for i in range(n)]), pool, 9000.0, ALL)
    assert len(plans) == MAX_PLANS
    assert len(set(plans.rows.tolist())) == MAX_PLANS
    assert {s for s in plans.sources if s is not None} <= set(range(MAX_OWNERS))
    assert (np.diff(plans.saved_joules) <= 0.0).all()


def test_local_hits_need_a_session() -> None:
    cached = np.array([0.0, 512.0, 1024.0, float("nan")])
    assert own_actions(cached, 1, ALL)[0] == (
        KvAction.RECOMPUTE,
        KvAction.LOCAL_HIT,
        KvAction.ROUTE_TO_OWNER,
        KvAction.RECOMPUTE,
    )
    assert own_actions(cached, 0, ALL)[0][0] is KvAction.RECOMPUTE
    assert KvAction.LOCAL_HIT not in own_actions(cached, None, ALL)[0]


def test_a_cache_that_may_not_be_used_is_not_counted_on() -> None:
    cached = np.array([256.0, 512.0])
    actions, tokens = own_actions(cached, 0, KvRules(allowed=frozenset({KvAction.LOCAL_HIT, KvAction.RECOMPUTE})))
    assert actions == (KvAction.LOCAL_HIT, KvAction.RECOMPUTE)
    assert tokens.tolist() == [256.0, 0.0]


endpoint = st.tuples(
    st.sampled_from([SMALL, LARGE, OTHER, None]),
    st.builds(
        Place,
        st.sampled_from([None, "n1", "n2"]),
        st.sampled_from([None, "k1"]),
        st.sampled_from([None, "r", "s"]),
    ),
    st.booleans(),
    st.sampled_from([None, Tier.CPU, Tier.DISK]),
    st.integers(0, 20_000),
    st.integers(0, 20_000),
    st.integers(0, 3),
    st.integers(0, 300_000),
)


@settings(deadline=None, max_examples=150)
@given(st.lists(endpoint, min_size=1, max_size=MAX_OWNERS), st.sampled_from([0.0, 5.0, 500.0]))
def test_every_plan_is_the_best_that_equation_8_allows(rows: list[tuple], weight: float) -> None:  # type: ignore[type-arg]
    engines, places, pulls, tiers, cached, more, running, kv_tokens = (
        list(column) for column in zip(*rows, strict=True)
    )
    prompt = 25_000.0
    pool = kv_pool(engines, places, pulls, LINKS, tiers)
    offloaded = [c + m for c, m in zip(cached, more, strict=True)]
    beliefs = view(cached, offloaded, running=running, kv_tokens=kv_tokens)
    plans = plans_of(beliefs, pool, prompt, KvRules(memory_pressure_joules=weight))
    expected: dict[int, float] = {}
    for i, engine in enumerate(engines):
        if engine is None:
            continue
        full = float(pressure(float(kv_tokens[i]), prompt, 400_000.0))
        ways = []
        if tiers[i] is not None:
            ways.append((offloaded[i], LINKS.tiers[tiers[i]]))
        for j, source in enumerate(engines):
            kind = link_class(places[i], places[j])
            if j == i or source is None or kind is None or not (pulls[i] and pulls[j]):
                continue
            same_region = places[i].region is not None and places[i].region == places[j].region
            at_least_as_good = running[j] <= running[i] and kv_tokens[j] <= kv_tokens[i]
            if source.model != engine.model or (source is engine and same_region and at_least_as_good):
                continue
            ways.append((cached[j], LINKS.between[kind]))
        for held, link in ways:
            moved = transfer(held - cached[i], engine.kv_bytes_per_token, link)
            computed = recompute(engine, cached[i], held)
            if held - cached[i] >= LEAST_TOKENS and worthwhile(moved, computed, weight, full):
                saved = computed.joules - moved.joules - weight * full
                expected[i] = max(expected.get(i, 0.0), saved)
    found = dict(zip(plans.rows.tolist(), plans.saved_joules.tolist(), strict=True))
    assert found == pytest.approx(expected)
