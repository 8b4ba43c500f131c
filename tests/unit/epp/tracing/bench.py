"""A director that records its requests, with the real store, pipeline, queue and OpenTelemetry's own span type."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.cache.gate import OFF, Gate
from heliotrope.cache.session_key import SessionKeys
from heliotrope.cache.sessions import Sessions
from heliotrope.carbon.signal import CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine import profiles
from heliotrope.predict.output_length import OutputLengths
from heliotrope_epp.clock import Clock
from heliotrope_epp.config.loader import load
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.datalayer.world import World
from heliotrope_epp.director.director import Director, DirectorSettings
from heliotrope_epp.director.recorder import DecisionLog
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.meter import NoMeter
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.models.router import ModelRouter
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.plugins.sessions.tracker import SessionTracker
from heliotrope_epp.telemetry.metrics import Metrics
from heliotrope_epp.tracing.energy import EnergySpans
from heliotrope_epp.tracing.export import SpanQueue
from heliotrope_epp.tracing.sampling import Sampler
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.tracing.spans import SpanMaker
from heliotrope_epp.tracing.tracer import Tracer
from heliotrope_epp.transport.interface import Cause, Headers, Report

ENGINE = profiles.load("llama-3.1-8b-h100")
SECRET = "the-words-of-the-prompt"
POLICY = DecisionPolicy("green", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1)
ALWAYS = Sampler(1.0)
UNIX_OFFSET_S = 1_700_000_000.0
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(slots=True)
class Gateway:
    """A request as the transport hands it over; remembers the answer."""

    body: bytes = b""
    method: str = "POST"
    path: str = "/v1/chat/completions?key=" + SECRET
    given: Mapping[str, str] = field(default_factory=dict)
    call: Mapping[str, str] = field(default_factory=dict)
    subset: tuple[str, ...] | None = None
    gone: bool = False
    ctx: Any = None
    received_s: float = 100.0
    cancelled: bool = False
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    set_headers: Headers = ()
    remove_headers: Sequence[str] = ()
    status: int | None = None

    def header(self, name: str) -> str | None:
        return self.headers().get(name)

    def call_header(self, name: str) -> str | None:
        return self.call.get(name)

    def headers(self) -> dict[str, str]:
        own = {"x-request-id": "r-1", ":scheme": "https", ":authority": "models.example.com:8443"}
        return {
            **own,
            "authorization": f"Bearer {SECRET}",
            "x-llm-d-inference-fairness-id": SECRET,
            "x-session-id": SECRET,
            **self.given,
        }

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
        self.ctx, self.set_headers, self.remove_headers = ctx, set_headers, remove_headers
        return True

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:
        self.status = status
        return True


def chat(**fields: Any) -> bytes:
    messages = [{"role": "user", "content": f"{SECRET} " * 100}]
    return json.dumps({"model": "llama", "messages": messages, "stream": True, "max_tokens": 64, **fields}).encode()


def report(status: int | None = 200, *, cause: Cause = Cause.COMPLETE, **usage: int) -> Report:
    tail = b""
    if usage:
        event = {"choices": [], "usage": {"prompt_tokens": usage["prompt"], "completion_tokens": usage["output"]}}
        event["usage"]["prompt_tokens_details"] = {"cached_tokens": usage["cached"]}  # type: ignore[index]
        tail = b"data: " + json.dumps(event).encode() + b"\n\ndata: [DONE]\n\n"
    return Report(status, {}, None, 3, 100, 100.0, 100.1, 100.3, 100.9, 101.0, tail, cause)


class Bench:
    """A picker without its ports. `spans()` ends the recording and tells what was exported."""

    def __init__(
        self,
        *,
        policy: DecisionPolicy | None = POLICY,
        sampler: Sampler = ALWAYS,
        config: str = "",
        settings: TracingSettings | None = None,
        fresh: bool = True,
        gate: Gate = OFF,
        **limits: Any,
    ) -> None:
        self.ticks = 0
        self.clock = Clock(monotonic=self._tick, unix=lambda: UNIX_OFFSET_S + 100.0 + self.ticks * 1e-4)
        self.store = EndpointStore()
        context = PluginContext(carbon=self.store, clock=self.clock, gate=gate)
        self.exporter = InMemorySpanExporter()
        self.queue = SpanQueue(self.exporter, SpanMaker(Resource({})), settings or TracingSettings(delay_s=60.0))
        self.tracer = Tracer(self.queue, sampler, self.clock, random.Random(1))
        self.energy = EnergySpans(self.queue)
        self.finished: list[FinishedRequest] = []
        self.director = Director(
            store=self.store,
            pipeline=Pipeline(load(config, builtin_registry(), context).scheduling, context),
            output_lengths=OutputLengths(),
            metrics=Metrics(CollectorRegistry()),
            decisions=DecisionLog(10),
            meter=NoMeter(Sinks([self])),
            clock=self.clock,
            model_router=ModelRouter(self.store, {}),
            settings=DirectorSettings(**limits),
            tracer=self.tracer,
            sessions=SessionTracker(
                Sessions(10),
                SessionKeys(),
                lambda: None if policy is None else policy.sessions,
                self.clock,
            ),
        )
        traits = {
            f"ns/{name}": Traits(variant=f"ns/v-{name}", region=region, engine=ENGINE, price_per_hour=2.0)
            for name, region in (("a", "dirty"), ("b", "clean"))
        }
        endpoints = tuple(Endpoint(name, "ns", f"10.0.0.{i}", 8000) for i, name in enumerate("ab"))
        regions = {
            name: RegionProfile.model_validate(
                {
                    "metadata": {"name": name},
                    "spec": {
                        "zone": "Z",
                        "pue": "1.2",
                        "wueLitersPerKwh": "0.5",
                        "source": {"static": {"intensityGramsPerKwh": "1"}},
                    },
                }
            )
            for name in ("dirty", "clean")
        }
        self.store.apply(World(endpoints=endpoints, traits=traits, policy=policy, regions=regions))
        measured_s = UNIX_OFFSET_S + (40.0 if fresh else -1e6)
        self.store.set_signals(
            {
                name: CarbonSignal(
                    Reading(g, measured_s, "test", SignalType.AVERAGE, EmissionFactor.LIFECYCLE, estimated=False),
                    3600.0,
                )
                for name, g in (("dirty", 300.0), ("clean", 20.0))
            }
        )
        for state in self.store.states():
            state.metrics = EngineMetrics(100.0, running=0.0, waiting=0.0, kv_usage=0.0, block_size=16, num_blocks=999)

    def _tick(self) -> float:
        self.ticks += 1
        return 100.0 + self.ticks * 1e-4

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.finished.append(request)

    def metered(self, interval: MeteredInterval) -> None:
        raise AssertionError("nothing is metered here")

    def send(self, request: Gateway) -> Gateway:
        self.director.decide(request)
        return request

    def spans(self) -> list[ReadableSpan]:
        self.queue.start()
        self.queue.close()
        return list(self.exporter.get_finished_spans())


def only(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    found = [span for span in spans if span.name == name]
    assert len(found) == 1, f"{name} among {[span.name for span in spans]}"
    return found[0]
