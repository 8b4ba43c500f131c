"""OpenTelemetry's own exporters against collectors that are well, busy, slow, broken or not there at all."""

import time

import pytest
from prometheus_client import CollectorRegistry
from tests.support.otlp import Collector, Mood, collector

from heliotrope.errors import InvalidInputError
from heliotrope_epp.clock import Clock
from heliotrope_epp.outcomes.trace import TraceContext
from heliotrope_epp.tracing.export import SpanCounts
from heliotrope_epp.tracing.request import Arrival, RequestRecord
from heliotrope_epp.tracing.runtime import Tracing
from heliotrope_epp.tracing.settings import Protocol, TracingSettings

RECORD = RequestRecord(
    context=TraceContext(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, "congo=t61"),
    remote_parent_id=0xA,
    offset_s=1_700_000_000.0,
    arrival=Arrival("POST", "/v1/chat/completions", "https", "models.example.com", 100.0),
    ended_s=101.5,
    status=200,
    cause="complete",
)
PROTOCOLS = [Protocol.GRPC, Protocol.HTTP]


@pytest.fixture(autouse=True)
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")


def tracing(running: Collector | None, protocol: Protocol, *, endpoint: str = "", **settings: float) -> Tracing:
    if running is not None:
        endpoint = running.grpc_url if protocol is Protocol.GRPC else running.http_url
    given = {"delay_s": 0.05, "flush_s": 2.0} | settings
    return Tracing(TracingSettings(True, protocol, endpoint, **given), Clock(), CollectorRegistry())  # type: ignore[arg-type]


def counts(one: Tracing) -> SpanCounts:
    return one.queue.counts()


def settled(one: Tracing, seconds: float = 15.0) -> SpanCounts:
    deadline = time.monotonic() + seconds
    while counts(one).waiting:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return counts(one)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_span_arrives_as_it_was_made(protocol: Protocol, compression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if compression == "gzip":
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with collector() as running:
        one = tracing(running, protocol)
        one.start()
        one.queue.put(RECORD)
        running.wait(lambda: bool(running.spans), "the span")
        one.queue.close()
    (span,) = running.spans
    assert (span.service, span.scope, span.name) == ("llm-d-epp", "heliotrope.epp", "gateway.request")
    assert (span.trace_id, span.span_id) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert (span.parent_id, span.trace_state, span.kind) == ("000000000000000a", "congo=t61", 2)
    assert (span.start_ns, span.end_ns) == (1_700_000_100_000_000_000, 1_700_000_101_500_000_000)
    assert span.attributes["http.response.status_code"] == 200
    assert counts(one).exported == 1


def test_the_services_name_can_be_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "my-picker")
    with collector() as running:
        one = tracing(running, Protocol.GRPC)
        one.start()
        one.queue.put(RECORD)
        one.queue.close()
    assert running.spans[0].service == "my-picker"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("mood", [Mood.REFUSES, Mood.BUSY, Mood.GARBAGE, Mood.SLOW])
def test_a_collector_in_a_bad_mood_costs_its_spans_alone(protocol: Protocol, mood: Mood) -> None:
    with collector(mood) as running:
        one = tracing(running, protocol)
        one.start()
        one.queue.put(RECORD)
        before = settled(one)
        assert (before.failed, before.exported) == (1, 0)
        running.mood = Mood.WELL
        one.queue.put(RECORD)
        after = settled(one)
        assert (after.failed, after.exported) == (1, 1)
        one.queue.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_a_collector_the_end_comes_in_time(protocol: Protocol) -> None:
    one = tracing(None, protocol, endpoint="http://127.0.0.1:9", flush_s=0.3)
    one.start()
    for _ in range(3):
        one.queue.put(RECORD)
    started = time.monotonic()
    one.queue.close()
    assert time.monotonic() - started < 3.0
    after = counts(one)
    assert after.failed + after.dropped == 3
    assert after.exported == after.waiting == 0


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_hanging_collector_does_not_hold_up_the_end(protocol: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "30")
    with collector(Mood.SLOW) as running:
        one = tracing(running, protocol, flush_s=0.3)
        one.start()
        one.queue.put(RECORD)
        running.wait(lambda: running.requests == 1, "the export")
        started = time.monotonic()
        one.queue.close()
        assert time.monotonic() - started < 3.0
        assert counts(one).dropped == 1


def test_settings_that_an_exporter_refuses_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(InvalidInputError, match="the exporter cannot be set up"):
        tracing(None, Protocol.GRPC, endpoint="http://127.0.0.1:9")
