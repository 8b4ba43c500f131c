"""The director with the real store and pipeline; only the gateway's side is played by a recorder."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.quality import Predictor
from heliotrope.engine import profiles
from heliotrope.predict.features import column_of
from heliotrope.predict.output_length import OutputLengths
from heliotrope.predict.reasoning import Effort
from heliotrope_epp.clock import Clock
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.director.director import Director, DirectorSettings
from heliotrope_epp.director.recorder import DecisionLog
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import HOLDOUT, STEERED, UNSTEERED, FinishedRequest
from heliotrope_epp.outcomes.meter import NoMeter
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.models.predictor import QualityPredictor
from heliotrope_epp.plugins.models.router import ModelRouter
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.telemetry.metrics import Metrics
from heliotrope_epp.transport.interface import Cause, Headers, Report

ENGINE = profiles.load("llama-3.1-8b-h100")


@dataclass(slots=True)
class Gateway:
    """A request as the transport hands it over; remembers the answer."""

    body: bytes = b""
    method: str = "POST"
    path: str = "/v1/chat/completions"
    given: Mapping[str, str] = field(default_factory=dict)
    subset: tuple[str, ...] | None = None
    gone: bool = False
    routed_to: str | None = None
    sent: Headers = ()
    removed: tuple[str, ...] = ()
    response_headers: Headers = ()
    sent_body: bytes | None = None
    rejected: tuple[int, dict[str, Any], dict[str, str]] | None = None
    ctx: Any = None
    received_s: float = 0.0
    cancelled: bool = False
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def header(self, name: str) -> str | None:
        return {"x-request-id": "r-1", **self.given}.get(name)

    def headers(self) -> dict[str, str]:
        return {"x-request-id": "r-1", **self.given}

    def route(
        self,
        endpoint: str | None,
        set_headers: Headers = (),
        remove_headers: Sequence[str] = (),
        body: bytes | None = None,
        dynamic_metadata: Mapping[str, Mapping[str, Any]] | None = None,
        response_headers: Headers = (),
        ctx: object = None,
    ) -> bool:
        if self.gone:
            return False
        self.routed_to, self.sent, self.ctx = endpoint, set_headers, ctx
        self.removed, self.response_headers = tuple(remove_headers), response_headers
        self.sent_body = body
        return True

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:
        self.rejected = (status, json.loads(body), dict(headers))
        return True


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello " * 100}], **fields}).encode()


class Bench:
    """A director over two endpoints in two regions."""

    def __init__(
        self,
        *,
        policy: DecisionPolicy | None = None,
        predictors: Mapping[Predictor, QualityPredictor] | None = None,
        **settings: Any,
    ) -> None:
        self.now_s = 100.0
        clock = Clock(monotonic=lambda: self.now_s, unix=lambda: 1_000_000.0 + self.now_s)
        self.store = EndpointStore()
        self.registry = CollectorRegistry()
        context = PluginContext(carbon=self.store, clock=clock)
        pipeline = Pipeline(load("", builtin_registry(), context).scheduling, context)
        self.lengths = OutputLengths()
        self.log = DecisionLog(10)
        self.finished: list[FinishedRequest] = []
        self.director = Director(
            store=self.store,
            pipeline=pipeline,
            output_lengths=self.lengths,
            metrics=Metrics(self.registry),
            decisions=self.log,
            meter=NoMeter(Sinks([self])),
            clock=clock,
            settings=DirectorSettings(**settings),
            model_router=ModelRouter(self.store, predictors or {}),
        )
        self.endpoints = (
            Endpoint("a", "ns", "10.0.0.1", 8000),
            Endpoint("b", "ns", "10.0.0.2", 8000),
        )
        self.policy = policy
        self.apply()

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        assert energy is None
        self.finished.append(request)

    def metered(self, interval: MeteredInterval) -> None:
        raise AssertionError("nothing is metered here")

    def apply(self, intensities: tuple[float, float] = (300.0, 20.0)) -> None:
        from heliotrope.api.v1alpha1 import RegionProfile

        regions = {
            name: RegionProfile.model_validate(
                {
                    "metadata": {"name": name},
                    "spec": {"zone": "Z", "source": {"static": {"intensityGramsPerKwh": str(value)}}},
                }
            )
            for name, value in zip(("dirty", "clean"), intensities, strict=True)
        }
        traits = {
            "ns/a": Traits(region="dirty", engine=ENGINE),
            "ns/b": Traits(region="clean", engine=ENGINE),
        }
        self.store.apply(World(endpoints=self.endpoints, traits=traits, policy=self.policy, regions=regions))
        self.store.set_signals(
            {
                name: CarbonSignal(Reading(value, 1_000_000.0, "t", SignalType.AVERAGE, EmissionFactor.LIFECYCLE), 1e9)
                for name, value in zip(("dirty", "clean"), intensities, strict=True)
            }
        )
        for state in self.store.states():
            state.metrics = EngineMetrics(
                self.now_s, running=0.0, waiting=0.0, kv_usage=0.0, block_size=16, num_blocks=999
            )

    def send(self, request: Gateway) -> Gateway:
        self.director.decide(request)
        return request

    def count(self, name: str, **labels: str) -> float:
        value = self.registry.get_sample_value(name, labels)
        return 0.0 if value is None else value


def report(status: int | None = 200, *, cause: Cause = Cause.COMPLETE, tail: bytes = b"") -> Report:
    return Report(status, {}, None, 3, 100, 100.0, 100.0, 100.1, 100.5, 100.6, tail, cause)


POLICY = DecisionPolicy("p", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1)


def test_an_enforced_policy_sends_to_the_clean_region() -> None:
    bench = Bench(policy=POLICY)
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.2:8000"
    bench.apply(intensities=(20.0, 300.0))
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.1:8000"


def test_under_advise_the_decision_is_kept_but_not_followed() -> None:
    advise = DecisionPolicy("p", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1, enforce=False)
    seen = set()
    for i in range(40):
        bench = Bench(policy=advise)
        seen.add(bench.send(Gateway(chat(), given={"x-request-id": f"r-{i}"})).routed_to)
        recorded = bench.log.newest(1)[0]
        assert recorded["carbon_decision"]["endpoint"] == "ns/b"
        assert not recorded["carbon_decision_enforced"]
    assert seen == {"10.0.0.1:8000", "10.0.0.2:8000"}


def test_without_a_policy_features_are_kept_while_somebody_learns() -> None:
    for learning in (True, False):
        bench = Bench(learning=learning)
        sent = bench.send(Gateway(chat(stream=True)))
        bench.director.done(sent.ctx, report())
        (told,) = bench.finished
        assert (told.policy, told.expected) == (None, None)
        assert (told.features is not None) is learning
        if told.features is not None:
            assert told.features[column_of("prompt_tokens")] == told.believed_prompt_tokens
            assert told.features[column_of("running")] == 0.0, "as it was before the request"


def test_a_request_whose_client_has_left_keeps_no_features() -> None:
    bench = Bench(learning=True)
    assert bench.send(Gateway(chat(), gone=True)).ctx is None
    assert bench.finished == []


def test_the_clients_own_slo_is_read_and_checked() -> None:
    bench = Bench(policy=POLICY)
    ok = bench.send(Gateway(chat(), given={"x-llm-d-slo-ttft-ms": "250"}))
    assert ok.ctx.request.ttft_slo_seconds == 0.25
    bad = bench.send(Gateway(chat(), given={"x-slo-tpot-ms": "soon"}))
    assert bad.rejected is not None
    assert bad.rejected[0] == 400
    assert "x-slo-tpot-ms" in bad.rejected[1]["error"]["message"]


@pytest.mark.parametrize("body", [b"{", b"{}", b'{"model": "m"}', b"\xff" * 50])
def test_a_bad_body_is_a_400_and_nothing_is_held(body: bytes) -> None:
    bench = Bench()
    answer = bench.send(Gateway(body))
    assert answer.rejected is not None
    assert answer.rejected[0] == 400
    assert answer.rejected[2]["x-llm-d-request-dropped-reason"] == "rejected-bad-request"
    assert bench.director.inflight == 0
    assert bench.count("heliotrope_rejected_requests_total", code="400", reason="rejected-bad-request") == 1


def test_no_endpoint_is_a_503_with_its_reason() -> None:
    bench = Bench()
    for request in (Gateway(chat(), subset=()), Gateway(chat(), subset=("10.9.9.9",))):
        answer = bench.send(request)
        assert answer.rejected is not None
        assert answer.rejected[0] == 503
        assert answer.rejected[2]["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"


def test_a_sleeping_engine_gets_nothing() -> None:
    bench = Bench(policy=POLICY)
    clean = bench.store.get("ns/b")
    assert clean is not None
    clean.metrics = EngineMetrics(bench.now_s, running=0.0, waiting=0.0, kv_usage=0.0, asleep=True)
    assert bench.send(Gateway(chat())).routed_to == "10.0.0.1:8000"


def test_hard_constraints_leave_a_503_that_says_why() -> None:
    bench = Bench(policy=DecisionPolicy("p", allowed_regions=frozenset({"elsewhere"})))
    answer = bench.send(Gateway(chat()))
    assert answer.rejected is not None
    assert answer.rejected[0] == 503
    assert answer.rejected[2]["x-llm-d-request-dropped-reason"] == "rejected-nothing-feasible"
    assert "region" in answer.rejected[1]["error"]["message"]


def test_beyond_the_limit_a_client_gets_a_429() -> None:
    bench = Bench(max_inflight=1)
    first = bench.send(Gateway(chat()))
    answer = bench.send(Gateway(chat()))
    assert answer.rejected is not None
    assert answer.rejected[0] == 429
    bench.director.done(first.ctx, report())
    assert bench.send(Gateway(chat())).routed_to is not None


def test_requests_without_a_model_go_to_the_least_busy_endpoint() -> None:
    bench = Bench()
    first = bench.send(Gateway(method="GET", path="/v1/models"))
    second = bench.send(Gateway(method="GET", path="/v1/models"))
    assert {first.routed_to, second.routed_to} == {"10.0.0.1:8000", "10.0.0.2:8000"}


@pytest.mark.parametrize("cause", list(Cause))
def test_whatever_happens_to_a_request_nothing_of_it_is_left(cause: Cause) -> None:
    bench = Bench()
    answers = [bench.send(Gateway(chat(stream=True))) for _ in range(5)]
    assert sum(len(s.inflight) for s in bench.store.states()) == bench.director.inflight == 5
    for answer in answers:
        bench.director.done(answer.ctx, report(None if cause is Cause.DISCONNECTED else 200, cause=cause))
    assert sum(len(s.inflight) for s in bench.store.states()) == bench.director.inflight == 0


def test_a_client_that_left_before_the_answer_holds_nothing() -> None:
    bench = Bench()
    bench.send(Gateway(chat(), gone=True))
    assert bench.director.inflight == 0
    assert sum(len(s.inflight) for s in bench.store.states()) == 0


def test_answers_teach_the_expected_length() -> None:
    bench = Bench()
    tail = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":900}}\n\ndata: [DONE]\n\n'
    before = bench.lengths.expected_tokens("m", None, bench.now_s)
    for _ in range(50):
        answer = bench.send(Gateway(chat(stream=True)))
        bench.now_s += 22.5
        for state in bench.store.states():
            assert state.metrics is not None
            state.metrics = EngineMetrics(bench.now_s, running=0.0, waiting=0.0, kv_usage=0.0)
        bench.director.done(answer.ctx, report(tail=tail))
    assert bench.lengths.expected_tokens("m", None, bench.now_s) > 2 * before


def test_what_was_expected_and_what_came_of_it_are_told_together() -> None:
    bench = Bench(policy=POLICY)
    usage = b'{"usage": {"prompt_tokens": 140, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 64}}}'
    headers = {"x-llm-d-inference-fairness-id": "team-a"}
    body = chat(stream=True, reasoning_effort="high", thinking_token_budget=512)
    gateway = bench.send(Gateway(body, given=headers))
    bench.director.done(gateway.ctx, report(tail=usage))
    (told,) = bench.finished
    assert (told.request_id, told.model, told.tenant, told.endpoint) == ("r-1", "m", "team-a", "ns/b")
    assert (told.prompt_tokens, told.cached_tokens, told.output_tokens) == (140, 64, 5)
    assert (told.policy, told.arm) == ("p", STEERED)
    assert told.ttft_seconds == pytest.approx(0.1)
    assert told.tpot_seconds == pytest.approx(0.1)
    assert told.dispatched_unix_s == 1_000_100.0
    assert told.expected is not None
    assert told.expected.energy_joules > 0.0
    assert told.features is not None
    assert told.features[column_of("prompt_tokens")] == told.believed_prompt_tokens
    assert told.features[column_of("reasoning_effort")] == Effort.HIGH
    assert told.features[column_of("reasoning_budget_tokens")] == 512.0
    assert told.features[column_of("analytic_request_joules")] == told.expected.energy_joules
    assert told.expected.intensity_g_per_kwh == 20.0


def test_the_arm_and_the_promise_are_told_of_each_request() -> None:
    bench = Bench(policy=replace(POLICY, holdout_percent=50, holdout_seed=2))
    usage = b'{"usage": {"prompt_tokens": 140, "completion_tokens": 9}}'
    for i in range(10):
        given = {"x-request-id": f"r-{i}"} | ({"x-slo-ttft-ms": "50"} if i == 0 else {})
        gateway = bench.send(Gateway(chat(stream=True), given=given))
        bench.director.done(gateway.ctx, report(tail=usage))
    assert sorted(told.arm for told in bench.finished) == [HOLDOUT] * 5 + [STEERED] * 5
    assert {told.request_class for told in bench.finished} == {"m|stream|prompt <256|output <256"}
    assert [told.broke_slo for told in bench.finished] == [True] + [False] * 9
    assert bench.finished[1].ttft_slo_seconds == POLICY.ttft_slo_seconds
    assert bench.count("heliotrope_arm_requests_total", arm="holdout") == 5
    shown = [bench.log.get(f"r-{i}") for i in range(10)]
    assert [d["carbon_decision"]["arm"] for d in shown if d is not None] == [told.arm for told in bench.finished]


def test_requests_beyond_the_largest_number_of_classes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliotrope.decide.holdout.MAX_CLASSES", 1)
    bench = Bench(policy=POLICY)
    for model in ("m", "n", "m", "o"):
        bench.send(Gateway(chat(model=model)))
    assert bench.count("heliotrope_unclassified_requests_total") == 2


def test_without_a_policy_or_an_answer_nothing_is_invented() -> None:
    bench = Bench()
    gateway = bench.send(Gateway(chat(stream=True)))
    bench.director.done(gateway.ctx, report(status=None, cause=Cause.DISCONNECTED))
    (told,) = bench.finished
    assert (told.expected, told.policy, told.arm, told.tenant) == (None, None, UNSTEERED, "")
    assert (told.prompt_tokens, told.output_tokens, told.ttft_seconds, told.tpot_seconds) == (None, None, None, None)


def test_the_log_adds_what_was_measured_to_its_own_request_alone() -> None:
    bench = Bench(policy=POLICY)
    first = bench.send(Gateway(chat(stream=True)))
    bench.director.done(first.ctx, report(tail=b'{"usage": {"prompt_tokens": 140, "completion_tokens": 9}}'))
    (finished,) = bench.finished
    before = bench.log.get("r-1")
    assert before is not None
    assert before["measured"] is None
    drew = RequestEnergy(1_000_100.0, 1_000_101.0, 812_500, 20.0, float("nan"), 0.5, 0.9)
    bench.log.measured(finished, drew)
    shown = bench.log.get("r-1")
    assert shown is not None
    assert shown["measured"]["energy"]["joules"] == 812.5
    assert shown["measured"]["energy"]["host_joules"] is None
    assert shown["measured"]["output_tokens"] == 9
    json.dumps(shown, allow_nan=False)
    bench.log.measured(finished, None)
    shown = bench.log.get("r-1")
    assert shown is not None
    assert shown["measured"]["energy"] is None
    bench.now_s += 1.0
    bench.send(Gateway(chat(stream=True)))  # the client uses the id again
    bench.log.measured(finished, drew)
    again = bench.log.get("r-1")
    assert again is not None
    assert again["measured"] is None
    bench.log.measured(replace(finished, request_id="gone"), drew)
    assert bench.log.get("gone") is None


def test_the_log_of_decisions_is_bounded_and_holds_no_prompt() -> None:
    bench = Bench(policy=POLICY)
    for i in range(30):
        bench.send(Gateway(chat(), given={"x-request-id": f"r-{i}"}))
    assert len(bench.log.newest(100)) == 10
    assert bench.log.get("r-0") is None
    assert "hello" not in json.dumps(bench.log.get("r-29"))


def test_model_names_of_clients_do_not_grow_the_metrics_without_bound() -> None:
    bench = Bench()
    for i in range(150):
        answer = bench.send(Gateway(chat(model=f"made-up-{i}")))
        bench.director.done(answer.ctx, report())
    models = {
        sample.labels["model"]
        for metric in bench.registry.collect()
        if metric.name == "heliotrope_requests"
        for sample in metric.samples
    }
    assert len(models) == 101
    assert "other" in models
