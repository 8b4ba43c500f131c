"""The spans of whole requests through the director: names, parents, times, attributes, and what must not be in them."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode
from tests.support.gates import trained_gate
from tests.unit.epp.tracing.bench import (
    ENGINE,
    PARENT,
    POLICY,
    SECRET,
    UNIX_OFFSET_S,
    Bench,
    Gateway,
    chat,
    only,
    report,
)
from tests.unit.epp.tracing.placements import placed

from heliotrope.cache.session_rules import SessionMode, SessionRules
from heliotrope.decide.candidates import Hardware
from heliotrope.decide.policy import Comparison, DecisionPolicy, DemandEvent, Objective, ServiceClass
from heliotrope.decide.quality import Group, Level, Lower, Member, ModelRules
from heliotrope.predict.reasoning import Effort
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.outcomes.energy import EngineShare, RequestEnergy
from heliotrope_epp.tracing import attributes as a
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.transport.interface import Cause

TREE = {
    "gateway.request": None,
    "gateway.request_orchestration": "gateway.request",
    "run_scheduler_profile": "gateway.request_orchestration",
    "filter_endpoints": "run_scheduler_profile",
    "llm_d.epp.scoring": "run_scheduler_profile",
    "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
    "llm_d.epp.scorer.kv-cache-utilization-scorer": "llm_d.epp.scoring",
    "llm_d.epp.scorer.prefix-cache-scorer": "llm_d.epp.scoring",
    "pick_endpoints": "run_scheduler_profile",
}

ENCODERS = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: encode-filter
- type: decode-filter
- type: always-disagg-multimodal-decider
- type: disagg-profile-handler
  parameters: {deciders: {encode: always-disagg-multimodal-decider}}
schedulingProfiles:
- {name: encode, plugins: [{pluginRef: encode-filter}]}
- {name: decode, plugins: [{pluginRef: decode-filter}]}
"""
ENERGY = RequestEnergy(
    start_unix_s=UNIX_OFFSET_S + 100.05,
    end_unix_s=UNIX_OFFSET_S + 101.55,
    millijoules=59_870,
    idle_joules=12.25,
    host_joules=8.5,
    accelerator_seconds=0.31,
    coverage=1.0,
)


SHARED = replace(
    ENERGY,
    engines=(
        EngineShare("ns/b", "clean", "ns/v-b", 58_200, 12.0, 8.0, 0.3),
        EngineShare("ns/e", "dirty", None, 1_670, 0.25, 0.5, 0.01),
    ),
)


def parents(spans: list[ReadableSpan]) -> dict[str, str | None]:
    names = {span.context.span_id: span.name for span in spans}
    return {span.name: None if span.parent is None else names.get(span.parent.span_id, "remote") for span in spans}


def answered(bench: Bench, **usage: int) -> Gateway:
    request = bench.send(Gateway(chat()))
    bench.director.done(request.ctx, report(**(usage or {"prompt": 700, "output": 11, "cached": 16})))
    return request


def test_the_tree_is_llm_ds_and_complete() -> None:
    bench = Bench()
    answered(bench)
    spans = bench.spans()
    assert parents(spans) == TREE
    assert len({span.context.trace_id for span in spans}) == 1
    assert [span.name for span in spans if span.kind is SpanKind.SERVER] == ["gateway.request"]
    assert all(span.status.status_code is StatusCode.UNSET for span in spans)


def test_children_lie_within_their_parents_and_follow_each_other() -> None:
    bench = Bench()
    answered(bench)
    spans = {span.name: span for span in bench.spans()}
    for name, parent in TREE.items():
        span = spans[name]
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time < span.end_time
        if parent is not None:
            around = spans[parent]
            assert around.start_time <= span.start_time  # type: ignore[operator]
            assert span.end_time <= around.end_time  # type: ignore[operator]
    steps = ["filter_endpoints", "llm_d.epp.scoring", "pick_endpoints"]
    for before, after in pairwise(steps):
        assert spans[before].end_time == spans[after].start_time
    request = spans["gateway.request"]
    assert request.start_time == pytest.approx((UNIX_OFFSET_S + 100.0) * 1e9, abs=1e6)
    assert request.end_time == pytest.approx((UNIX_OFFSET_S + 101.0) * 1e9, abs=1e6)


