"""Prefill/decode pairs: what they cost, when they are made, and what they never change."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool, region
from tests.unit.core.decide.reference import prefill_of
from tests.unit.core.decide.test_kernel import COLUMNS, ENGINES, pools

from heliotrope.cache.costs import transfer
from heliotrope.cache.links import Link, LinkClass, Links, Place
from heliotrope.carbon.arms import Arm
from heliotrope.carbon.footprint import embodied_grams, hardware_cost
from heliotrope.carbon.signal import SignalType
from heliotrope.decide import phase_kernel
from heliotrope.decide.candidates import Candidates, RegionView
from heliotrope.decide.decision import Decision, Outcome, decide
from heliotrope.decide.estimate import estimate
from heliotrope.decide.holdout import Assignment
from heliotrope.decide.losses import Loss
from heliotrope.decide.phases import MAX_PAIRS, PairPool, compatible, pair_pool, with_pairs
from heliotrope.decide.policy import DecisionPolicy, PowerLimit
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.standing import Standing
from heliotrope.engine.model import EngineModel
from heliotrope.units import grams_co2e

LONG = replace(REQUEST, prompt_tokens=8_000)
LINK = Link(40e9, 1e-3, 7e-11, 7e-11, 7e-11)


def links(link: Link = LINK) -> Links:
    return Links(between=dict.fromkeys(LinkClass, link))


def prefillers(regions: Sequence[str | None], **columns: Sequence[float] | float) -> Candidates:
    made = pool(regions, THREE, **columns)  # type: ignore[arg-type]
    return replace(made, endpoints=tuple(f"p{i}" for i in range(len(regions))))


def pairs_of(
    decode: Candidates,
    prefill: Candidates,
    link: Link = LINK,
    engines: tuple[EngineModel, EngineModel] = (ENGINE, ENGINE),
) -> PairPool:
    def described(candidates: Candidates, engine: EngineModel) -> list[tuple[str, EngineModel | None, Place]]:
        return [(name, engine, Place(name, None, candidates.regions[i])) for i, name in enumerate(candidates.endpoints)]

    return pair_pool(described(decode, engines[0]), described(prefill, engines[1]), links(link))


def paired(
    decode: Candidates,
    prefill: Candidates,
    *,
    request: RequestProfile = LONG,
    policy: DecisionPolicy = POLICY,
    link: Link = LINK,
    engines: tuple[EngineModel, EngineModel] = (ENGINE, ENGINE),
    standing: Standing = Standing(),  # noqa: B008 - frozen
    prefill_standing: Standing = Standing(),  # noqa: B008 - frozen
) -> Candidates:
    return with_pairs(
        decode,
        prefill,
        pairs_of(decode, prefill, link, engines),
        request,
        policy,
        NOW,
        standing=standing,
        prefill_standing=prefill_standing,
    )


def busy() -> Candidates:
    """One decode endpoint with a queue, in the dirtiest region."""
    return pool(["c"], THREE, running=[28.0], waiting=[4.0], waiting_tokens=[20_000.0], prefill_duty=[0.5])


def idle(where: Sequence[str | None] = ("c",)) -> Candidates:
    return prefillers(where, running=0.0, prefill_duty=0.0)


@given(pools(), st.integers(1, 20_000), st.floats(0.0, 4_000.0))
@settings(max_examples=100, deadline=None)
def test_prefills_agree_with_the_formulas(
    asked: tuple[Candidates, Sequence[EngineModel | None]], prompt_tokens: int, output_tokens: float
) -> None:
    candidates, engines = asked
    request = RequestProfile("r", "m", prompt_tokens, output_tokens, streaming=True)
    found = np.empty((phase_kernel.LINES, len(candidates)))
    phase_kernel.prefill_alone(
        candidates.engine_rows,
        *(getattr(candidates, name) for name in COLUMNS),
        candidates.step_prefills,
        float(prompt_tokens),
        output_tokens,
        found,
    )
    for i, engine in enumerate(engines):
        with np.errstate(all="ignore"):
            expected = None if engine is None else prefill_of(engine, i, request, candidates)
        if expected is None:
            assert np.isnan(found[: phase_kernel.WEIGHT, i]).all()
        else:
            for name, value in expected.items():
                line = found[getattr(phase_kernel, name), i]
                np.testing.assert_allclose(line, value, rtol=1e-9, atol=1e-9, err_msg=name)


def test_a_pair_is_the_sum_of_its_sides() -> None:
    decode, prefill = busy(), idle(["a"])
    policy = replace(POLICY, include_embodied=True)
    wider = paired(decode, prefill, policy=policy)
    assert wider.endpoints == ("e0", "e0")
    assert (wider.endpoint_count, wider.aggregated_count) == (1, 1)
    assert [wider.prefill_endpoint(i) for i in (0, 1)] == ["e0", "p0"]
    assert [wider.prefill_region(i) for i in (0, 1)] == ["c", "a"]
    e = estimate(LONG, wider, policy, NOW)
    moved = transfer(8_000.0, float(ENGINE.kv_bytes_per_token), LINK)
    rest = estimate(LONG, replace(decode, cached_tokens=np.array([7_999.0])), policy, NOW)
    expected = prefill_of(ENGINE, 0, LONG, prefill)
    assert expected is not None
    ttft, joules, occupied = expected["TTFT"], expected["JOULES"], expected["BUSY_SECONDS"]
    incremental = expected["INCREMENTAL_JOULES"]
    at_decoder = prefill_of(ENGINE, 0, LONG, decode)
    assert at_decoder is not None
    # The queue at the decoder takes longer than the prefill elsewhere.
    assert at_decoder["BACKLOG"] > ttft + moved.seconds
    assert e.ttft_seconds[1] == pytest.approx(rest.ttft_seconds[0])
    assert e.tpot_seconds[1] == e.tpot_seconds[0]
    assert e.energy_joules[1] == pytest.approx(rest.energy_joules[0] + moved.joules + joules)
    assert e.incremental_joules[1] == pytest.approx(rest.incremental_joules[0] + moved.joules + incremental)
    assert e.attributed_joules[1] == pytest.approx(rest.attributed_joules[0] + moved.joules + joules)
    absolute = np.hypot(expected["SPREAD"], rest.ttft_relative_error[0] * rest.ttft_seconds[0])
    assert e.ttft_relative_error[1] == pytest.approx(absolute / e.ttft_seconds[1])
    sent = moved.sender_joules + 0.5 * moved.network_joules
    received = moved.receiver_joules + 0.5 * moved.network_joules
    assert e.prefiller_joules is not None
    assert e.prefiller_joules.tolist() == [0.0, pytest.approx(joules + sent)]
    reserved = (e.service_seconds[1] - ttft) / e.batch[1]
    lifetime = 4 * 365 * 86400.0
    grams = grams_co2e(rest.energy_joules[0] + received, 1.2, 300.0) + grams_co2e(joules + sent, 1.2, 20.0)
    grams += embodied_grams(164_000.0, lifetime, reserved) + embodied_grams(164_000.0, lifetime, occupied)
    assert e.grams_co2e[1] == pytest.approx(grams)
    assert e.cost[1] == pytest.approx(hardware_cost(4.0, reserved + occupied))
    assert 20.0 < e.intensity_g_per_kwh[1] < 300.0
    assert len(e.features) == 1


def test_the_prefillers_queue_keeps_its_promise_too() -> None:
    waiting = prefillers(["a"], running=0.0, waiting=[2.0], waiting_tokens=[1_000.0], oldest_waiting_seconds=[2.5])
    wider = paired(pool(["c"], THREE), waiting)
    e = estimate(LONG, wider, POLICY, NOW)
    assert e.queue_ttft_seconds[0] == 0.0
    assert e.queue_ttft_seconds[1] > 2.5


@given(pools(), st.integers(1, 20_000), st.integers(1, 4))
@settings(max_examples=50, deadline=None)
def test_single_endpoints_are_estimated_as_without_pairs(
    asked: tuple[Candidates, Sequence[EngineModel | None]], prompt_tokens: int, others: int
) -> None:
    decode, engines = asked
    request = RequestProfile("r", "m", prompt_tokens, 200.0, streaming=True)
    prefill = replace(idle([None] * others), engine_rows=np.stack([decode.engine_rows[0]] * others))
    described = [(n, e, Place(n, None, "c")) for n, e in zip(decode.endpoints, engines, strict=True)]
    made = pair_pool(described, [(f"p{i}", engines[0], Place(f"p{i}", None, "c")) for i in range(others)], links())
    wider = with_pairs(decode, prefill, made, request, POLICY, NOW)
    n = len(decode)
    assert wider.aggregated_count == n
    alone, among = (estimate(request, c, POLICY, NOW) for c in (decode, wider))
    for name in ("ttft_seconds", "tpot_seconds", "energy_joules", "incremental_joules", "cost", "queue_ttft_seconds"):
        np.testing.assert_array_equal(getattr(among, name)[:n], getattr(alone, name), err_msg=name)


def chosen(decision: Decision) -> str:
    assert decision.winner is not None
    return decision.candidates.prefill_endpoint(decision.winner)


def test_without_a_queue_the_phases_follow_each_other() -> None:
    decode, prefill = pool(["c"], THREE, running=[8.0]), idle(["a"])
    wider = paired(decode, prefill)
    e = estimate(LONG, wider, POLICY, NOW)
    there, here = prefill_of(ENGINE, 0, LONG, prefill), prefill_of(ENGINE, 0, LONG, decode)
    assert there is not None
    assert here is not None
    moved = transfer(8_000.0, float(ENGINE.kv_bytes_per_token), LINK)
    assert e.ttft_seconds[1] == pytest.approx(there["TTFT"] + moved.seconds + here["TAIL"])


def test_a_long_prompt_at_a_busy_endpoint_is_prefilled_elsewhere_and_a_short_one_is_not() -> None:
    policy = replace(POLICY, ttft_slo_seconds=5.0, tpot_slo_seconds=0.05, certainty=0.0)
    for prompt_tokens, where in ((8_000, "p0"), (100, "e0")):
        request = replace(LONG, prompt_tokens=prompt_tokens)
        decision = decide(request, paired(busy(), idle(), request=request), policy, NOW)
        assert (chosen(decision), decision.outcome) == (where, Outcome.WITHIN_SLO)


def test_headroom_decides_between_one_endpoint_and_two() -> None:
    decode = pool(["c"], THREE, running=[8.0])
    here = prefill_of(ENGINE, 0, LONG, decode)
    assert here is not None
    slo = here["NEIGHBOUR_TPOT"]
    for headroom, where in ((1.01, "e0"), (0.99, "p0")):
        policy = replace(POLICY, tpot_slo_seconds=slo * headroom, certainty=0.0)
        decision = decide(LONG, paired(decode, idle(), policy=policy), policy, NOW)
        assert chosen(decision) == where
        assert (decision.losses[0] is Loss.NEIGHBOURS) == (where == "p0")


def test_neighbours_promise_yields_where_nothing_keeps_it() -> None:
    policy = replace(POLICY, tpot_slo_seconds=0.015, certainty=0.0)
    crowded = prefillers(["a"], running=8.0)
    decision = decide(LONG, paired(pool(["c"], THREE, running=[8.0]), crowded, policy=policy), policy, NOW)
    assert decision.candidates.pairs is not None
    assert decision.outcome is Outcome.WITHIN_SLO
    assert Loss.NEIGHBOURS not in decision.losses


def test_a_short_time_to_first_token_is_bought_with_a_second_endpoint() -> None:
    alone, pair = estimate(LONG, paired(busy(), idle()), POLICY, NOW).ttft_seconds
    assert alone > pair
    for slo, where in ((alone * 1.1, "e0"), ((alone + pair) / 2.0, "p0")):
        policy = replace(POLICY, ttft_slo_seconds=float(slo), tpot_slo_seconds=None, certainty=0.0)
        assert chosen(decide(LONG, paired(busy(), idle(), policy=policy), policy, NOW)) == where


def test_a_cleaner_region_prefills() -> None:
    wider = paired(pool(["c"], THREE, running=[8.0]), idle(["a", "c"]))
    decision = decide(LONG, wider, POLICY, NOW)
    assert decision.candidates.prefill_region(decision.winner or 0) == "a"
    e = decision.estimates
    assert e.grams_co2e[decision.winner or 0] < e.grams_co2e[0]


@given(st.floats(4.0, 30.0), st.floats(0.0, 20_000.0))
@settings(max_examples=50, deadline=None)
def test_a_pair_whose_transfer_breaks_the_promise_is_not_chosen(running: float, waiting_tokens: float) -> None:
    decode = pool(["c"], THREE, running=[running], waiting=[1.0], waiting_tokens=[waiting_tokens])
    slow = replace(LINK, bytes_per_second=8_000.0 * ENGINE.kv_bytes_per_token / 3.5)
    wider = paired(decode, idle(["a"]), link=slow)
    decision = decide(LONG, wider, POLICY, NOW)
    within = decision.within_constraints(decision.winner or 0)
    assert chosen(decision) == "e0" or not within


@given(st.floats(0.05, 100.0), st.floats(1.01, 50.0))
@settings(max_examples=50, deadline=None)
def test_more_bandwidth_makes_no_pair_worse(gigabytes_per_second: float, factor: float) -> None:
    decode, prefill = busy(), idle(["a"])
    rate = 1e9 * gigabytes_per_second
    slow, fast = (
        estimate(LONG, paired(decode, prefill, link=replace(LINK, bytes_per_second=r)), POLICY, NOW)
        for r in (rate, rate * factor)
    )
    assert len(fast.ttft_seconds) == 2
    if len(slow.ttft_seconds) == 2:
        rounding = 1.0 + 1e-12
        assert fast.ttft_seconds[1] <= slow.ttft_seconds[1] * rounding
        assert fast.grams_co2e[1] <= slow.grams_co2e[1] * rounding


@given(st.floats(1.0, 900.0), st.floats(1.0, 900.0))
@settings(max_examples=50, deadline=None)
def test_equal_grids_make_pairs_dearer_by_what_they_draw_more(first: float, second: float) -> None:
    views = {"x": region("x", first), "y": region("y", second)}
    for here, there in (("x", "y"), ("y", "x")):
        decode = replace(busy(), regions=(here,), region_names=(here,), region_views=views)
        prefill = replace(idle(["a"]), regions=(there,), region_names=(there,), region_views=views)
        wider = paired(decode, prefill)
        e = estimate(LONG, wider, POLICY, NOW)
        assert e.prefiller_joules is not None
        own, elsewhere = views[here].signal.reading, views[there].signal.reading
        assert own is not None
        assert elsewhere is not None
        drawn = e.prefiller_joules[1]
        expected = grams_co2e(e.energy_joules[1] - drawn, 1.2, own.intensity_g_per_kwh)
        expected += grams_co2e(drawn, 1.2, elsewhere.intensity_g_per_kwh)
        assert e.grams_co2e[1] == pytest.approx(expected)


def test_an_endpoint_makes_no_pair_with_itself_nor_with_what_is_unknown() -> None:
    decode = pool(["c"], THREE)
    here = Place("n", None, "c")
    for row in (("e0", ENGINE, here), ("p0", None, here), ("p0", ENGINE, Place("other", None, None))):
        assert not pair_pool([("e0", ENGINE, here)], [row], links()).possible
    assert not pair_pool([("e0", ENGINE, here)], [("p0", ENGINE, here)], Links(between={})).possible
    assert pair_pool([(decode.endpoints[0], ENGINE, here)], [("p0", ENGINE, here)], links()).possible


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({"model": "other"}, False),
        ({"kv_bytes_per_token": 65_536}, False),
        ({"block_size": 32}, False),
        ({"tensor_parallel": 3}, False),
        ({"tensor_parallel": 4}, True),
        ({"accelerator": "other", "clock_mhz": 900, "max_num_seqs": 8}, True),
    ],
)
def test_blocks_fit_where_the_layout_is_the_same(change: dict[str, object], fits: bool) -> None:
    two = replace(ENGINE, tensor_parallel=2)
    assert compatible(two, replace(two, **change)) == fits  # type: ignore[arg-type]
    assert compatible(replace(two, **change), two) == fits  # type: ignore[arg-type]


def test_a_prompt_that_does_not_fit_the_prefiller_makes_no_pair() -> None:
    small = replace(ENGINE, kv_capacity_tokens=8_000)
    prefill = replace(idle(["a"]), engine_rows=pool(["a"], THREE, engines=[small]).engine_rows)
    assert paired(busy(), prefill).pairs is None


def test_a_decoder_that_has_the_prompt_needs_no_prefiller() -> None:
    decode = pool(["c"], THREE, cached_tokens=[7_980.0])
    assert paired(decode, idle(["a"])).pairs is None


def test_only_what_the_decoder_lacks_is_sent() -> None:
    half = paired(replace(busy(), cached_tokens=np.array([4_000.0])), idle(["a"]))
    whole = paired(busy(), idle(["a"]))
    assert half.transfer_joules[1] == pytest.approx(whole.transfer_joules[1] / 2.0)


def test_a_pair_that_is_behind_in_everything_is_not_made() -> None:
    decode = pool(["a"], THREE, running=[0.0], prefill_duty=[0.0])
    assert paired(decode, prefillers(["c"], running=20.0, prefill_duty=0.5)).pairs is None


@pytest.mark.parametrize(
    "policy",
    [
        replace(POLICY, allowed_regions=frozenset({"c"})),
        replace(POLICY, power=PowerLimit(least_watts=100.0)),
        replace(POLICY, largest_region_share=0.5),
    ],
)
def test_limits_hold_for_prefillers(policy: DecisionPolicy) -> None:
    standing = Standing(region_counts={"a": 90.0, "c": 10.0})
    low = Standing(headroom_watts=np.array([10.0]))
    assert paired(busy(), idle(["a"])).pairs is not None
    assert paired(busy(), idle(["a"]), policy=policy, standing=standing, prefill_standing=low).pairs is None


@pytest.mark.parametrize(
    "view",
    [
        region("a", None),
        region("a", 20.0, age_s=1_000.0),
        region("a", 20.0, kind=SignalType.MARGINAL),
    ],
)
def test_a_prefiller_whose_grid_is_not_known_alike_leaves_carbon_in(view: RegionView) -> None:
    views = {**THREE, "a": view}
    decode = replace(busy(), region_views=views)
    prefill = replace(idle(["a"]), region_views=views)
    wider = paired(decode, prefill)
    assert wider.pairs is None
    assert not decide(LONG, wider, POLICY, NOW).dropped_terms


def test_without_any_signal_pairs_are_made_by_energy_and_time() -> None:
    views = {name: region(name, None) for name in "abc"}
    wider = paired(replace(busy(), region_views=views), replace(idle(["a"]), region_views=views))
    assert chosen(decide(LONG, wider, replace(POLICY, ttft_slo_seconds=3.0), NOW)) == "p0"


def test_a_request_that_is_held_out_prefills_in_place() -> None:
    wider = paired(busy(), idle(["a"]))
    policy = replace(POLICY, ttft_slo_seconds=10.0, tpot_slo_seconds=None)
    assert chosen(decide(LONG, wider, policy, NOW)) == "p0"
    assert chosen(decide(LONG, wider, policy, NOW, assignment=Assignment(Arm.HOLDOUT, "x"))) == "e0"


def test_pairs_are_few_however_many_endpoints_there_are() -> None:
    n = 64
    rng = np.random.default_rng(1)
    running = rng.uniform(10.0, 30.0, n).tolist()
    decode = pool(["c"] * n, THREE, running=running, prefill_duty=0.5, waiting=1.0, waiting_tokens=4_000.0)
    prefill = prefillers(["a", "c"] * 8, running=0.0, waiting=[1.0, 0.0] * 8, waiting_tokens=[8_000.0, 0.0] * 8)
    wider = paired(decode, prefill)
    assert len(wider) == n + MAX_PAIRS
    fast = {wider.prefill_region(i) for i in range(n, len(wider))}
    assert fast == {"a", "c"}
    assert len({(wider.endpoints[i], wider.prefill_endpoint(i)) for i in range(n, len(wider))}) == MAX_PAIRS


def test_engines_of_the_profiles_pair_by_model() -> None:
    fits = {(a.name, b.name) for a in ENGINES for b in ENGINES if a is not b and compatible(a, b)}
    assert fits
    assert all(a.split("-h100")[0].split("-a100")[0] == b.split("-h100")[0].split("-a100")[0] for a, b in fits)
