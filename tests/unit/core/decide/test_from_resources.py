"""Resources in the units of decisions."""

import math
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.support.resource_documents import COEFFICIENTS, REMOVED, changed, workload_variant

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.decide.candidates import Embodied
from heliotrope.decide.from_resources import decision_policy, embodied, engine_model, power_limit_watts
from heliotrope.decide.policy import (
    DecisionPolicy,
    DemandEvent,
    Objective,
    Overridable,
    Override,
    PowerLimit,
    Term,
)
from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError


def policy(*, status: dict[str, Any] | None = None, **spec: Any) -> DecisionPolicy:
    document = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "green", "namespace": "llm"},
        "spec": {"targetRefs": [{"name": "pool"}], "slo": {"ttft": "1s500ms", "tpot": "71ms"}} | spec,
        "status": status or {},
    }
    resource = parse(document)
    assert isinstance(resource, CarbonPolicy)
    return decision_policy(resource)


def variant(document: dict[str, Any]) -> WorkloadVariant:
    resource = parse(document)
    assert isinstance(resource, WorkloadVariant)
    return resource


def test_a_policy_that_only_promises_latency() -> None:
    made = policy()

    assert made.name == "llm/green"
    assert (made.ttft_slo_seconds, made.tpot_slo_seconds) == (1.5, 0.071)
    assert (made.objective, made.order) == (
        Objective.LEXICOGRAPHIC,
        (Term.CARBON, Term.ENERGY, Term.COST, Term.LATENCY),
    )
    assert made.tolerances == {Term.CARBON: 0.05, Term.ENERGY: 0.05, Term.COST: 0.05, Term.LATENCY: 0.0} | {
        Term.RISK: 0.05
    }
    assert (made.quality_floor, made.allowed_regions) == (None, None)
    assert (made.include_embodied, made.include_water) == (False, False)
    assert made.enforce is False  # Advise is the default


def test_every_setting_arrives() -> None:
    made = policy(
        objective={
            "mode": "Weighted",
            "order": ["energy", "carbon"],
            "tolerancesPercent": {"carbon": 1, "energy": 2, "cost": 3, "latency": 4, "risk": 5},
            "weights": {"latency": "1", "energy": "2", "carbon": "3", "cost": "4", "risk": "9"},
            "softMultiplierWeight": "2.5",
        },
        qualityFloor="0.6",
        placement={"allowedRegions": ["spain", "norway"]},
        accountingBoundary={"embodied": True, "water": True},
        enforcement="Enforce",
        holdoutPercent=7,
        holdoutSeed=42,
    )

    assert (made.objective, made.order) == (Objective.WEIGHTED, (Term.ENERGY, Term.CARBON))
    assert made.tolerances == {Term.CARBON: 0.01, Term.ENERGY: 0.02, Term.COST: 0.03, Term.LATENCY: 0.04} | {
        Term.RISK: 0.05
    }
    assert made.weights == {Term.LATENCY: 1.0, Term.ENERGY: 2.0, Term.CARBON: 3.0, Term.COST: 4.0} | {Term.RISK: 9.0}
    assert made.soft_weight == 2.5
    assert (made.quality_floor, made.allowed_regions) == (0.6, frozenset({"spain", "norway"}))
    assert (made.include_embodied, made.include_water, made.enforce) == (True, True, True)
    assert (made.holdout_percent, made.holdout_seed) == (7, 42)


@pytest.mark.parametrize("mode", ["Lexicographic", "Weighted", "SoftMultiplier"])
def test_every_mode_of_the_api_has_its_objective(mode: str) -> None:
    assert policy(objective={"mode": mode, "weights": {"carbon": "1"}}).objective.value == mode


