"""A real client, a real Envoy, the picker's process, emulated engines, and OTLP over the wire: the whole tree."""

import asyncio
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from e2e.stack import MODEL
from openai import AsyncOpenAI
from tests.contract.tracing.stack import Stack, traced_stack
from tests.support.metering import metering_has_begun
from tests.support.otlp import Collector, Span, collector

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

TREE = {
    "gateway.request_orchestration": "gateway.request",
    "run_scheduler_profile": "gateway.request_orchestration",
    "filter_endpoints": "run_scheduler_profile",
    "llm_d.epp.scoring": "run_scheduler_profile",
    "llm_d.epp.scorer.queue-scorer": "llm_d.epp.scoring",
    "llm_d.epp.scorer.kv-cache-utilization-scorer": "llm_d.epp.scoring",
    "llm_d.epp.scorer.prefix-cache-scorer": "llm_d.epp.scoring",
    "pick_endpoints": "run_scheduler_profile",
}
SERVER, ERROR = 2, 2
SECRET = "words-that-nobody-may-read"
CLIENT_TRACE, CLIENT_SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


async def ask(stack: Stack, request_id: str, **headers: str) -> None:
    """A streamed chat with OpenAI's own client."""
    given = {"x-request-id": request_id, **headers}
    async with AsyncOpenAI(base_url=f"{stack.gateway.url}/v1", api_key=SECRET, max_retries=0) as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": f"{SECRET} " * 50}],
            max_tokens=8,
            stream=True,
            stream_options={"include_usage": True},
            extra_headers=given,
        )
        chunks = [chunk async for chunk in stream]
    assert chunks[-1].usage is not None


async def arrived(running: Collector, trace_id: str, names: set[str]) -> dict[str, Span]:
    """The spans of a trace by name, once these have arrived."""

    def of_trace() -> dict[str, Span]:
        return {span.name: span for span in running.spans if span.trace_id == trace_id}

    await asyncio.to_thread(running.wait, lambda: names <= of_trace().keys(), f"{names} of {trace_id}", 40.0)
    return of_trace()


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
async def test_the_whole_tree_reaches_a_collector(tmp_path: Path, protocol: str) -> None:
    with collector() as running:
        url = running.grpc_url if protocol == "grpc" else running.http_url
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=green",
        }
        async with traced_stack(tmp_path, environment) as stack:
            await metering_has_begun(stack.metrics_url.removesuffix("/metrics") + "/debug/state")
            client = f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-01"
            await ask(stack, "traced", traceparent=client, tracestate="congo=t61", baggage="user=alice")
            spans = await arrived(running, CLIENT_TRACE, {*TREE, "gateway.request", "heliotrope.energy"})
            head = stack.taps["clean"].heads_of("traced")[0]
            async with httpx.AsyncClient(trust_env=False) as scraper:
                metrics = (await scraper.get(stack.metrics_url)).text
        root = spans["gateway.request"]
        assert (root.parent_id, root.kind, root.service) == (CLIENT_SPAN, SERVER, "llm-d-epp")
        assert root.trace_state == "congo=t61"
        assert {name: spans[parent].span_id for name, parent in TREE.items()} == {
            name: spans[name].parent_id for name in TREE
        }
        assert all(span.start_ns <= span.end_ns for span in spans.values())
        assert head["traceparent"] == f"00-{CLIENT_TRACE}-{root.span_id}-01"
        assert head["tracestate"] == "congo=t61"
        assert "baggage" not in head
        assert root.attributes["gen_ai.usage.output_tokens"] == 8
        assert root.attributes["heliotrope.ttft_seconds"] > 0
        assert root.attributes["http.response.status_code"] == 200
        decision = spans["gateway.request_orchestration"].attributes
        assert decision["heliotrope.region"] == "clean"
        assert decision["heliotrope.carbon.intensity_g_per_kwh"] == 20.0
        assert decision["heliotrope.estimate.gco2e_grams"] > 0
        energy = spans["heliotrope.energy"]
        assert energy.parent_id == root.span_id
        assert energy.attributes["heliotrope.energy.measured_joules"] > 0
        assert energy.attributes["heliotrope.energy.coverage"] > 0
        assert SECRET not in repr(running.spans)
        assert "alice" not in repr(running.spans)
        assert all(head["x-team"] == "green" for head in running.headers)
        assert 'heliotrope_trace_spans_total{result="exported"}' in metrics


async def test_requests_that_nobody_records_stay_unrecorded_everywhere(tmp_path: Path) -> None:
    with collector() as running:
        async with traced_stack(tmp_path, {}, f"--otlp-endpoint={running.grpc_url}", "--trace-ratio=0") as stack:
            await ask(stack, "alone")
            await ask(stack, "unsampled", traceparent=f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-00")
            await ask(stack, "sampled", traceparent=f"00-{'1' * 32}-{CLIENT_SPAN}-01")
            await ask(stack, "broken", traceparent="00-nonsense", tracestate="congo=t61")
            await arrived(running, "1" * 32, {"gateway.request"})
            heads = {name: stack.taps["clean"].heads_of(name)[0] for name in ("alone", "unsampled", "broken")}
        assert {span.trace_id for span in running.spans} == {"1" * 32}
        assert heads["unsampled"]["traceparent"] == f"00-{CLIENT_TRACE}-{CLIENT_SPAN}-00"
        for name in ("alone", "broken"):
            assert heads[name]["traceparent"].endswith("-00")
            assert "tracestate" not in heads[name]


async def test_a_gateway_that_traces_and_the_picker_share_one_trace(tmp_path: Path) -> None:
    with collector() as running:
        port = running.grpc_url.rpartition("/")[2]
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": running.grpc_url, "OTEL_TRACES_SAMPLER_ARG": "0"}
        async with traced_stack(tmp_path, environment, trace_collector=port) as stack:
            await ask(stack, str(uuid4()))  # Envoy writes its sampling decision into the UUID
            await asyncio.to_thread(running.wait, lambda: bool(running.named("gateway.request")), "the picker's root")
            (root,) = running.named("gateway.request")
            await asyncio.to_thread(
                running.wait,
                lambda: any(s.service == "gateway" and s.span_id == root.parent_id for s in running.spans),
                "Envoy's span above it",
            )
            (head,) = [h for h in stack.taps["clean"].heads if "/chat/" in h[":line"]]
        above = next(span for span in running.spans if span.span_id == root.parent_id)
        assert above.trace_id == root.trace_id == head["traceparent"].split("-")[1]
        assert above.service == "gateway"


async def test_the_end_of_the_process_loses_no_span(tmp_path: Path) -> None:
    with collector() as running:
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": running.grpc_url,
            "OTEL_TRACES_SAMPLER": "always_on",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
        }
        async with traced_stack(tmp_path, environment) as stack:
            for i in range(5):
                await ask(stack, f"r-{i}")
            assert running.spans == []
            await stack.picker.stop()
        assert len(running.named("gateway.request")) == 5
        assert len(running.named("pick_endpoints")) == 5