def test_the_request_says_how_it_went() -> None:
    bench = Bench()
    answered(bench)
    seen = dict(only(bench.spans(), "gateway.request").attributes or {})
    assert seen == {
        "http.request.method": "POST",
        "url.path": "/v1/chat/completions",
        "url.scheme": "https",
        "server.address": "models.example.com",
        "server.port": 8443,
        "http.response.status_code": 200,
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "llama",
        "gen_ai.request.id": "r-1",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 64,
        "gen_ai.usage.input_tokens": 700,
        "gen_ai.usage.output_tokens": 11,
        "gen_ai.usage.cache_read.input_tokens": 16,
        "gen_ai.response.time_to_first_chunk": pytest.approx(0.3),
        "heliotrope.endpoint": "ns/b",
        "heliotrope.region": "clean",
        "heliotrope.variant": "ns/v-b",
        "heliotrope.arm": "policy",
        "heliotrope.cause": "complete",
        "heliotrope.ttft_seconds": pytest.approx(bench.finished[0].ttft_seconds),
        "heliotrope.tpot_seconds": pytest.approx(0.06),
    }


def test_the_decision_carries_its_estimates_and_what_they_rest_on() -> None:
    bench = Bench()
    answered(bench)
    span = only(bench.spans(), "gateway.request_orchestration")
    seen: dict[str, Any] = dict(span.attributes or {})
    expected = bench.finished[0].expected
    assert expected is not None
    assert seen["heliotrope.estimate.attributed_joules"] == expected.energy_joules
    assert seen["heliotrope.estimate.gco2e_grams"] == expected.grams_co2e
    assert seen["heliotrope.estimate.gco2e_grams"] == pytest.approx(
        seen["heliotrope.estimate.energy_joules"] / 3.6e6 * 1.2 * 20.0
    )
    assert seen["heliotrope.estimate.water_liters"] == pytest.approx(
        seen["heliotrope.estimate.energy_joules"] / 3.6e6 * 0.5
    )
    assert seen["heliotrope.estimate.ttft_seconds"] == expected.ttft_seconds
    assert seen["heliotrope.estimate.cost"] == expected.cost
    assert seen["heliotrope.carbon.intensity_g_per_kwh"] == 20.0
    assert seen["heliotrope.carbon.age_seconds"] == pytest.approx(60.0, abs=0.1)
    assert {name: seen[f"heliotrope.{name}"] for name in (
        "policy", "enforced", "outcome", "decided_by", "candidates", "decision.endpoint",
        "phase.prefill", "phase.decode", "pue", "carbon.freshness", "carbon.signal_type", "carbon.emission_factor",
        "carbon.source", "carbon.estimated", "avoided_recompute_joules", "avoided_recompute_seconds", "cached_tokens",
    )} == {
        "policy": "green", "enforced": True, "outcome": "within-slo", "decided_by": "dominance", "candidates": 2,
        "decision.endpoint": "ns/b", "phase.prefill": "ns/b", "phase.decode": "ns/b", "pue": 1.2,
        "carbon.freshness": "Fresh", "carbon.signal_type": "average", "carbon.emission_factor": "lifecycle",
        "carbon.source": "test", "carbon.estimated": False, "avoided_recompute_joules": 0.0,
        "avoided_recompute_seconds": 0.0, "cached_tokens": 0.0,
    }  # fmt: skip
    assert "heliotrope.dropped_terms" not in seen


def test_what_the_cache_saves_is_the_prefill_that_need_not_run() -> None:
    bench = Bench()
    answered(bench)
    second = bench.send(Gateway(chat()))
    spans = [s for s in bench.spans() if s.name == "gateway.request_orchestration"]
    seen: dict[str, Any] = dict(spans[-1].attributes or {})
    prompt, cached = second.ctx.request.prompt_tokens, seen["heliotrope.cached_tokens"]
    assert 0.0 < cached <= prompt
    saved = float(ENGINE.prefill_joules(float(prompt))) - float(ENGINE.prefill_joules(max(prompt - cached, 1.0)))
    assert seen["heliotrope.avoided_recompute_joules"] == pytest.approx(saved)
    rest = max(prompt - cached, 1.0)
    seconds = float(ENGINE.prefill_seconds(float(prompt))) - float(ENGINE.prefill_seconds(rest))
    assert seen["heliotrope.avoided_recompute_seconds"] == pytest.approx(seconds)
    assert saved > cached * ENGINE.energy.prefill_joules_per_token * 0.9


