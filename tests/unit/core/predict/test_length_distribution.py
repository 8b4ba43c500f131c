import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.length_distribution import (
    BINS,
    BUCKET_EDGES,
    BUCKETS,
    SHRINKAGE,
    LengthContext,
    LengthDistributions,
    bin_of,
    bucket_of,
    summary,
)
from heliotrope.predict.output_length import PRIOR_TOKENS, OutputLengths
from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning

CHAT = LengthContext("m", "chat", 500, None, streaming=True)
CODE = LengthContext("m", "code", 500, None, streaming=True)


def taught(answers: dict[LengthContext, tuple[int, ...]], rounds: int = 100) -> OutputLengths:
    """Answers that start and end one after the other, at 40 tokens per second."""
    lengths = OutputLengths()
    now_s = 0.0
    for _ in range(rounds):
        for context, tokens in answers.items():
            for count in tokens:
                lengths.started(context.model, now_s)
                lengths.ended(context.model, now_s, now_s + count / 40.0, count, context)
                now_s += count / 40.0
    return lengths


def test_before_anything_was_seen_lengths_are_those_of_public_traces() -> None:
    prediction = OutputLengths().predict(CHAT, 0.0)
    assert prediction.mean == pytest.approx(PRIOR_TOKENS, rel=0.05)
    assert prediction.median == pytest.approx(PRIOR_TOKENS * math.exp(-0.5), rel=0.2)
    assert sum(prediction.bucket_probabilities) == pytest.approx(1.0)


def test_applications_of_one_model_have_lengths_of_their_own() -> None:
    lengths = taught({CHAT: (300, 340), CODE: (20, 24)})
    chat, code = lengths.predict(CHAT, 1e4), lengths.predict(CODE, 1e4)
    assert chat.mean == pytest.approx(320, rel=0.1)
    assert code.mean == pytest.approx(22, rel=0.4)
    assert (chat.bucket, code.bucket) == (bucket_of(320), bucket_of(22))
    assert code.q90 < chat.median < chat.q90
    assert lengths.predict_bucket(CODE, 1e4) == code.bucket
    assert lengths.expected_tokens("m", None, 1e4, CHAT) == chat.mean


def test_a_context_that_was_never_seen_answers_as_the_next_wider_one() -> None:
    lengths = taught({CHAT: (300, 340), CODE: (20, 24)})
    longer = LengthContext("m", "chat", 40_000, 4_096, streaming=False)
    assert lengths.predict(longer, 1e4).bucket == bucket_of(320)
    assert lengths.predict(LengthContext("m", "new"), 1e4).mean == pytest.approx(171, rel=0.15)
    assert lengths.predict(LengthContext("other"), 1e4).mean == OutputLengths().predict(CHAT, 0.0).mean


def test_an_answer_counts_once_although_four_contexts_know_it() -> None:
    """So many answers weigh as much as the prior, whether one context or four have seen them."""
    distributions = LengthDistributions(200.0)
    prior = distributions.probabilities(CHAT)
    for _ in range(int(SHRINKAGE)):
        distributions.add(CHAT, 10_000)
    there = bin_of(10_000)
    mass = distributions.probabilities(CHAT)[there - 1 : there + 2].sum()
    assert mass == pytest.approx(0.5 + prior[there - 1 : there + 2].sum() / 2.0, abs=0.01)


def test_prompt_length_and_limit_matter_where_they_say_something() -> None:
    short, long = LengthContext("m", "a", 50), LengthContext("m", "a", 5_000)
    lengths = taught({short: (40,), long: (900,)})
    assert lengths.predict(short, 1e4).median < 64
    assert lengths.predict(long, 1e4).median > 700


def test_efforts_and_budgets_tell_lengths_apart() -> None:
    short, long, capped, unsaid = (
        LengthContext("m", "a", 500, None, streaming=True, reasoning=reasoning)
        for reasoning in (Reasoning(Effort.LOW), Reasoning(Effort.HIGH), Reasoning(None, 1_000), UNSAID)
    )
    lengths = taught({short: (60,), long: (4_000,), capped: (1_100,)})
    assert lengths.predict(short, 1e4).median < 80
    assert lengths.predict(long, 1e4).median > 3_000
    assert 900 < lengths.predict(capped, 1e4).median < 1_300
    # Another prompt length of the same effort is nearer to it than to all answers together.
    other = replace(long, prompt_tokens=50_000)
    assert lengths.predict(other, 1e4).median > 3_000
    assert lengths.predict(unsaid, 1e4).q90 > 3_000
    assert lengths.predict(unsaid, 1e4).median < 3_000


