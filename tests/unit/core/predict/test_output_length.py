import random

import pytest

from heliotrope.predict.output_length import PRIOR_TOKENS, OutputLengths

TOKENS_PER_SECOND = 40.0


def play(lengths: OutputLengths, model: str, requests: list[tuple[float, int]], until_s: float) -> None:
    """Requests of (start, tokens) at a constant speed, in order of time, as far as `until_s`."""
    events: list[tuple[float, int, float, int]] = []
    for start, tokens in requests:
        events.append((start, 0, start, tokens))
        events.append((start + tokens / TOKENS_PER_SECOND, 1, start, tokens))
    for time, kind, start, tokens in sorted(events):
        if time > until_s:
            return
        if kind == 0:
            lengths.started(model, time)
        else:
            lengths.ended(model, start, time, tokens)


def test_the_prior_holds_until_something_was_seen_and_the_requests_limit_always() -> None:
    lengths = OutputLengths()
    assert lengths.expected_tokens("m", None, 0.0) == PRIOR_TOKENS
    assert lengths.expected_tokens("m", 16, 0.0) == 16.0
    assert lengths.expected_tokens("m", 0, 0.0) == 1.0


@pytest.mark.parametrize("mean", [20, 300])
def test_it_finds_the_mean_under_steady_load(mean: int) -> None:
    rng = random.Random(3)
    lengths = OutputLengths()
    requests = [(i * 0.1, max(1, round(rng.expovariate(1 / mean)))) for i in range(3000)]
    play(lengths, "m", requests, until_s=290.0)
    assert lengths.expected_tokens("m", None, 290.0) == pytest.approx(mean, rel=0.25)


def test_short_answers_that_finish_first_do_not_make_it_optimistic() -> None:
    """Half of the answers have 20 tokens, half 580; after 8 s almost only short ones have finished."""
    lengths = OutputLengths()
    play(lengths, "m", [(i * 0.1, 20 if i % 2 else 580) for i in range(80)], until_s=8.0)
    assert lengths.expected_tokens("m", None, 8.0) > 180  # the mean of those that have finished is 20


def test_a_request_that_failed_counts_with_its_time_only() -> None:
    lengths = OutputLengths()
    lengths.started("m", 0.0)
    before = lengths.expected_tokens("m", None, 0.0)
    lengths.ended("m", 0.0, 0.0, None)
    assert lengths.expected_tokens("m", None, 100.0) == before
    lengths.started("m", 100.0)
    lengths.ended("m", 100.0, 100.0, -5)
    assert lengths.expected_tokens("m", None, 100.0) == before


def test_an_unknown_model_may_end_without_having_started_here() -> None:
    OutputLengths().ended("never-seen", 0.0, 1.0, 10)


def test_memory_is_bounded() -> None:
    lengths = OutputLengths(max_models=2)
    for name in ("a", "b", "a", "c"):
        lengths.started(name, 0.0)
        lengths.ended(name, 0.0, 1.0, 1000)
    assert lengths.expected_tokens("b", None, 1.0) == PRIOR_TOKENS  # pushed out
    assert lengths.expected_tokens("a", None, 1.0) != PRIOR_TOKENS