def test_scorers_and_pick_say_what_told_the_endpoints_apart() -> None:
    bench = Bench()
    b = bench.store.get("ns/b")
    assert b is not None
    b.metrics = None
    answered(bench)
    spans = bench.spans()
    queue = dict(only(spans, "llm_d.epp.scorer.queue-scorer").attributes or {})
    assert queue["llm_d.epp.scorer.type"] == queue["llm_d.epp.scorer.name"] == "queue-scorer"
    assert queue["llm_d.epp.scorer.weight"] == 2.0
    assert queue["llm_d.epp.scorer.candidate_endpoints"] == 2
    assert queue["llm_d.epp.scorer.score.max"] == 1.0
    pick = dict(only(spans, "pick_endpoints").attributes or {})
    assert pick["llm_d.epp.picker.top_endpoints"] == ("ns/a", "ns/b")
    assert pick["llm_d.epp.picker.top_scores"][0] > pick["llm_d.epp.picker.top_scores"][1]
    assert pick["llm_d.epp.picker.candidate_endpoints"] == 2
    filters = dict(only(spans, "filter_endpoints").attributes or {})
    assert (filters["llm_d.epp.filter.candidate_endpoints"], filters["llm_d.epp.filter.filtered_endpoints"]) == (2, 2)


def test_a_stale_signal_is_told_and_nothing_is_made_up() -> None:
    bench = Bench(fresh=False)
    answered(bench)
    seen: dict[str, Any] = dict(only(bench.spans(), "gateway.request_orchestration").attributes or {})
    assert seen["heliotrope.carbon.freshness"] == "Stale"
    assert seen["heliotrope.dropped_terms"][0].startswith("carbon: signal of ")
    assert "heliotrope.estimate.gco2e_grams" not in seen
    assert "heliotrope.carbon.intensity_g_per_kwh" not in seen
    assert "heliotrope.estimate.energy_joules" in seen


def test_under_advise_both_endpoints_are_told() -> None:
    for i in range(20):
        bench = Bench(policy=DecisionPolicy("green", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1, enforce=False))
        bench.send(Gateway(chat(), given={"x-request-id": f"r-{i}"}))
        seen: dict[str, Any] = dict(only(bench.spans(), "gateway.request_orchestration").attributes or {})
        assert seen["heliotrope.enforced"] is False
        assert seen["heliotrope.decision.endpoint"] == "ns/b"
        if seen["heliotrope.endpoint"] == "ns/a":
            assert seen["heliotrope.region"] == "dirty"
            return
    raise AssertionError("the configured picker never chose the other endpoint")


def test_without_a_policy_there_is_nothing_to_say_of_one() -> None:
    bench = Bench(policy=None)
    answered(bench)
    seen: dict[str, Any] = dict(only(bench.spans(), "gateway.request_orchestration").attributes or {})
    assert seen["heliotrope.arm"] == "unsteered"
    assert not [
        name for name in seen if name.startswith(("heliotrope.estimate", "heliotrope.policy", "heliotrope.outcome"))
    ]


REFUSED = [
    (Gateway(b"{"), {}, 400, "rejected-bad-request", {"gateway.request_orchestration"}),
    (Gateway(chat(), subset=()), {}, 503, "rejected-no-endpoints", {"gateway.request_orchestration"}),
    (Gateway(chat()), {"max_inflight": 0}, 429, "rejected-saturated", {"gateway.request_orchestration"}),
]


@pytest.mark.parametrize(("request_", "limits", "status", "reason", "children"), REFUSED)
def test_a_refusal_is_a_short_tree(
    request_: Gateway, limits: dict[str, int], status: int, reason: str, children: set[str]
) -> None:
    bench = Bench(**limits)
    assert bench.send(request_).status == status
    spans = bench.spans()
    assert {span.name for span in spans} == children | {"gateway.request"}
    root = only(spans, "gateway.request")
    assert root.attributes is not None
    assert root.attributes["http.response.status_code"] == status
    assert root.attributes["heliotrope.rejection"] == reason
    assert root.attributes.get("error.type") == (str(status) if status >= 500 else None)
    assert (root.status.status_code is StatusCode.ERROR) == (status >= 500)
    decision = only(spans, "gateway.request_orchestration")
    assert decision.status.status_code is StatusCode.ERROR
    assert decision.status.description == reason