def test_who_says_nothing_of_reasoning_has_the_contexts_of_those_who_cannot() -> None:
    assert len(CHAT.path()) == 4
    assert len(replace(CHAT, reasoning=Reasoning(Effort.LOW)).path()) == 5
    assert len({replace(CHAT, reasoning=Reasoning(None, tokens)).path() for tokens in (0, 1, 1_000, 1_001)}) == 3


@given(st.integers(0, 5_000), st.lists(st.integers(0, 100_000), max_size=20), st.integers(1, 3))
def test_no_answer_is_longer_than_its_limit_and_none_shorter_than_a_token(
    limit: int, answers: list[int], in_flight: int
) -> None:
    lengths = OutputLengths()
    context = LengthContext("m", "a", 10, limit)
    for number, tokens in enumerate(answers):
        lengths.started("m", float(number))
        lengths.ended("m", float(number), number + 1.0, tokens, context)
    for _ in range(in_flight):
        lengths.started("m", float(len(answers)))
    prediction = lengths.predict(context, len(answers) + 1_000.0)
    most = max(limit, 1)
    assert 1.0 <= prediction.mean <= most + 1e-9
    assert 1.0 <= prediction.median <= prediction.q90 <= most
    assert prediction.bucket <= bucket_of(most)
    assert len(prediction.bucket_probabilities) == BUCKETS
    assert sum(prediction.bucket_probabilities) == pytest.approx(1.0)


def test_short_answers_that_finish_first_do_not_make_it_optimistic_in_any_context() -> None:
    """Half of the answers have 20 tokens, half 580; after 8 s almost only short ones have finished."""
    lengths = OutputLengths()
    events = []
    for i in range(80):
        tokens = 20 if i % 2 else 580
        events += [(i * 0.1, 0, i * 0.1, tokens), (i * 0.1 + tokens / 40.0, 1, i * 0.1, tokens)]
    for at_s, kind, start_s, tokens in sorted(events):
        if at_s > 8.0:
            break
        if kind == 0:
            lengths.started("m", at_s)
        else:
            lengths.ended("m", start_s, at_s, tokens, CHAT)
    assert lengths._distributions.model_mean("m") < 80  # what the finished ones say
    assert lengths.predict(CHAT, 8.0).mean > 150


def test_under_steady_load_the_correction_does_not_move_it() -> None:
    rng = random.Random(4)
    lengths = OutputLengths()
    events = []
    for i in range(3_000):
        tokens = max(1, round(rng.lognormvariate(5.0, 0.8)))
        events += [(i * 0.1, 0, i * 0.1, tokens), (i * 0.1 + tokens / 40.0, 1, i * 0.1, tokens)]
    means = []
    for at_s, kind, start_s, tokens in sorted(events):
        if at_s > 290.0:
            break
        if kind == 0:
            lengths.started("m", at_s)
            means.append(lengths.predict(CHAT, at_s).mean)
        else:
            lengths.ended("m", start_s, at_s, tokens, CHAT)
    assert np.mean(means[1_000:]) == pytest.approx(math.exp(5.0 + 0.32), rel=0.08)


def test_quantiles_cover_what_they_say() -> None:
    rng = random.Random(5)
    lengths = OutputLengths()
    covered = []
    for i in range(3_000):
        tokens = max(1, round(rng.lognormvariate(4.0, 0.7)))
        prediction = lengths.predict(CHAT, float(i))
        covered.append((tokens <= prediction.median, tokens <= prediction.q90))
        lengths.started("m", float(i))
        lengths.ended("m", float(i), i + 0.5, tokens, CHAT)
    median, q90 = np.mean(covered[500:], axis=0)
    assert median == pytest.approx(0.5, abs=0.08)
    assert q90 == pytest.approx(0.9, abs=0.03)


def test_buckets_and_bins_meet_at_the_edges() -> None:
    assert [bucket_of(edge - 1) for edge in BUCKET_EDGES] == [0, 1, 2, 3, 4]
    assert [bucket_of(edge) for edge in BUCKET_EDGES] == [1, 2, 3, 4, 5]
    for tokens in (1, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 131_072, 10**9):
        shares = np.zeros(BINS)
        shares[bin_of(tokens)] = 1.0
        assert summary(shares, 1.0, None).bucket == bucket_of(tokens)


def test_memory_is_bounded_and_the_least_used_go_first() -> None:
    distributions = LengthDistributions(200.0, max_contexts=8)
    for number in range(50):
        distributions.add(CHAT, 20)
        distributions.add(LengthContext(f"m-{number}"), 900)
        assert len(distributions) <= 8
    assert distributions.model_mean("m") < 60
    assert distributions.model_mean("m-0") == LengthDistributions(200.0).model_mean("m-0")
