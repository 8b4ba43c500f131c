"""What a finished request says of its promise."""

from dataclasses import replace

import pytest

from heliotrope_epp.outcomes.finished import STEERED, FinishedRequest
from heliotrope_epp.transport.interface import Cause

STREAMED = FinishedRequest(
    request_id="r",
    model="m",
    tenant="",
    request_class="c",
    arm=STEERED,
    policy="p",
    endpoint="e",
    variant=None,
    region=None,
    streaming=True,
    dispatched_s=10.0,
    first_s=10.5,
    last_s=11.5,
    ended_s=11.6,
    dispatched_unix_s=1e9,
    ended_unix_s=1e9 + 2,
    status=200,
    cause=Cause.COMPLETE,
    believed_prompt_tokens=10,
    believed_cached_tokens=0.0,
    expected_output_tokens=10.0,
    prompt_tokens=10,
    cached_tokens=0,
    output_tokens=11,
    expected=None,
    ttft_slo_seconds=1.0,
    tpot_slo_seconds=0.15,
)
WHOLE = replace(STREAMED, streaming=False, first_s=12.0, last_s=12.0, ended_s=12.0)


@pytest.mark.parametrize(
    ("request_", "broke"),
    [
        (STREAMED, False),
        (replace(STREAMED, first_s=11.2, last_s=11.3), True),
        (replace(STREAMED, last_s=13.0), True),
        (replace(STREAMED, output_tokens=1), False),
        (replace(STREAMED, output_tokens=None), None),
        (replace(STREAMED, output_tokens=None, first_s=11.2), True),
        (WHOLE, False),  # 1 s + 10 · 0.15 s after the dispatch
        (replace(WHOLE, ended_s=12.6), True),
        (replace(WHOLE, output_tokens=None, ended_s=99.0), None),
        (replace(STREAMED, status=503), True),
        (replace(STREAMED, status=400), None),
        (replace(STREAMED, status=None, cause=Cause.DISCONNECTED), None),
        (replace(STREAMED, cause=Cause.DISCONNECTED, first_s=99.0), None),
        (replace(STREAMED, ttft_slo_seconds=None), None),
        (replace(STREAMED, tpot_slo_seconds=None), None),
    ],
)
def test_a_promise_is_broken_kept_or_unknown(request_: FinishedRequest, broke: bool | None) -> None:
    assert request_.broke_slo is broke
