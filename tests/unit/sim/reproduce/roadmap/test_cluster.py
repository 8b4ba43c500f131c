"""Runs of the testbed: what they draw adds up, equal runs are equal, arms do what they say."""

import hashlib
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from heliotrope.cache.action import KvAction
from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.reproduce.roadmap import arms
from heliotrope_sim.reproduce.roadmap.arms import Arm
from heliotrope_sim.reproduce.roadmap.cluster import Outcome, run
from heliotrope_sim.reproduce.roadmap.measures import measure
from heliotrope_sim.reproduce.roadmap.testbed import A100, H100, MODEL_8B, endpoints, intensities, rtt_seconds
from heliotrope_sim.reproduce.roadmap.workloads import CLASSES, arrivals, turns_of

GRID = intensities()[4_000:4_001]


@cache
def outcome(
    arm: Arm, workload: str = "chat", *, count: int = 24, large: bool = False, kv_tokens: int | None = None
) -> Outcome:
    firsts = arrivals(CLASSES[workload], 12.0, count, 0.9, 3)
    return run(endpoints(large, kv_tokens), arm, firsts, GRID, 3_600.0, 3)


@pytest.mark.parametrize(
    ("arm", "workload"),
    [
        (arms.LEAST_LOADED, "chat"),
        (arms.JOINT, "rag"),
        (arms.JOINT, "multimodal"),
        (arms.PHASES["fixed P/D"], "code"),
        (arms.KV["P2P"], "rag"),
    ],
)
def test_what_requests_are_charged_is_what_steps_and_transfers_drew(arm: Arm, workload: str) -> None:
    found = outcome(arm, workload)
    assert all(served.finished_ns is not None for served in found.served)
    drawn = found.drawn.busy.sum() + found.drawn.transfer.sum()
    assert sum(served.joules for served in found.served) == pytest.approx(drawn, rel=1e-6)


def test_grams_are_joules_at_each_regions_intensity() -> None:
    found = outcome(arms.ROUND_ROBIN)
    specs = endpoints()
    pue = {spec.region.name: spec.region.pue for spec in specs}
    weights = np.array(list(pue.values())) * GRID[0]
    joules = found.drawn.busy + found.drawn.transfer
    assert (joules > 0.0).all()
    assert found.drawn.working_grams == pytest.approx(float((joules * weights).sum() / 3.6e6), rel=1e-9)


def test_an_hour_that_ends_changes_what_the_joules_after_it_emit() -> None:
    firsts = arrivals(CLASSES["chat"], 12.0, 24, 0.5, 3)
    two = np.array([[100.0] * 4, [0.0] * 4])
    short = run(endpoints(), arms.ROUND_ROBIN, firsts, two, 1.0, 3)
    whole = run(endpoints(), arms.ROUND_ROBIN, firsts, two, 3_600.0, 3)
    assert short.drawn.busy.sum() == pytest.approx(whole.drawn.busy.sum(), rel=1e-9)
    assert 0.0 < short.drawn.working_grams < whole.drawn.working_grams


def test_round_robin_takes_turns_and_latency_counts_the_way() -> None:
    found = outcome(arms.ROUND_ROBIN)
    n = len(endpoints())
    assert [s.chosen.endpoint for s in found.served if s.chosen is not None] == [i % n for i in range(24)]
    rtt = rtt_seconds()
    for served in found.served:
        assert served.chosen is not None
        assert served.first_token_ns is not None
        region = endpoints()[served.chosen.endpoint].region.name
        assert seconds(served.first_token_ns - served.arrived_ns) > rtt[region]


def test_fixed_disaggregation_prefills_on_h100_and_decodes_on_a100_of_the_same_region() -> None:
    specs = endpoints()
    for served in outcome(arms.PHASES["fixed P/D"], "code").served:
        assert served.chosen is not None
        assert served.chosen.prefill is not None
        prefill, decode = specs[served.chosen.prefill], specs[served.chosen.endpoint]
        assert (prefill.hardware, decode.hardware) == (H100, A100)
        assert prefill.region is decode.region


def test_carbon_routing_is_cleaner_and_the_joint_arm_keeps_promises() -> None:
    blind, joint = outcome(arms.LEAST_LOADED), outcome(arms.JOINT)
    assert joint.drawn.working_grams < 0.5 * blind.drawn.working_grams
    for served in joint.served:
        assert served.first_token_ns is not None
        assert seconds(served.first_token_ns - served.arrived_ns) <= served.arrival.kind.ttft_slo_seconds


