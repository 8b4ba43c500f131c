"""What a request asks for by header: read, given, refused in sight, and never passed on."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.director.test_director import POLICY, Bench, Gateway, chat, report

from heliotrope.decide.asked import NOTHING_ASKED, Asked
from heliotrope.decide.policy import (
    Comparison,
    DemandEvent,
    Objective,
    Overridable,
    Override,
    Provenance,
    ServiceClass,
    Term,
)
from heliotrope.errors import InvalidInputError
from heliotrope_epp.director.outcome import failure_of
from heliotrope_epp.director.wishes import OWN_HEADERS, REFUSED_HEADER, asked_of, refusals, to_remove
from heliotrope_epp.transport.interface import Cause

ALL = Overridable(frozenset(Override), 0.1, 10.0, 0.01, 1.0)


def headers(**given: str) -> Gateway:
    return Gateway(given={f"x-{name.replace('_', '-')}": value for name, value in given.items()})


@pytest.mark.parametrize(
    ("request_headers", "asked"),
    [
        ({}, NOTHING_ASKED),
        ({"x-heliotrope-class": " batch "}, Asked(service_class="batch")),
        ({"x-heliotrope-class": "x" * 300, "x-heliotrope-priority": "-3"}, Asked(priority=-3)),
        ({"x-llm-d-inference-objective": "known"}, Asked(inference_objective="known", priority=7)),
        ({"x-gateway-inference-objective": "other"}, Asked(inference_objective="other")),
        (
            {"x-llm-d-inference-objective": "known", "x-heliotrope-priority": "1"},
            Asked(inference_objective="known", priority=1),
        ),
        ({"x-heliotrope-objective": "energy"}, Asked(order=(Term.ENERGY,))),
        ({"x-heliotrope-objective": "risk=1"}, Asked(weights={Term.RISK: 1.0})),
        ({"x-heliotrope-regions": "es,no"}, Asked(regions=frozenset({"es", "no"}))),
        ({"x-slo-ttft-ms": "250"}, Asked(ttft_slo_seconds=0.25)),
    ],
)
def test_headers_are_read(request_headers: Mapping[str, str], asked: Asked) -> None:
    assert asked_of(Gateway(given=request_headers), {"known": 7}.get) == asked


@pytest.mark.parametrize(
    "name", ["x-heliotrope-priority", "x-heliotrope-objective", "x-heliotrope-regions", "x-llm-d-slo-tpot-ms"]
)
def test_a_malformed_header_is_a_400_that_names_it(name: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        asked_of(Gateway(given={name: " "}))
    assert caught.value.path == name
    answer = Bench(policy=POLICY).send(Gateway(chat(), given={name: " "}))
    assert answer.rejected is not None
    assert answer.rejected[0] == 400
    assert name in answer.rejected[1]["error"]["message"]


@given(values=st.lists(st.text(max_size=30), min_size=len(OWN_HEADERS), max_size=len(OWN_HEADERS)))
def test_no_value_of_our_headers_is_worse_than_a_400(values: list[str]) -> None:
    request = Gateway(given=dict(zip(OWN_HEADERS, values, strict=True)))
    try:
        asked_of(request)
    except InvalidInputError as error:
        assert error.path in OWN_HEADERS  # noqa: PT017 - either outcome is right


def test_our_headers_never_reach_the_engine_and_a_refused_promise_does_not_either() -> None:
    request = Gateway(given={"x-heliotrope-class": "a", "x-slo-ttft-ms": "5", "x-other": "1"})
    assert to_remove(request, None) == ("x-heliotrope-class",)
    refused = Provenance(refused=((Override.SLO, "why"), (Override.REGIONS, "not allowed")))
    assert to_remove(request, refused) == ("x-heliotrope-class", "x-slo-ttft-ms")
    assert refusals(refused) == ((REFUSED_HEADER, "slo: why; regions: not allowed"),)
    assert refusals(Provenance()) == refusals(None) == ()


def test_what_is_refused_is_told_and_the_policys_own_holds() -> None:
    bench = Bench(policy=POLICY)
    wishes = {"x-heliotrope-objective": "latency", "x-heliotrope-regions": "dirty", "x-llm-d-slo-ttft-ms": "500"}
    answer = bench.send(Gateway(chat(), given=wishes))
    assert answer.routed_to == "10.0.0.2:8000"
    assert dict(answer.response_headers) == {
        REFUSED_HEADER: "objective: not allowed by the policy; regions: not allowed by the policy"
    }
    assert set(answer.removed) == {"x-heliotrope-objective", "x-heliotrope-regions"}
    assert answer.ctx.ttft_slo_seconds == 0.5


def test_what_is_allowed_is_given_without_a_word() -> None:
    bench = Bench(policy=replace(POLICY, overrides=ALL))
    answer = bench.send(Gateway(chat(), given={"x-heliotrope-regions": "dirty"}))
    assert answer.routed_to == "10.0.0.1:8000"
    assert answer.response_headers == ()


def test_a_promise_out_of_bounds_is_replaced_by_the_policys() -> None:
    bench = Bench(policy=replace(POLICY, overrides=ALL))
    answer = bench.send(Gateway(chat(), given={"x-slo-ttft-ms": "1"}))
    assert answer.ctx.ttft_slo_seconds == POLICY.ttft_slo_seconds
    assert answer.removed == ("x-slo-ttft-ms",)
    assert dict(answer.response_headers)[REFUSED_HEADER].startswith("slo: TTFT of 0.001 s is not between")


def test_under_advise_and_without_a_policy_the_answer_says_nothing() -> None:
    for policy in (None, replace(POLICY, enforce=False)):
        answer = Bench(policy=policy).send(Gateway(chat(), given={"x-heliotrope-objective": "latency"}))
        assert answer.response_headers == ()
        assert answer.removed == ("x-heliotrope-objective",)


def test_regions_that_leave_nothing_are_a_503_with_the_reason() -> None:
    bench = Bench(policy=replace(POLICY, overrides=ALL))
    answer = bench.send(Gateway(chat(), given={"x-heliotrope-regions": "mars"}))
    assert answer.rejected is not None
    assert answer.rejected[0] == 503
    assert answer.rejected[2]["x-llm-d-request-dropped-reason"] == "rejected-nothing-feasible"
    assert "region not allowed (2)" in answer.rejected[1]["error"]["message"]
    recorded = bench.log.newest(1)[0]["carbon_decision"]
    assert recorded["outcome"] == "nothing-feasible"
    outcome = {"outcome": "nothing-feasible", "decided_by": "constraints", "region": "unknown", "enforced": "true"}
    assert bench.count("heliotrope_decisions_total", **outcome) == 1
    assert bench.count("heliotrope_overrides_total", override="regions", result="applied") == 1
    assert recorded["overrides"]["applied"] == ["regions"]


def test_a_class_and_an_event_decide_where_requests_go() -> None:
    fast = Comparison(Objective.SOFT_MULTIPLIER, soft_weight=0.0)
    policy = replace(
        POLICY,
        classes=(ServiceClass("interactive", frozenset({"chat"}), comparison=fast, answers_demand=False),),
        events=(DemandEvent("now", 0.0, 2e9),),
        event_comparison=Comparison(Objective.LEXICOGRAPHIC, order=(Term.ENERGY,)),
    )
    bench = Bench(policy=policy)
    for state in bench.store.states():
        if state.endpoint.name == "b":
            state.metrics = replace(state.metrics, kv_usage=0.9)  # type: ignore[type-var]
    plain = bench.send(Gateway(chat()))
    assert plain.ctx.request.asked == NOTHING_ASKED
    assert bench.log.newest(1)[0]["carbon_decision"]["event"] == "now"
    chatty = bench.send(Gateway(chat(), given={"x-llm-d-inference-objective": "chat"}))
    assert chatty.routed_to == "10.0.0.1:8000"  # by score alone
    found = bench.log.newest(1)[0]["carbon_decision"]
    assert (found["service_class"], found["event"]) == ("interactive", None)


@pytest.mark.parametrize(
    ("status", "cause", "failed"),
    [
        (200, Cause.COMPLETE, 0.0),
        (404, Cause.COMPLETE, 0.0),
        (500, Cause.COMPLETE, 1.0),
        (504, Cause.COMPLETE, 1.0),
        (200, Cause.DISCONNECTED, 0.5),
        (None, Cause.DISCONNECTED, 0.5),
        (503, Cause.DISCONNECTED, 1.0),
        (200, Cause.SHUTDOWN, None),
        (None, Cause.PROTOCOL, None),
    ],
)
def test_whose_failure_an_end_is(status: int | None, cause: Cause, failed: float | None) -> None:
    assert failure_of(report(status, cause=cause)) == failed


def test_endpoints_that_fail_are_left_where_risk_comes_first() -> None:
    bench = Bench(policy=replace(POLICY, order=(Term.RISK, Term.CARBON)))
    first = bench.send(Gateway(chat()))
    assert first.routed_to == "10.0.0.2:8000"
    bench.director.done(first.ctx, report(500))
    for _ in range(5):
        again = bench.send(Gateway(chat()))
        bench.director.done(again.ctx, report(500 if again.routed_to == "10.0.0.2:8000" else 200))
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.1:8000"
    bench.now_s += 3600.0
    bench.apply()
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.2:8000"  # long forgotten


def test_a_region_gets_no_more_than_its_share() -> None:
    bench = Bench(policy=replace(POLICY, largest_region_share=0.6))
    sent = [bench.send(Gateway(chat(), given={"x-request-id": f"r-{i}"})).routed_to for i in range(100)]
    assert 58 <= sent.count("10.0.0.2:8000") <= 61
    assert sent.count(None) == 0
