"""The picker's core without its ports, for bench/tracing.py."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from heliotrope.api.v1alpha1 import RegionProfile
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
from heliotrope_epp.outcomes.meter import NoMeter
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.plugins.builtin import builtin_registry
from heliotrope_epp.plugins.context import PluginContext
from heliotrope_epp.plugins.pipeline import Pipeline
from heliotrope_epp.telemetry.metrics import Metrics
from heliotrope_epp.tracing.runtime import Tracing
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.transport.interface import Cause, Headers, Report

REGIONS = {"north": 20.0, "middle": 150.0, "south": 300.0}
ENDPOINTS_PER_REGION = 3
PROMPT = "word " * 600


class Gateway:
    """A request as the transport hands it over."""

    method, path, cancelled, subset = "POST", "/v1/chat/completions", False, None
    metadata: Mapping[str, Mapping[str, Any]] = {}

    def __init__(self, number: int, now_s: float) -> None:
        message = {"role": "user", "content": f"{number} {PROMPT}"}
        self.body = json.dumps({"model": "m", "messages": [message], "stream": True, "max_tokens": 64}).encode()
        self.received_s = now_s
        self.ctx: Any = None
        self._headers = {"x-request-id": f"r-{number}", ":scheme": "http", ":authority": "gateway"}

    def header(self, name: str) -> str | None:
        """As `Request`."""
        return self._headers.get(name)

    def call_header(self, name: str) -> str | None:  # noqa: ARG002 - this gateway does not trace
        """As `Request`."""
        return None

    def headers(self) -> dict[str, str]:
        """As `Request`."""
        return dict(self._headers)

    def route(
        self,
        endpoint: str | None,  # noqa: ARG002
        set_headers: Headers = (),  # noqa: ARG002
        remove_headers: Sequence[str] = (),  # noqa: ARG002
        ctx: object = None,
        **_: Any,
    ) -> bool:
        """As `Request`."""
        self.ctx = ctx
        return True

    def reject(self, status: int, body: bytes = b"", headers: Headers = ()) -> bool:  # noqa: ARG002
        """Nothing may be refused here."""
        raise RuntimeError(f"refused with {status}")


class Core:
    """A director with nine endpoints and a policy; `settings` None traces nothing."""

    def __init__(self, settings: TracingSettings | None) -> None:
        self.clock = Clock()
        store = EndpointStore()
        context = PluginContext(carbon=store, clock=self.clock)
        self.tracing = None if settings is None else Tracing(settings, self.clock, CollectorRegistry())
        if self.tracing is not None:
            self.tracing.start()
        self.director = Director(
            store=store,
            pipeline=Pipeline(load("", builtin_registry(), context).scheduling, context),
            output_lengths=OutputLengths(),
            metrics=Metrics(CollectorRegistry()),
            decisions=DecisionLog(1_000),
            meter=NoMeter(Sinks()),
            clock=self.clock,
            settings=DirectorSettings(metrics_stale_after_s=1e9),
            tracer=None if self.tracing is None else self.tracing.tracer,
        )
        _fill(store, self.clock)

    def request(self, number: int) -> None:
        """One request from its arrival to its end."""
        now_s = self.clock.monotonic()
        request: Any = Gateway(number, now_s)
        self.director.decide(request)
        tail = b'data: {"choices": [], "usage": {"prompt_tokens": 605, "completion_tokens": 60}}\n\ndata: [DONE]\n\n'
        report = Report(200, {}, None, 62, 9_000, now_s, now_s, now_s, now_s, now_s, tail, Cause.COMPLETE)
        self.director.done(request.ctx, report)

    @property
    def waiting_spans(self) -> int:
        """Spans that are still to be exported."""
        return 0 if self.tracing is None else self.tracing.queue.counts().waiting


def _fill(store: EndpointStore, clock: Clock) -> None:
    engine = profiles.load("llama-3.1-8b-h100")
    names = [(f"{region}-{i}", region) for region in REGIONS for i in range(ENDPOINTS_PER_REGION)]
    static = {"zone": "Z", "source": {"static": {"intensityGramsPerKwh": "1"}}}
    regions = {n: RegionProfile.model_validate({"metadata": {"name": n}, "spec": static}) for n in REGIONS}
    store.apply(
        World(
            endpoints=tuple(Endpoint(name, "ns", f"10.0.0.{i}", 8000) for i, (name, _) in enumerate(names)),
            traits={f"ns/{name}": Traits(variant="ns/v", region=region, engine=engine) for name, region in names},
            policy=DecisionPolicy("p", ttft_slo_seconds=3.0, tpot_slo_seconds=0.1),
            regions=regions,
        )
    )
    store.set_signals(
        {
            name: CarbonSignal(Reading(g, clock.unix(), "bench", SignalType.AVERAGE, EmissionFactor.LIFECYCLE), 1e9)
            for name, g in REGIONS.items()
        }
    )
    for state in store.states():
        state.metrics = EngineMetrics(
            clock.monotonic(), running=1.0, waiting=0.0, kv_usage=0.1, block_size=16, num_blocks=30_000
        )
