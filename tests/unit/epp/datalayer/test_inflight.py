"""The picker's own requests on one endpoint."""

import math

import pytest

from heliotrope_epp.datalayer.inflight import Dispatch, InFlight


def dispatch(at_s: float, *, tokens: float = 100.0, uncached: float = 100.0, due_s: float | None = None) -> Dispatch:
    return Dispatch(at_s, tokens, uncached, at_s + 1.0 if due_s is None else due_s)


def test_a_request_waits_until_its_first_token_is_due() -> None:
    inflight = InFlight()
    inflight.add(dispatch(0.0, uncached=30.0, due_s=5.0), 0.0)
    inflight.add(dispatch(0.0, uncached=12.0, due_s=2.0), 0.0)

    assert inflight.waiting(1.0) == (2, 42.0)
    assert inflight.waiting(2.0) == (1, 30.0)
    assert inflight.waiting(5.0) == (0, 0.0)
    assert len(inflight) == 2


def test_a_streamed_request_waits_until_a_piece_of_its_answer_is_seen() -> None:
    inflight = InFlight()
    late, other = (Dispatch(0.0, 100.0, 30.0, first_token_due_s=1.0, streams=True) for _ in range(2))
    inflight.add(late, 0.0)
    inflight.add(other, 0.0)
    assert inflight.waiting(5.0) == (2, 60.0)
    assert inflight.oldest_waiting_s(5.0) == 5.0
    assert math.isnan(inflight.seconds_since_piece(5.0))

    inflight.piece(late, 5.5)
    inflight.piece(late, 6.0)

    assert inflight.waiting(6.0) == (1, 30.0)
    assert inflight.seconds_since_piece(6.5) == 0.5
    inflight.remove(other)
    assert inflight.waiting(6.0) == (0, 0.0)
    assert inflight.oldest_waiting_s(7.0) == 0.0


def test_an_ended_request_counts_nowhere_and_only_ends_once() -> None:
    inflight = InFlight()
    first, second = dispatch(0.0), dispatch(1.0)
    inflight.add(first, 0.0)
    inflight.add(second, 0.0)

    inflight.remove(first)
    inflight.remove(first)

    assert len(inflight) == 1
    assert inflight.waiting(0.5) == (1, 100.0)
    assert inflight.dispatched_since(-1.0) == (1, 100.0)


def test_requests_dispatched_since_a_time() -> None:
    inflight = InFlight()
    for at_s in (1.0, 2.0, 3.0):
        inflight.add(dispatch(at_s, tokens=at_s * 10.0), 0.0)

    assert inflight.dispatched_since(1.0) == (2, 50.0)
    assert inflight.dispatched_since(3.0) == (0, 0.0)


def test_prefill_duty_decays_and_stays_below_one() -> None:
    inflight = InFlight()
    inflight.add(dispatch(0.0), 1.0)

    assert inflight.prefill_duty(0.0) == pytest.approx(0.2)
    assert 0.0 < inflight.prefill_duty(5.0) < 0.2
    for _ in range(100):
        inflight.add(dispatch(0.0), 1.0)
    assert inflight.prefill_duty(0.0) == 0.95


def test_memory_is_that_of_open_requests_even_if_nobody_asks() -> None:
    inflight = InFlight()
    for number in range(10_000):
        each = dispatch(float(number), due_s=1e9)
        inflight.add(each, 0.0)
        inflight.remove(each)

    assert len(inflight) == 0
    assert inflight.waiting(0.0) == (0, 0.0)
    assert not any(len(value) for value in vars(inflight).values() if hasattr(value, "__len__"))


def test_mean_prompt_tokens_are_those_of_open_requests() -> None:
    inflight = InFlight()
    assert inflight.mean_prompt_tokens() == 0.0
    first, second = dispatch(0.0, tokens=100.0), dispatch(1.0, tokens=300.0)
    inflight.add(first, 0.1)
    inflight.add(second, 0.1)
    assert inflight.mean_prompt_tokens() == 200.0
    inflight.remove(first)
    inflight.remove(first)
    assert inflight.mean_prompt_tokens() == 300.0
