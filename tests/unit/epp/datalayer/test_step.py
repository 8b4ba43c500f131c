"""The running step of an endpoint, from dispatches and pieces to its load."""

import math

from heliotrope.decide.load import LONGEST_STEP_SECONDS
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.datalayer.inflight import Dispatch
from heliotrope_epp.datalayer.state import EndpointState


def state() -> EndpointState:
    fresh = EndpointState(Endpoint("a", "llm", "10.0.0.1", 8000))
    fresh.scraped(EngineMetrics(0.0, running=0.0, waiting=0.0, kv_usage=0.0, block_size=16, num_blocks=100))
    return fresh


def streamed(at_s: float, tokens: float) -> Dispatch:
    return Dispatch(at_s, tokens, tokens, at_s + 1.0, streams=True)


def step(of: EndpointState, now_s: float) -> tuple[float, float]:
    load = of.load(now_s, 1e9)
    return load.step_seconds, load.step_prefills


def test_the_step_is_followed_from_the_first_request_on() -> None:
    there = state()
    first, second = streamed(1.0, 30.0), streamed(1.25, 40.0)
    assert all(math.isnan(value) for value in step(there, 0.5))

    there.inflight.add(first, 0.0)
    there.inflight.add(second, 0.0)
    assert step(there, 1.5) == (0.5, 1.0)
    assert there.load(1.5, 1e9).waiting_squared_tokens == 900.0 + 1600.0

    there.inflight.piece(first, 2.0)
    assert step(there, 2.25) == (0.25, 0.0)  # one decode before the second's prefill
    assert there.load(2.25, 1e9).waiting_squared_tokens == 1600.0
    there.inflight.piece(first, 2.5)
    assert step(there, 2.5) == (0.0, 1.0)
    there.inflight.piece(second, 3.0)
    assert step(there, 3.0) == (0.0, 0.0)
    assert there.load(3.0, 1e9).waiting_squared_tokens == 0.0


def test_what_nobody_here_can_have_seen_is_unknown() -> None:
    there = state()
    only = streamed(1.0, 30.0)
    there.inflight.add(only, 0.0)
    assert all(math.isnan(value) for value in step(there, 1.0 + 2.0 * LONGEST_STEP_SECONDS))

    there.inflight.piece(only, 2.0)
    there.inflight.remove(only)
    assert all(math.isnan(value) for value in step(there, 2.1))


def test_a_prefill_that_nobody_waits_for_any_more_has_ended() -> None:
    there = state()
    unseen = Dispatch(1.0, 30.0, 30.0, first_token_due_s=1.5, streams=False)
    there.inflight.add(unseen, 0.0)
    assert step(there, 1.25) == (0.25, 1.0)
    assert all(math.isnan(value) for value in step(there, 1.75))
