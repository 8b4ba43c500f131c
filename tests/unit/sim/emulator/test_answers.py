"""How long an answer gets, and why it ends."""

import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope_sim.emulator.answers import draw_length, plan_answer, prompt_key
from heliotrope_sim.emulator.config import OutputLength
from heliotrope_sim.emulator.tokens import tokenize


def test_lengths_follow_the_distribution_and_the_seed() -> None:
    distribution = OutputLength(median_tokens=200, sigma=0.5)
    keys = [prompt_key(tokenize(f"prompt {i}"), 0, None) for i in range(2000)]
    lengths = [draw_length(key, distribution) for key in keys]
    assert lengths == [draw_length(key, distribution) for key in keys]
    assert statistics.median(lengths) == pytest.approx(200, rel=0.1)
    assert statistics.stdev(math.log(n) for n in lengths) == pytest.approx(0.5, rel=0.1)
    assert {draw_length(key, OutputLength(median_tokens=77, sigma=0)) for key in keys} == {77}


@pytest.mark.parametrize("key", [0, 2**64 - 1])
def test_the_ends_of_the_distribution_are_finite(key: int) -> None:
    assert draw_length(key, OutputLength(sigma=3)) >= 1


def test_engine_seed_and_request_seed_both_change_the_answer() -> None:
    prompt = tokenize("same")
    assert len({prompt_key(prompt, seed, request) for seed in (0, 1) for request in (None, 0, 1)}) == 6


@settings(deadline=None)
@given(key=st.integers(0, 2**64 - 1), limit=st.integers(1, 500), low=st.integers(0, 500))
def test_no_answer_is_longer_than_its_limit_or_shorter_than_asked(key: int, limit: int, low: int) -> None:
    answer = plan_answer(key, OutputLength(), limit=limit, min_tokens=min(low, limit))
    assert min(low, limit) <= answer.tokens <= limit
    if answer.finish_reason == "length":
        assert answer.tokens == limit
    forever = plan_answer(key, OutputLength(), limit=limit, ignore_eos=True)
    assert (forever.tokens, forever.finish_reason) == (limit, "length")
    fixed = plan_answer(key, OutputLength(), limit=limit, fixed_tokens=low + 1)
    assert fixed.tokens == min(low + 1, limit)
    assert fixed.finish_reason == ("stop" if low + 1 <= limit else "length")