def test_nothing_feasible_shows_who_was_compared_and_why_not() -> None:
    bench = Bench(policy=DecisionPolicy("green", allowed_regions=frozenset({"elsewhere"})))
    assert bench.send(Gateway(chat())).status == 503
    spans = bench.spans()
    assert parents(spans) == TREE
    seen: dict[str, Any] = dict(only(spans, "gateway.request_orchestration").attributes or {})
    assert seen["heliotrope.outcome"] == "nothing-feasible"
    assert "region not allowed (2)" in seen["heliotrope.reason"]
    assert "heliotrope.endpoint" not in seen


def test_filters_that_leave_nothing_end_the_tree() -> None:
    config = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - {type: decode-filter}
  - {type: queue-scorer}
  - {type: label-selector-filter, name: nobody, parameters: {matchLabels: {app: nobody}}}
schedulingProfiles:
  - name: default
    plugins: [{pluginRef: nobody}, {pluginRef: queue-scorer}]
"""
    bench = Bench(config=config)
    assert bench.send(Gateway(chat())).status == 503
    spans = bench.spans()
    assert set(parents(spans)) == {
        "gateway.request", "gateway.request_orchestration", "run_scheduler_profile", "filter_endpoints",
    }  # fmt: skip
    assert dict(only(spans, "filter_endpoints").attributes or {})["llm_d.epp.filter.filtered_endpoints"] == 0


@pytest.mark.parametrize("cause", [cause for cause in Cause if cause is not Cause.COMPLETE])
def test_an_answer_that_did_not_end_is_an_error_of_that_name(cause: Cause) -> None:
    bench = Bench()
    request = bench.send(Gateway(chat()))
    bench.director.done(request.ctx, report(None, cause=cause))
    root = only(bench.spans(), "gateway.request")
    assert root.attributes is not None
    assert root.status.status_code is StatusCode.ERROR
    assert root.attributes["error.type"] == root.attributes["heliotrope.cause"] == cause.value
    assert "http.response.status_code" not in root.attributes


def test_a_client_that_left_first_is_told_as_well() -> None:
    bench = Bench()
    bench.send(Gateway(chat(), gone=True))
    root = only(bench.spans(), "gateway.request")
    assert dict(root.attributes or {})["heliotrope.cause"] == "cancelled"


def test_a_path_without_a_decision_is_one_span() -> None:
    bench = Bench()
    request = bench.send(Gateway(method="BREW", path="/v1/models"))
    bench.director.done(request.ctx, report())
    spans = bench.spans()
    assert [span.name for span in spans] == ["gateway.request"]
    seen = dict(spans[0].attributes or {})
    assert seen["url.path"] == "/v1/models"
    assert seen["http.request.method"] == "_OTHER"
    assert "gen_ai.operation.name" not in seen


def test_measured_energy_is_a_late_child_of_the_request() -> None:
    bench = Bench()
    answered(bench)
    bench.energy.measured(bench.finished[0], ENERGY)
    spans = bench.spans()
    energy, root = only(spans, "heliotrope.energy"), only(spans, "gateway.request")
    assert energy.parent is not None
    assert energy.parent.span_id == root.context.span_id
    assert energy.context.trace_id == root.context.trace_id
    assert (energy.start_time, energy.end_time) == (
        pytest.approx(ENERGY.start_unix_s * 1e9, abs=1e3),
        pytest.approx(ENERGY.end_unix_s * 1e9, abs=1e3),
    )
    assert energy.end_time > root.end_time  # type: ignore[operator]
    seen = dict(energy.attributes or {})
    estimated = dict(only(spans, "gateway.request_orchestration").attributes or {})[a.ATTRIBUTED_JOULES.name]
    assert seen == {
        "heliotrope.energy.measured_joules": 59.87,
        "heliotrope.energy.estimated_joules": estimated,
        "heliotrope.energy.relative_error": pytest.approx((estimated - 59.87) / 59.87),  # type: ignore[operator]
        "heliotrope.energy.idle_joules": 12.25,
        "heliotrope.energy.host_joules": 8.5,
        "heliotrope.energy.coverage": 1.0,
        "heliotrope.energy.accelerator_seconds": 0.31,
        "heliotrope.endpoint": "ns/b",
        "heliotrope.region": "clean",
        "heliotrope.variant": "ns/v-b",
    }


def test_what_each_engine_drew_is_in_the_span() -> None:
    bench = Bench()
    answered(bench)
    bench.energy.measured(bench.finished[0], SHARED)
    seen = dict(only(bench.spans(), "heliotrope.energy").attributes or {})
    assert seen[a.ENERGY_ENDPOINTS.name] == ("ns/b", "ns/e")
    assert seen[a.ENERGY_ENDPOINT_JOULES.name] == (58.2, 1.67)
    assert sum(seen[a.ENERGY_ENDPOINT_JOULES.name]) == pytest.approx(seen[a.MEASURED_JOULES.name])  # type: ignore[arg-type]


def test_energy_of_unrecorded_and_unmetered_requests_is_no_span() -> None:
    bench = Bench()
    answered(bench)
    bench.energy.measured(bench.finished[0], None)
    quiet = Bench(sampler=TracingSettings().sampler)
    request = quiet.send(Gateway(chat(), given={"traceparent": PARENT[:-2] + "00"}))
    quiet.director.done(request.ctx, report())
    quiet.energy.measured(quiet.finished[0], ENERGY)
    assert not [span for span in [*bench.spans(), *quiet.spans()] if span.name == "heliotrope.energy"]
    assert quiet.queue.counts().exported == 0


def test_no_span_holds_text_keys_or_tenants() -> None:
    bench = Bench()
    answered(bench)
    bench.energy.measured(bench.finished[0], ENERGY)
    bench.send(Gateway(chat(model=5)))
    text = "".join(span.to_json() for span in bench.spans())
    assert SECRET not in text
    assert "Bearer" not in text


def test_what_clients_write_is_cut() -> None:
    bench = Bench()
    bench.send(Gateway(chat(model="m" * 5000), path="/v1/chat/completions", given={"x-request-id": "i" * 5000}))
    for span in bench.spans():
        for value in (span.attributes or {}).values():
            assert not isinstance(value, str) or len(value) <= 256


def everything() -> list[ReadableSpan]:
    """Spans of requests that together show all that can be shown."""
    spans: list[ReadableSpan] = []
    for policy, fresh in (
        (POLICY, True),
        (POLICY, False),
        (DecisionPolicy("p", allowed_regions=frozenset({"x"})), True),
    ):
        bench = Bench(policy=policy, fresh=fresh)
        request = bench.send(Gateway(chat()))
        if request.ctx is not None:
            bench.director.done(request.ctx, report(prompt=700, output=11, cached=16))
            bench.energy.measured(bench.finished[0], SHARED)
        lost = bench.send(Gateway(chat()))
        if lost.ctx is not None:
            bench.director.done(lost.ctx, report(None, cause=Cause.DISCONNECTED))
        spans += bench.spans()
    return spans + kept_session() + pulled() + resolved() + downgraded() + encoded() + advised() + placed() + held()


def held() -> list[ReadableSpan]:
    """A request that waited for an engine to wake."""
    bench = Bench()
    world = bench.store.world
    bench.store.apply(World())
    bench.send(Gateway(chat()))
    bench.ticks += 50_000
    bench.store.apply(world)
    bench.director.held.look()
    return bench.spans()


def test_the_span_says_how_long_a_request_was_held() -> None:
    (attributes,) = [dict(span.attributes or {}) for span in held() if span.name == a.ORCHESTRATION.name]
    assert attributes[a.HELD_SECONDS.name] == pytest.approx(5.0, abs=0.1)


def downgraded() -> list[ReadableSpan]:
    """A request that a smaller model answers, at a lower effort than its own."""
    small = Member("small", "small", quality=0.9, levels=(Level(Effort.LOW, 0.5, 0.99),))
    group = Group("llama", (Member("llama", "llama", quality=0.9), small))
    rules = ModelRules({"llama": group}, lower=Lower.UNSAID)
    bench = Bench(policy=replace(POLICY, models=rules))
    for state in bench.store.states():
        state.traits = replace(state.traits, hardware=Hardware("H100", 1, "small", "both"))
    bench.send(Gateway(chat()))
    return bench.spans()


def test_a_downgrade_is_seen_in_the_span() -> None:
    (attributes,) = [dict(span.attributes or {}) for span in downgraded() if span.name == a.ORCHESTRATION.name]
    assert attributes[a.MODEL.name] == "llama"
    assert attributes[a.TARGET_MODEL.name] == "small"
    assert attributes[a.MODEL_DOWNGRADED.name] is True
    assert attributes[a.MODEL_REASON.name] == "quality 0.9 of at least 0.765"
    assert attributes[a.REASONING_EFFORT.name] == "low"


def encoded() -> list[ReadableSpan]:
    """A request with an image that another endpoint encodes."""
    bench = Bench(policy=None, config=ENCODERS)
    for state, role in zip(bench.store.states(), ("decode", "encode"), strict=True):
        state.endpoint = replace(state.endpoint, labels={"llm-d.ai/role": role})
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    bench.send(Gateway(chat(messages=[{"role": "user", "content": [image]}])))
    return bench.spans()


def test_the_span_says_where_images_are_encoded() -> None:
    (attributes,) = [dict(span.attributes or {}) for span in encoded() if span.name == a.ORCHESTRATION.name]
    assert attributes[a.ENCODE_ENDPOINTS.name] == ("ns/b",)
    assert attributes[a.PREFILL_ENDPOINT.name] == attributes[a.DECODE_ENDPOINT.name] == "ns/a"
    assert (attributes[a.MEDIA_COUNT.name], attributes[a.MEDIA_UNKNOWN.name]) == (1, 0)
    assert "pictures" not in str(attributes)


def advised() -> list[ReadableSpan]:
    """What a policy would have pulled, and encoded elsewhere, had it been followed."""
    advice = replace(POLICY, enforce=False)
    pull = Bench(policy=advice)
    labels = {"heliotrope.io/kv-transfer": "p2p", "kubernetes.io/hostname": "node-1"}
    for state in pull.store.states():
        state.endpoint = replace(state.endpoint, labels=labels)
    first = pull.send(Gateway(chat(), subset=("10.0.0.0:8000",)))
    pull.director.done(first.ctx, report(prompt=700, output=11, cached=0))
    pull.send(Gateway(chat()))
    bench = Bench(policy=advice, config=ENCODERS)
    for state, role in zip(bench.store.states(), ("decode", "encode"), strict=True):
        where = {"llm-d.ai/role": role, "kubernetes.io/hostname": "node-1"}
        state.endpoint = replace(state.endpoint, labels=where)
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/1.png"}}
    bench.send(Gateway(chat(messages=[{"role": "user", "content": [image]}])))
    return pull.spans() + bench.spans()


def test_the_whole_plan_that_was_not_followed_is_told() -> None:
    spans = [dict(span.attributes or {}) for span in advised() if span.name == a.ORCHESTRATION.name]
    _, pull, encode = spans
    assert pull[a.ENFORCED.name] is False
    assert pull[a.ADVISED_ENDPOINT.name] == pull[a.ADVISED_PREFILL.name] == "ns/b"
    assert (pull[a.ADVISED_KV_ACTION.name], pull[a.ADVISED_KV_SOURCE.name]) == ("PeerTransfer", "ns/a")
    assert pull[a.ADVISED_SAME.name] is False
    assert pull[a.MODELLED_GRAMS.name] > 0.0  # type: ignore[operator]
    assert encode[a.ADVISED_ENCODE.name] == ("ns/b",)
    followed = [dict(span.attributes or {}) for span in pulled() if span.name == a.ORCHESTRATION.name]
    assert not any(a.ADVISED_PREFILL.name in each or a.MODELLED_JOULES.name in each for each in followed)


def resolved() -> list[ReadableSpan]:
    """Two requests of a class, during an event, that ask for too much; the only region has had its share."""
    policy = replace(
        POLICY,
        revision="generation 3",
        classes=(ServiceClass("batch"),),
        events=(DemandEvent("evening", 0.0, 1e10),),
        event_comparison=Comparison(Objective.LEXICOGRAPHIC),
        largest_region_share=0.1,
        allowed_regions=frozenset({"clean"}),
    )
    bench = Bench(policy=policy)
    for model in ("one", "another"):  # so that they are two sessions
        wishes = {"x-heliotrope-class": "batch", "x-heliotrope-regions": "dirty"}
        bench.send(Gateway(chat(model=model), given=wishes))
    return bench.spans()


def test_a_decision_says_where_its_settings_came_from() -> None:
    attributes = [dict(span.attributes or {}) for span in resolved() if span.name == a.ORCHESTRATION.name][1]
    assert attributes[a.POLICY_REVISION.name] == "generation 3"
    assert (attributes[a.SERVICE_CLASS.name], attributes[a.DEMAND_EVENT.name]) == ("batch", "evening")
    assert attributes[a.REFUSED_OVERRIDES.name] == ("regions: not allowed by the policy",)
    assert attributes[a.RELAXED.name] == ("largest region share",)


def kept_session() -> list[ReadableSpan]:
    """Two turns: the gateway allows only the dirty endpoint for the first, and the gate keeps the second there."""
    policy = replace(POLICY, sessions=SessionRules(SessionMode.LEARNED))
    bench = Bench(policy=policy, gate=trained_gate(0.25))
    first = bench.send(Gateway(chat(), subset=("10.0.0.0:8000",)))
    bench.director.done(first.ctx, report(prompt=700, output=11, cached=16))
    bench.send(Gateway(chat()))
    return bench.spans()


def pulled() -> list[ReadableSpan]:
    """Two requests: one to the dirty endpoint, and one to the clean one beside it, which pulls its blocks."""
    bench = Bench()
    labels = {"heliotrope.io/kv-transfer": "p2p", "kubernetes.io/hostname": "node-1"}
    for state in bench.store.states():
        state.endpoint = replace(state.endpoint, labels=labels)
    first = bench.send(Gateway(chat(), subset=("10.0.0.0:8000",)))
    bench.director.done(first.ctx, report(prompt=700, output=11, cached=0))
    bench.send(Gateway(chat()))
    return bench.spans()


def test_a_pull_says_from_where_and_what_it_costs() -> None:
    first, second = [dict(span.attributes or {}) for span in pulled() if span.name == a.ORCHESTRATION.name]
    assert first[a.KV_ACTION.name] == "Recompute"
    assert a.KV_SOURCE.name not in first
    assert second[a.ENDPOINT.name] == "ns/b"
    assert second[a.KV_ACTION.name] == "PeerTransfer"
    assert second[a.KV_SOURCE.name] == "ns/a"
    assert second[a.KV_TRANSFER_JOULES.name] > 0.0  # type: ignore[operator]
    assert second[a.CACHED_TOKENS.name] > 500.0  # type: ignore[operator]
    assert second[a.AVOIDED_JOULES.name] > second[a.KV_TRANSFER_JOULES.name]  # type: ignore[operator]


def test_a_kept_session_says_why() -> None:
    first, second = [dict(span.attributes or {}) for span in kept_session() if span.name == a.ORCHESTRATION.name]
    assert first[a.SESSION_MOVEMENT.name] == "new"
    assert second[a.SESSION_MOVEMENT.name] == "kept"
    assert second[a.SESSION_PREVIOUS.name] == second[a.ENDPOINT.name] == "ns/a"
    assert second[a.SESSION_TURNS.name] == 1
    assert second[a.SESSION_GATE_VALUE.name] == pytest.approx(0.25, abs=0.01)
    assert second[a.DECIDED_BY.name] == "session"


TYPES = {"string": str, "int": int, "double": float, "boolean": bool, "string[]": tuple, "double[]": tuple}


def test_the_table_of_attributes_is_what_is_emitted() -> None:
    table = {span_type.name: {x.name: x.type for x in span_type.attributes} for span_type in a.SPANS}
    seen: dict[str, set[str]] = {name: set() for name in table}
    for span in everything():
        name = a.SCORER.name if span.name.startswith("llm_d.epp.scorer.") else span.name
        for key, value in (span.attributes or {}).items():
            assert key in table[name], f"{name} has {key}"
            assert type(value) is TYPES[table[name][key]], f"{name}: {key} is {value!r}"
            seen[name].add(key)
    assert seen == {name: set(keys) for name, keys in table.items()}
