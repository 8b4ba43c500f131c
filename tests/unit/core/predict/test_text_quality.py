"""The text predictor: what it learns, what it refuses to read, and that its figures are those of held-out prompts."""

import hashlib
import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.predict.text_quality import BUCKETS, FORMAT, SAMPLE_BYTES, TextQuality, features, parse_text_quality
from heliotrope.predict.text_quality_training import Score, read_scores, train

EASY = ("tell", "me", "a", "story", "of", "the", "sea", "and", "its", "ships")
HARD = ("prove", "integral", "lemma", "converges", "theorem", "bounded", "operator", "norm")


def scores(count: int, *, models: tuple[str, ...] = ("large", "small"), noise: bool = False) -> list[Score]:
    """The small model is good at stories and bad at proofs; with `noise`, at nothing in particular."""
    draw = random.Random(7)
    rows = []
    for i in range(count):
        hard = draw.random() < 0.5
        prompt = " ".join(draw.choices(HARD if hard else EASY, k=20)).encode() + str(i).encode()
        for model in models:
            good = 0.9 if model == "large" or not hard else 0.3
            rows.append(Score(prompt, model, draw.random() if noise else good + draw.uniform(-0.05, 0.05)))
    return rows


def test_it_tells_hard_prompts_from_easy_ones_and_beats_the_mean_on_held_out_prompts() -> None:
    model, reports = train(scores(300))
    small = next(report for report in reports if report.model == "small")
    assert small.fitted + small.held_out < 300  # the rest chose the penalty
    assert small.held_out > 20
    assert small.mean_absolute_error < 0.3 * small.base_error
    assert small.better_than_base
    hard, easy = model.predict(b"prove the theorem of the bounded operator"), model.predict(b"tell me of the ships")
    assert hard["small"] + 0.2 < easy["small"]
    assert hard["large"] > 0.75


def test_noise_is_not_called_better_by_much() -> None:
    _, reports = train(scores(300, noise=True))
    for report in reports:
        assert report.mean_absolute_error > 0.9 * report.base_error


def test_equal_data_give_an_equal_file_without_the_text() -> None:
    rows = scores(80)
    text = train(rows)[0].to_text()
    assert train(rows)[0].to_text() == text
    assert "theorem" not in text


def test_a_file_reads_back_to_the_same_predictions() -> None:
    model, _ = train(scores(80))
    read = parse_text_quality(model.to_text())
    assert read.models == ("large", "small")
    assert read.predict(b"prove it") == model.predict(b"prove it")


def resealed(change: dict[str, object]) -> str:
    model, _ = train(scores(60, models=("m",)))
    document = json.loads(model.to_text().split("\n", 2)[2])
    entry = document["models"]["m"]
    entry.update({key: value for key, value in change.items() if key in entry})
    document.update({key: value for key, value in change.items() if key in document})
    body = json.dumps(document) + "\n"
    return f"{FORMAT}\nsha256 {hashlib.sha256(body.encode()).hexdigest()}\n{body}"


@pytest.mark.parametrize(
    "change",
    [
        {"weights": "AAAA"},
        {"weights": "no base64!"},
        {"weights": None},
        {"bias": float("nan")},
        {"bias": "x"},
        {"length": float("inf")},
        {"buckets": 8},
        {"models": {}},
        {"models": []},
    ],
)
def test_what_cannot_be_used_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidInputError):
        parse_text_quality(resealed(change))


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_or_cut_file_is_refused(place: int, flip: int) -> None:
    text = TextQuality({"m": np.zeros(BUCKETS + 1, dtype=np.float32)}, {"m": 0.5}).to_text()
    place %= len(text)
    changed = text[:place] + chr(ord(text[place]) ^ flip) + text[place + 1 :]
    for broken in (changed, text[:place]):
        with pytest.raises(InvalidInputError):
            parse_text_quality(broken)


@given(st.binary(max_size=200))
def test_features_are_bounded_whatever_the_bytes(prompt: bytes) -> None:
    row = features(prompt)
    assert row.shape == (BUCKETS + 1,)
    assert np.isfinite(row).all()
    assert float(row[:BUCKETS] @ row[:BUCKETS]) <= 1.0 + 1e-5


def test_of_a_long_prompt_only_both_ends_are_read() -> None:
    head, tail = b"a" * SAMPLE_BYTES, b"b" * SAMPLE_BYTES
    one, other = features(head + b"x" * 9_999 + tail), features(head + b"y" * 9_999 + tail)
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "1", '{"prompt": "secret", "model": "m"}', '{"prompt": "secret", "model": "m", "score": 1.1}',
     '{"prompt": "secret", "model": "m", "score": NaN}', '{"prompt": "secret", "model": "m", "score": true}',
     '{"prompt": 1, "model": "m", "score": 1}', '{"prompt": "secret", "model": "", "score": 1}'],
)  # fmt: skip
def test_a_bad_line_is_named_and_not_quoted(line: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read_scores(['{"prompt": "p", "model": "m", "score": 0.5}', "", line])
    assert "line 3" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_too_little_data_is_an_error_that_says_how_much_is_needed() -> None:
    with pytest.raises(InvalidInputError, match="at least 50"):
        train(scores(20))
    with pytest.raises(InvalidInputError, match="too few different prompts"):
        train([Score(b"same", "m", 0.5)] * 60)
