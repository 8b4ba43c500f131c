"""Where images are encoded, and what that does to the estimates of plans."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool, region

from heliotrope.cache.links import Links, Place
from heliotrope.decide.candidates import Candidates, RegionView
from heliotrope.decide.decision import Decision, decide
from heliotrope.decide.encode import EncodePlan, Encoding, best_plan, encode_graph, encode_plans
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.phases import pair_pool, with_pairs
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.encoder import DEFAULT_ENCODER, EncoderModel
from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import Attachment, Modality
from heliotrope.units import grams_co2e

MODEL = EncoderModel(0.01, 0.002, 1e-4, 2.0, 0.5, 0.05, 1_000.0)
PROMISE = DecisionPolicy("p", ttft_slo_seconds=30.0, tpot_slo_seconds=5.0)


def images(*tokens: int) -> RequestProfile:
    media = tuple(Attachment(Modality.IMAGE, f"i{i}", n) for i, n in enumerate(tokens))
    return replace(REQUEST, media=media)


def encoders(
    regions: Sequence[str | None], views: Mapping[str, RegionView] = THREE, **columns: Sequence[float] | float
) -> Candidates:
    made = pool(regions, views, **{"running": 0.0, **columns})  # type: ignore[arg-type]
    return replace(made, endpoints=tuple(f"v{i}" for i in range(len(regions))))


def encoding(candidates: Candidates, others: Candidates | None = None, **changed: object) -> Encoding:
    everyone = [candidates, *([] if others is None else [others])]
    places = {
        name: Place("node-1", None, where)
        for of in everyone
        for name, where in zip(of.endpoints, of.regions, strict=True)
    }
    return replace(Encoding(MODEL, {}, others, None, places), **changed)  # type: ignore[arg-type]


def estimated(
    request: RequestProfile,
    candidates: Candidates,
    others: Candidates | None = None,
    policy: DecisionPolicy = PROMISE,
    **changed: object,
) -> Estimates:
    return estimate(request, replace(candidates, encoding=encoding(candidates, others, **changed)), policy, NOW)


def test_encoding_in_place_is_one_step_before_the_prefill() -> None:
    candidates, request = pool(["a", "c"], THREE), images(100, 300)
    plain, with_images = estimate(request, candidates, POLICY, NOW), estimated(request, candidates)
    seconds, joules = 0.01 + 2 * 0.002 + 400 * 1e-4, 2.0 + 2 * 0.5 + 400 * 0.05
    np.testing.assert_allclose(with_images.ttft_seconds - plain.ttft_seconds, seconds)
    np.testing.assert_allclose(with_images.service_seconds - plain.service_seconds, seconds)
    for name in ("energy_joules", "incremental_joules", "attributed_joules"):
        np.testing.assert_allclose(getattr(with_images, name) - getattr(plain, name), joules, rtol=1e-9)
    added = [grams_co2e(joules, 1.2, intensity) for intensity in (20.0, 300.0)]
    np.testing.assert_allclose(with_images.grams_co2e - plain.grams_co2e, added, rtol=1e-9)
    np.testing.assert_allclose(with_images.intensity_g_per_kwh, plain.intensity_g_per_kwh)
    assert (with_images.energy_relative_error > plain.energy_relative_error).all()
    np.testing.assert_array_equal(with_images.tpot_seconds, plain.tpot_seconds)
    assert with_images.encodes is not None
    assert with_images.encodes.endpoints(0) == ()


def test_a_request_without_images_is_estimated_alike_bit_for_bit_whatever_is_known_of_encoders() -> None:
    candidates = pool(["a", "b", "c"], THREE, waiting=2.0, waiting_tokens=900.0)
    plain = estimate(REQUEST, candidates, POLICY, NOW)
    beside = estimated(REQUEST, candidates, encoders(["a", "b"]), POLICY)
    assert plain.encodes is None
    for field in fields(Estimates):
        if field.name not in ("learned", "encodes", "prefiller_joules"):
            np.testing.assert_array_equal(getattr(plain, field.name), getattr(beside, field.name), err_msg=field.name)


def test_a_clean_encoder_encodes_for_a_dirty_endpoint_but_not_the_other_way_round() -> None:
    request = images(300)
    clean = estimated(request, pool(["c"], THREE), encoders(["a"]))
    assert clean.encodes is not None
    assert clean.encodes.endpoints(0) == ("v0",)
    dirty = estimated(request, pool(["a"], THREE), encoders(["c"]))
    assert dirty.encodes is not None
    assert dirty.encodes.endpoints(0) == ()


def test_joules_are_priced_where_they_are_drawn() -> None:
    request, candidates = images(300), pool(["c"], THREE)
    plain, there = estimate(request, candidates, POLICY, NOW), estimated(request, candidates, encoders(["a"]))
    assert there.encodes is not None
    plan = there.encodes.plans[0]
    expected = grams_co2e(plan.there_joules[0], 1.2, 20.0) + grams_co2e(plan.here_joules, 1.2, 300.0)
    assert there.grams_co2e[0] - plain.grams_co2e[0] == pytest.approx(expected)
    assert there.encodes.grams_co2e[0] == pytest.approx(expected)
    mean = plain.energy_joules[0] * 300.0 + plan.there_joules[0] * 20.0 + plan.here_joules * 300.0
    assert there.intensity_g_per_kwh[0] == pytest.approx(mean / there.energy_joules[0])
    assert there.cost[0] > plain.cost[0]


def test_a_promise_that_an_encoder_breaks_keeps_images_in_place() -> None:
    request, candidates = images(300), pool(["c"], THREE)
    alone = estimate(request, candidates, POLICY, NOW).ttft_seconds[0]
    busy = encoders(["a"], running=20.0)
    tight = replace(PROMISE, ttft_slo_seconds=float(alone) + 0.1)
    for policy, where in ((PROMISE, ("v0",)), (tight, ()), (replace(tight, ttft_slo_seconds=0.01), ())):
        found = estimated(request, candidates, busy, policy).encodes
        assert found is not None
        assert found.endpoints(0) == where


def test_embeddings_that_are_remembered_cost_nothing_and_draw_requests() -> None:
    request, candidates = images(300, 100), pool(["c", "c"], THREE)
    cached = {"e1": frozenset({"i0", "i1"})}
    found = estimated(request, candidates, cached=cached)
    assert found.encodes is not None
    assert [plan.seconds > 0.0 for plan in found.encodes.plans] == [True, False]
    assert found.encodes.plans[1].joules == 0.0
    decision = decide(request, replace(candidates, encoding=encoding(candidates, cached=cached)), PROMISE, NOW)
    assert decision.endpoint == "e1"
    with_encoder = estimated(request, pool(["a"], THREE), encoders(["a"]), cached={"v0": frozenset({"i0", "i1"})})
    assert with_encoder.encodes is not None
    assert with_encoder.encodes.endpoints(0) == ("v0",)


def test_images_are_spread_when_that_is_what_keeps_the_promise() -> None:
    request, candidates = images(3_000, 3_000), pool(["c"], THREE)
    ttft = float(estimate(request, candidates, POLICY, NOW).ttft_seconds[0])
    tight = replace(PROMISE, ttft_slo_seconds=ttft + 0.4)
    found = estimated(request, candidates, encoders(["a", "a"]), tight).encodes
    assert found is not None
    assert found.endpoints(0) == ("v0", "v1")


@pytest.mark.parametrize(
    "others",
    [
        encoders(["a"], running=np.nan),
        encoders([None]),
    ],
    ids=["load unknown", "place and grid unknown"],
)
def test_an_encoder_of_which_too_little_is_known_is_not_used(others: Candidates) -> None:
    candidates = pool(["c"], THREE)
    of = encoding(candidates, others, places={"e0": Place("n", None, "c")})
    plans = encode_plans(encode_graph(images(300), of), of, "e0")
    assert [plan.encoders for plan in plans] == [()]


def test_encoders_that_the_policy_does_not_allow_are_not_used() -> None:
    found = estimated(images(300), pool(["c"], THREE), encoders(["a", "b"]), usable=np.array([False, True])).encodes
    assert found is not None
    assert found.endpoints(0) == ("v1",)


def test_a_thing_of_unknown_size_is_served_in_place_and_makes_the_energy_unsure() -> None:
    request = replace(REQUEST, media=(*images(300).media, Attachment(Modality.AUDIO, "s", None)))
    found = estimated(request, pool(["c"], THREE), encoders(["a"]))
    assert found.encodes is not None
    assert (found.encodes.endpoints(0), found.encodes.unknown) == ((), 1)
    assert np.isnan(found.energy_relative_error[0])
    assert np.isfinite(found.energy_joules[0])


def test_unknown_grids_leave_joules_to_compare() -> None:
    views = {"a": region("a", None), "c": region("c", None)}
    candidates = pool(["c"], views)
    found = estimated(images(300), candidates, encoders(["a"], views))
    assert found.encodes is not None
    assert found.encodes.endpoints(0) == (), "a transfer more is no gain"
    assert np.isnan(found.grams_co2e[0])


def test_a_pair_is_encoded_for_its_prefiller() -> None:
    request = images(300)
    candidates, prefillers = pool(["c"], THREE), replace(pool(["b"], THREE), endpoints=("p0",))
    node = Place("node-1", None, "b")
    links = pair_pool([("e0", ENGINE, node)], [("p0", ENGINE, node)], Links())
    both = with_pairs(candidates, prefillers, links, request, PROMISE, NOW)
    assert len(both) == 2
    found, plain = estimated(request, both), estimate(request, both, PROMISE, NOW)
    assert found.encodes is not None
    joules = found.encodes.plans[1].joules
    assert found.encodes.grams_co2e[1] == pytest.approx(grams_co2e(joules, 1.2, 150.0))
    assert found.grams_co2e[1] - plain.grams_co2e[1] == pytest.approx(grams_co2e(joules, 1.2, 150.0))
    cached = estimated(request, both, cached={"p0": frozenset({"i0"})}).encodes
    assert cached is not None
    assert [plan.joules == 0.0 for plan in cached.plans] == [False, True]


def test_a_plan_that_pulls_cached_blocks_encodes_in_place() -> None:
    candidates = replace(pool(["c", "c"], THREE), kv_sources=(None, "e0"))
    found = estimated(images(300), candidates, encoders(["a"])).encodes
    assert found is not None
    assert [found.endpoints(row) for row in range(2)] == [("v0",), ()]


def test_the_explanation_says_where_and_what_is_not_known() -> None:
    request = images(300)
    candidates = pool(["c"], THREE)
    made = replace(candidates, encoding=encoding(candidates, encoders(["a"])))
    decision: Decision = decide(request, made, PROMISE, NOW)
    document = decision.explanation()
    assert document["media"] == {"count": {"image": 1}, "tokens": 300, "assumed": 0, "unknown": 0}
    (row,) = document["candidates"]
    assert (row["encode_endpoints"], row["encode_regions"]) == (["v0"], ["a"])
    assert {each["name"] for each in document["regions"]} == {"a", "c"}
    assert row["encode_joules"] > 0.0
    assert row["encode_grams_co2e"] > 0.0
    (text,) = decide(REQUEST, candidates, PROMISE, NOW).explanation()["candidates"]
    assert text["encode_endpoints"] is None
    assert text["encode_joules"] == 0.0


SIZES = st.lists(st.integers(4, 16_384), min_size=1, max_size=5)


@given(SIZES, st.integers(4, 16_384), st.integers(0, 3), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_more_images_are_never_faster(sizes: list[int], more: int, one: int, running: list[int]) -> None:
    candidates = pool(["c"], THREE)
    known = {"v1": frozenset({f"i{one}"})}

    def ways(request: RequestProfile) -> dict[tuple[int, ...], EncodePlan]:
        of = encoding(candidates, encoders(["a", "b", "c"], running=[float(n) for n in running]), cached=known)
        return {plan.encoders: plan for plan in encode_plans(encode_graph(request, of), of, "e0")}

    few, many = ways(images(*sizes)), ways(images(*sizes, max(more, *sizes)))
    assert set(few) <= set(many)
    for way, plan in few.items():
        assert many[way].seconds >= plan.seconds - 1e-12
        assert many[way].joules >= plan.joules - 1e-12
    assert min(p.seconds for p in many.values()) >= 0.0


@given(
    st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=1, max_size=6), st.floats(0, 10), st.floats(0, 20)
)
def test_the_best_plan_keeps_the_promise_if_any_does(of: list[tuple[float, float]], ttft: float, slo: float) -> None:
    plans = [EncodePlan((), seconds, 0.0, grams) for seconds, grams in of]
    grams = [plan.joules for plan in plans]
    best = plans[best_plan(plans, grams, ttft, slo)]
    kept = [plan for plan in plans if ttft + plan.seconds <= slo]
    if kept:
        assert best in kept
        assert best.joules == min(plan.joules for plan in kept)
    else:
        assert best.seconds == min(plan.seconds for plan in plans)


@given(
    st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.booleans(), st.booleans()), min_size=1, max_size=6),
    st.lists(st.sampled_from("abc"), min_size=1, max_size=3),
)
def test_endpoints_are_planned_among_others_as_alone(
    rows: list[tuple[str | None, bool, bool]], seers: list[str]
) -> None:
    request, candidates = images(300, 900), pool([where for where, _, _ in rows], THREE)
    others = encoders(seers)
    cached = {f"e{i}": frozenset({"i1"}) for i, (_, remembers, _) in enumerate(rows) if remembers}
    of = encoding(candidates, others, cached=cached)
    far = {f"e{i}": Place(f"n{i}", None, where) for i, (where, _, away) in enumerate(rows) if away}
    of = replace(of, places={**of.places, **far})
    together = estimate(request, replace(candidates, encoding=of), PROMISE, NOW).encodes
    assert together is not None
    for i, (where, _, _) in enumerate(rows):
        one = replace(pool([where], THREE), endpoints=(f"e{i}",), encoding=of)
        alone = estimate(request, one, PROMISE, NOW).encodes
        assert alone is not None
        assert together.plans[i] == alone.plans[0]
        np.testing.assert_array_equal(together.grams_co2e[i], alone.grams_co2e[0])


def test_an_endpoint_without_a_step_model_stays_unknown() -> None:
    candidates = pool(["c", "c"], THREE, engines=[None, ENGINE], embodied_grams=np.nan, price_per_hour=np.nan)
    found = estimated(images(300), candidates, encoders(["a"]))
    assert np.isnan(found.ttft_seconds[0])
    assert np.isnan(found.energy_joules[0])
    assert np.isfinite(found.energy_joules[1])
    assert np.isnan(found.cost).all()


def test_encoders_that_cannot_be_are_refused() -> None:
    for name in ("base_seconds", "joules_per_token", "relative_error"):
        for value in (-1.0, float("nan"), float("inf")):
            with pytest.raises(InvalidInputError, match=name):
                replace(DEFAULT_ENCODER, **{name: value})
    assert DEFAULT_ENCODER.seconds(0, 0) == DEFAULT_ENCODER.joules(0, 0) == 0.0