def test_coefficients_become_the_engine_model_unchanged() -> None:
    document = changed(workload_variant("coefficients"), {"spec.engine": {"coefficients": COEFFICIENTS}})

    model = engine_model(variant(document), {})

    assert model is not None
    assert (model.accelerator, model.tensor_parallel) == ("H100-SXM-80GB", 1)
    assert model.name == f"llm/{document['metadata']['name']}"
    assert model.prefill.seconds_per_token_squared == 7.1844e-10
    assert model.decode.alpha_seconds == (0.0077625, 0.000045395, 6.9198e-8)
    assert (model.energy.decode_joules_per_request, model.idle_watts) == (0.02521, 121.7)
    assert (model.kv_capacity_tokens, model.clock_mhz) == (426784, 1980)


def test_the_api_has_a_field_for_every_coefficient_of_the_model() -> None:
    document = changed(workload_variant("coefficients"), {"spec.engine": {"coefficients": COEFFICIENTS}})
    engine = variant(document).spec.engine
    assert engine is not None
    assert engine.coefficients is not None

    stated = set(engine.coefficients.model_dump()) | {"name", "model", "accelerator", "tensor_parallel"}

    assert stated == {each.name for each in fields(EngineModel)}


def test_a_profile_by_name() -> None:
    shipped = {"llama-3.1-8b-h100": profiles.load("llama-3.1-8b-h100")}
    made = variant(changed(workload_variant(), {"spec.engine": {"profile": "llama-3.1-8b-h100"}}))

    assert engine_model(made, shipped) == shipped["llama-3.1-8b-h100"]
    with pytest.raises(UnknownProfileError, match=r"spec\.engine\.profile: .*shipped are a, b"):
        engine_model(made, dict.fromkeys(("b", "a"), shipped["llama-3.1-8b-h100"]))


def test_limits_of_the_variant_replace_those_of_the_profile() -> None:
    shipped = profiles.load("llama-3.1-8b-h100")
    made = variant(workload_variant())  # states 32 and 4096

    model = engine_model(made, {"llama-3.1-8b-h100": shipped})

    assert model is not None
    assert (model.max_num_seqs, model.max_num_batched_tokens) == (32, 4096)
    assert model.prefill == shipped.prefill


def test_what_a_variant_does_not_state_is_unknown() -> None:
    document = workload_variant()
    del document["spec"]["engine"], document["spec"]["embodiedCarbon"]

    assert engine_model(variant(document), {}) is None
    assert embodied(variant(document)) is None
    assert embodied(variant(workload_variant())) == Embodied(310_000.0, 43_800 * 3600.0)


EVENTS = [{"name": "evening", "start": "2026-01-15T17:00:00Z", "end": "2026-01-15T19:00:00Z"}]
START = datetime(2026, 1, 15, 17, tzinfo=UTC).timestamp()


def test_classes_and_overrides_arrive_in_seconds() -> None:
    made = policy(
        classes=[
            {
                "name": "batch",
                "inferenceObjectives": ["nightly"],
                "maxPriority": -1,
                "slo": {"ttft": "30s", "tpot": "500ms"},
                "objective": {"order": ["energy"], "choices": 0},
            },
            {"name": "chat", "minPriority": 10, "answersDemand": False},
        ],
        overrides={"allowed": ["Regions"], "shortestTtft": "100ms", "longestTpot": "1s"},
        powerHeadroom={"leastWatts": 40},
        placement={"largestRegionSharePercent": 60},
        objective={"scoreTolerancePercent": 7, "choices": 5},
    )
    batch, chat = made.classes
    assert (batch.name, batch.inference_objectives) == ("batch", frozenset({"nightly"}))
    assert (batch.lowest_priority, batch.highest_priority) == (None, -1)
    assert (batch.ttft_slo_seconds, batch.tpot_slo_seconds, batch.answers_demand) == (30.0, 0.5, True)
    assert batch.comparison is not None
    assert (batch.comparison.order, batch.comparison.choices) == ((Term.ENERGY,), 0)
    assert (chat.ttft_slo_seconds, chat.comparison, chat.answers_demand) == (None, None, False)
    assert made.overrides == Overridable(frozenset({Override.REGIONS}), 0.1, 3600.0, 0.001, 1.0)
    assert made.power == PowerLimit(40.0, avoid_throttled=True)
    assert (made.largest_region_share, made.score_tolerance, made.choices) == (0.6, 0.07, 5)


