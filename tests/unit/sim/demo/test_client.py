import pytest

from heliotrope_sim.demo.client import RequestResult
from heliotrope_sim.demo.plan import plan
from heliotrope_sim.workload.trace import TraceRequest


def result(**changes: object) -> RequestResult:
    fields = {
        "request_id": "r",
        "arrival_seconds": 0.0,
        "streaming": True,
        "status": 200,
        "output_tokens": 11,
        "ttft_seconds": 0.5,
        "tpot_seconds": 0.05,
        "e2e_seconds": 1.0,
    }
    return RequestResult(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "violates"),
    [
        ({}, False),
        ({"ttft_seconds": 1.01}, True),
        ({"tpot_seconds": 0.11}, True),
        ({"status": 503}, True),
        ({"status": None}, True),
        ({"error": "stream ended without [DONE]"}, True),
        # In one piece: 1 s + 10 tokens × 0.1 s.
        ({"streaming": False, "ttft_seconds": None, "tpot_seconds": None, "e2e_seconds": 1.99}, False),
        ({"streaming": False, "ttft_seconds": None, "tpot_seconds": None, "e2e_seconds": 2.01}, True),
    ],
)
def test_a_promise_is_broken_by_ttft_tpot_lateness_or_failure(changes: dict[str, object], violates: bool) -> None:
    assert result(**changes).violates(1.0, 0.1) is violates


@pytest.mark.parametrize(("share", "streamed"), [(0.0, 0), (0.25, 25), (0.5, 50), (1.0, 100)])
def test_streamed_requests_are_spread_evenly(share: float, streamed: int) -> None:
    planned = plan([TraceRequest(i, 10, 5) for i in range(100)], model="m", stream_share=share, seed=1)
    flags = [p.streaming for p in planned]
    assert sum(flags) == streamed
    assert abs(sum(flags[:50]) - streamed / 2) <= 1
    assert len({p.request_id for p in planned}) == 100
    assert planned == plan([TraceRequest(i, 10, 5) for i in range(100)], model="m", stream_share=share, seed=1)