def test_reuse_offload_and_pulls_are_used_where_an_arm_has_them() -> None:
    def of(name: str) -> Outcome:
        return outcome(arms.KV[name], "rag", count=90, kv_tokens=30_000)

    def cached(found: Outcome) -> int:
        return sum(served.cached_tokens for served in found.served)

    assert cached(of("recompute")) == 0
    assert 0 < cached(of("owner affinity")) < cached(of("offload"))
    actions = {name: {s.chosen.action for s in of(name).served if s.chosen} for name in arms.KV}
    assert actions["recompute"] == {KvAction.RECOMPUTE}
    assert KvAction.OFFLOAD_RELOAD in actions["offload"]
    assert KvAction.PEER_TRANSFER in actions["P2P"]
    assert of("P2P").drawn.transfer.sum() > 0.0


def test_a_small_model_answers_only_where_models_are_routed() -> None:
    specs = endpoints(True)
    served = outcome(arms.FULL, large=True).served
    small = [specs[s.chosen.endpoint].model.model == MODEL_8B for s in served if s.chosen is not None]
    assert 0 < sum(small) < len(small)
    mean = {
        is_small: np.mean([s.arrival.difficulty for s, is_ in zip(served, small, strict=True) if is_ is is_small])
        for is_small in (True, False)
    }
    assert mean[True] < mean[False]
    assert not any(
        specs[s.chosen.endpoint].model.model == MODEL_8B for s in outcome(arms.JOINT, large=True).served if s.chosen
    )


def test_pinned_sessions_stay_and_turns_follow_each_other() -> None:
    found = outcome(arms.SESSIONS["pinned"], "agentic", count=40)
    by_session: dict[int, set[int]] = {}
    for served in found.served:
        assert served.chosen is not None
        by_session.setdefault(served.arrival.session, set()).add(served.chosen.endpoint)
    assert len(found.served) > len(by_session)
    assert all(len(places) == 1 for places in by_session.values())
    turns = {served.arrival.number: served for served in found.served}
    for served in found.served:
        following = served.arrival.following
        if following is not None:
            assert served.finished_ns is not None
            assert turns[following.number].arrived_ns == served.finished_ns + following.at_ns


def test_what_no_engine_can_hold_is_refused_and_counts_for_nothing() -> None:
    firsts = arrivals(CLASSES["rag"], 12.0, 6, 0.5, 3)
    longest = max(first.prompt_tokens for first in firsts)
    specs = endpoints(False, longest // 16 * 16)
    found = run(specs, arms.LEAST_LOADED, firsts, GRID, 3_600.0, 3)
    refused = [served for served in found.served if served.chosen is None]
    assert refused
    measured = measure(found, specs, GRID[0], 1.0)
    assert measured.kept.sum() == len(found.served) - len(refused)
    assert np.isnan(measured.quality).sum() == len(refused)
    assert len(turns_of(firsts)) == len(found.served)


def test_measures_add_up_and_unknown_stays_unknown() -> None:
    specs = endpoints()
    measured = measure(outcome(arms.JOINT), specs, GRID[0], 5.0)
    assert measured.tokens == sum(s.arrival.output_tokens for s in outcome(arms.JOINT).served)
    assert measured.spent.joules > measured.working_joules
    assert measured.used_embodied_grams < measured.spent.embodied_grams
    assert len(measured.features) == len(measured.labels) == len(measured.believed) > 0
    unknown = measure(outcome(arms.JOINT), specs, np.full(4, np.nan), 5.0)
    assert math.isnan(unknown.spent.operational_grams)
    assert unknown.spent.joules == measured.spent.joules


def digest(arm: Arm) -> str:
    firsts = arrivals(CLASSES["multimodal"], 12.0, 16, 0.5, 5)
    found = run(endpoints(), arm, firsts, GRID, 3_600.0, 5)
    columns = [(s.first_token_ns, s.finished_ns, s.chosen and s.chosen.endpoint) for s in found.served]
    return hashlib.sha256(repr(columns).encode()).hexdigest()[:16]


def test_equal_runs_are_equal_to_the_nanosecond() -> None:
    assert digest(arms.JOINT) == digest(replace(arms.JOINT))
    # Of an arm that estimates nothing: workloads, engines and the loop, whatever decisions become.
    assert digest(arms.CACHE_AWARE) == "3cf77430f3676781"
