"""The rule against OpenTelemetry's own samplers, and what the director's requests make of it."""

import random

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from tests.unit.epp.tracing.bench import ALWAYS, PARENT, Bench, Gateway, chat, only, report

from heliotrope_epp.plugins.scheduled import untimed
from heliotrope_epp.tracing.sampling import Sampler
from heliotrope_epp.tracing.tracer import UNTRACED

NEVER = Sampler(0.0)


@pytest.mark.parametrize("ratio", [0.0, 1e-6, 0.01, 0.1, 0.5, 0.999, 1.0])
def test_ratios_decide_as_opentelemetry_does(ratio: float) -> None:
    ours, theirs = Sampler(ratio, parent_based=False), TraceIdRatioBased(ratio)
    rng = random.Random(7)
    ids = [rng.getrandbits(128) for _ in range(500)] + [1, (1 << 128) - 1, (1 << 64) - 1, 1 << 64, theirs.bound]
    for trace_id in ids:
        expected = theirs.should_sample(None, trace_id, "x").decision.is_sampled()
        assert ours.samples(trace_id, None) == ours.samples(trace_id, parent_sampled=True) == expected


def test_a_parents_decision_is_followed() -> None:
    for ratio in (0.0, 1.0):
        assert Sampler(ratio).samples(1, parent_sampled=True)
        assert not Sampler(ratio).samples(1, parent_sampled=False)


def traceparent(request: Gateway) -> list[str]:
    return dict(request.set_headers)["traceparent"].split("-")


def test_a_recorded_request_is_the_parent_of_what_the_engine_records() -> None:
    bench = Bench(sampler=NEVER)
    request = bench.send(Gateway(chat(), given={"traceparent": PARENT, "tracestate": "congo=t61"}))
    bench.director.done(request.ctx, report())
    root = only(bench.spans(), "gateway.request")
    version, trace_id, span_id, flags = traceparent(request)
    assert (version, trace_id, flags) == ("00", PARENT.split("-")[1], "01")
    assert int(span_id, 16) == root.context.span_id
    assert root.parent is not None
    assert root.parent.is_remote
    assert f"{root.parent.span_id:016x}" == PARENT.split("-")[2]
    assert dict(root.context.trace_state) == {"congo": "t61"}
    assert dict(request.set_headers)["tracestate"] == "congo=t61"
    assert request.remove_headers == ()


def test_a_gateway_that_traces_is_the_parent_where_the_client_names_none() -> None:
    bench = Bench(sampler=NEVER)
    theirs = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    gateways = {"traceparent": theirs, "tracestate": "gw=1"}
    request = bench.send(Gateway(chat(), call=gateways))
    both = bench.send(Gateway(chat(), given={"traceparent": PARENT}, call=gateways))
    bad = bench.send(Gateway(chat(), given={"traceparent": "x", "tracestate": "c=1"}, call={"traceparent": theirs}))
    off = bench.send(Gateway(chat(), call={"traceparent": theirs[:-1] + "0"}))
    assert traceparent(request)[1] == traceparent(bad)[1] == "a" * 32
    assert dict(request.set_headers)["tracestate"] == "gw=1"
    assert traceparent(both)[1] == PARENT.split("-")[1]
    assert "tracestate" not in dict(both.set_headers)
    assert bad.remove_headers == ("tracestate",)
    assert traceparent(off) == ["00", "a" * 32, "b" * 16, "00"]
    bench.director.done(request.ctx, report())
    root = only(bench.spans(), "gateway.request")
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == "b" * 16


def test_a_request_that_begins_a_trace_is_recorded_by_ratio() -> None:
    bench = Bench(sampler=Sampler(0.25), max_inflight=10_000)
    requests = [bench.send(Gateway(chat())) for _ in range(400)]
    flags = [traceparent(request)[3] for request in requests]
    assert 60 < flags.count("01") < 140
    assert set(flags) == {"00", "01"}
    assert len({traceparent(request)[1] for request in requests}) == 400


@pytest.mark.parametrize("given", [{"traceparent": PARENT[:-2] + "00"}, {"traceparent": PARENT[:-2] + "02"}])
def test_an_unrecorded_parent_goes_on_untouched(given: dict[str, str]) -> None:
    bench = Bench(sampler=ALWAYS)
    request = bench.send(Gateway(chat(), given=given))
    assert request.ctx.trace is UNTRACED
    assert request.ctx.trace.timer is untimed
    assert request.set_headers == request.remove_headers == ()
    assert bench.spans() == []


def test_a_recorded_parent_that_is_not_followed_is_told_so() -> None:
    bench = Bench(sampler=Sampler(0.0, parent_based=False))
    request = bench.send(Gateway(chat(), given={"traceparent": PARENT[:-2] + "03"}))
    assert dict(request.set_headers) == {"traceparent": PARENT[:-2] + "02"}
    assert bench.spans() == []


@pytest.mark.parametrize("text", ["nonsense", "00-" + "0" * 32 + "-b7ad6b7169203331-01", PARENT + "-x", "x" * 90_000])
def test_a_malformed_parent_begins_a_trace_and_its_state_goes(text: str) -> None:
    bench = Bench(sampler=ALWAYS)
    request = bench.send(Gateway(chat(), given={"traceparent": text, "tracestate": "congo=t61"}))
    bench.director.done(request.ctx, report())
    root = only(bench.spans(), "gateway.request")
    assert root.parent is None
    assert traceparent(request)[1] == f"{root.context.trace_id:032x}"
    assert request.remove_headers == ("tracestate",)
    assert not root.context.trace_state


def test_a_malformed_state_goes_and_the_parent_stays() -> None:
    bench = Bench(sampler=ALWAYS)
    request = bench.send(Gateway(chat(), given={"traceparent": PARENT, "tracestate": "x" * 600}))
    assert traceparent(request)[1] == PARENT.split("-")[1]
    assert request.remove_headers == ("tracestate",)


@pytest.mark.parametrize("flags", ["00", "01"])
def test_baggage_ends_here(flags: str) -> None:
    bench = Bench(sampler=ALWAYS)
    request = bench.send(Gateway(chat(), given={"traceparent": PARENT[:-2] + flags, "baggage": "user=alice"}))
    bench.director.done(request.ctx, report())
    assert request.remove_headers == ("baggage",)
    assert "alice" not in "".join(span.to_json() for span in bench.spans())
