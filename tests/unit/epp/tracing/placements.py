"""A request that the region tier placed, recorded."""

from opentelemetry.sdk.trace import ReadableSpan
from tests.unit.epp.tracing.bench import Bench, Gateway

from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.tracing.placement import Placement

PLACED = Placement(
    region="es",
    reason="objective",
    scheduler="Facility",
    outcome="Optimal",
    fallback="deadline",
    window=7,
    window_requests=12,
    window_seconds=0.09,
    solver_seconds=0.004,
    gap=0.0,
    state_age_seconds=0.5,
    session="chosen anyway",
    carbon_counts=True,
    held_seconds=30.0,
)


def placed(placement: Placement = PLACED) -> list[ReadableSpan]:
    """Its spans, in the order in which they were queued."""
    bench = Bench()
    trace = bench.tracer.begin(Gateway())
    trace.placed(LlmRequest("r-1", "/v1/chat/completions", "llama", b"", 100, None, 20.0, True), placement)
    return bench.spans()