def test_requests_may_change_their_promise_unless_the_policy_says_otherwise() -> None:
    assert policy().overrides.allowed == {Override.SLO}
    assert policy(overrides={"allowed": []}).overrides.allowed == frozenset()


@pytest.mark.parametrize(
    ("answer", "objective", "weights"),
    [
        ({"weights": {"energy": "2"}}, Objective.WEIGHTED, 2.0),
        ({"objective": {"mode": "SoftMultiplier"}}, Objective.SOFT_MULTIPLIER, 0.0),
    ],
)
def test_an_event_is_answered_from_its_ramp_on(answer: dict[str, Any], objective: Objective, weights: float) -> None:
    made = policy(demandResponse={"events": EVENTS, "rampIn": "5m", **answer})
    assert made.events == (DemandEvent("evening", START - 300.0, START + 7200.0),)
    assert made.event_comparison is not None
    assert made.event_comparison.objective is objective
    assert made.event_comparison.weights[Term.ENERGY] == weights


ANSWERED = {"event": "vtn-1", "since": "2026-01-15T16:55:00Z", "end": "2026-01-15T19:00:00Z", "watts": 9_000}


@pytest.mark.parametrize(
    "source", [{"http": {"url": "https://vtn/"}}, {"prometheus": {"url": "http://prometheus", "query": "limit_watts"}}]
)
def test_an_event_of_a_source_is_the_one_that_the_status_says_is_answered(source: dict[str, Any]) -> None:
    response = {**source, "weights": {"energy": "1"}}
    assert policy(demandResponse=response).events == ()
    made = policy(demandResponse=response, status={"demandResponse": ANSWERED})
    assert made.events == (DemandEvent("vtn-1", START - 300.0, START + 7200.0),)
    assert made.event_comparison is not None
    endless = {name: value for name, value in ANSWERED.items() if name != "end"}
    assert policy(demandResponse=response, status={"demandResponse": endless}).events[0].end_unix_s == math.inf


def test_what_the_status_says_changes_no_planned_event() -> None:
    made = policy(demandResponse={"events": EVENTS, "weights": {"energy": "1"}}, status={"demandResponse": ANSWERED})
    assert [event.name for event in made.events] == ["evening"]


def test_an_event_without_an_answer_of_its_own_changes_no_comparison() -> None:
    assert policy(demandResponse={"events": EVENTS}, power={}).event_comparison is None


def test_a_revision_tells_versions_apart() -> None:
    assert policy(holdoutPercent=1).revision == policy(holdoutPercent=1).revision
    assert policy(holdoutPercent=1).revision != policy(holdoutPercent=2).revision
    document = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "green", "generation": 7},
        "spec": {"targetRefs": [{"name": "pool"}], "slo": {"ttft": "1s", "tpot": "71ms"}},
    }
    resource = parse(document)
    assert isinstance(resource, CarbonPolicy)
    assert decision_policy(resource).revision == "generation 7"


def test_the_power_limit_is_the_chosen_one_else_the_highest_that_may_be_set() -> None:
    document = changed(workload_variant(), {"spec.accelerator.count": 2})  # states 350 to 700 W
    chosen = [{"role": "prefill", "watts": 500}, {"role": "decode", "watts": 450}, {"role": "both"}]

    assert power_limit_watts(variant(changed(document, {"status": REMOVED}))) == 1400.0
    assert power_limit_watts(variant(changed(document, {"status.chosenPower": chosen}))) == 1000.0
    advice = [each | {"enforcement": "Advise"} for each in chosen]
    assert power_limit_watts(variant(changed(document, {"status.chosenPower": advice}))) == 1400.0
    silent = changed(document, {"status": REMOVED, "spec.wattRange": REMOVED})
    assert power_limit_watts(variant(silent)) is None
