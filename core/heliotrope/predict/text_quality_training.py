"""Trains `heliotrope.predict.text_quality` on a user's own scores, by ridge regression, one model at a time.

Prompts are split by their digest, so that no prompt is on two sides: 70 % fit, 15 % choose the penalty, 15 % are held
out and tell the error. The base is the mean score of the fitted part: what somebody predicts who does not look at the
prompt.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.predict.text_quality import BUCKETS, MAX_MODELS, TextQuality, Vector, features

MAX_ROWS = 20_000
"""Of one model; more are left out, and counted."""
MIN_ROWS = 50
"""Of one model."""
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_VALIDATED, _HELD_OUT = 0.15, 0.15


@dataclass(frozen=True, slots=True)
class Score:
    """How good one model's answer to one prompt was."""

    prompt: bytes
    model: str
    score: float
    """In [0, 1]."""


@dataclass(frozen=True, slots=True)
class ModelReport:
    """What training of one model came to."""

    model: str
    fitted: int
    held_out: int
    left_out: int
    """Rows beyond `MAX_ROWS`."""
    penalty: float
    mean_absolute_error: float
    """On held-out prompts."""
    base_error: float
    """Of the mean score, on the same."""
    mean_score: float

    @property
    def better_than_base(self) -> bool:
        """Whether looking at the prompt helps."""
        return self.mean_absolute_error < self.base_error


def read_scores(lines: Iterable[str]) -> list[Score]:
    """Read JSON lines `{"prompt": "…", "model": "…", "score": 0.8}`.

    Raises:
        InvalidInputError: if a line is no such object; it names the line and never what is in it.
    """
    scores = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            prompt, model, score = entry["prompt"], entry["model"], entry["score"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidInputError(f"line {number}", "must be a JSON object with prompt, model and score") from None
        if not isinstance(prompt, str) or not isinstance(model, str) or not model:
            raise InvalidInputError(f"line {number}", "prompt and model must be texts")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0.0 <= score <= 1.0:
            raise InvalidInputError(f"line {number}", "score must be a number from 0 to 1")
        scores.append(Score(prompt.encode("utf-8", "surrogatepass"), model, float(score)))
    return scores


def train(scores: Sequence[Score]) -> tuple[TextQuality, list[ModelReport]]:
    """Fit every model of the scores.

    Raises:
        InvalidInputError: if there are too many models, or one has fewer than `MIN_ROWS` scores.
    """
    by_model: dict[str, list[Score]] = {}
    for score in scores:
        by_model.setdefault(score.model, []).append(score)
    if not 0 < len(by_model) <= MAX_MODELS:
        raise InvalidInputError("scores", f"must be of 1 to {MAX_MODELS} models, not {len(by_model)}")
    weights: dict[str, Vector] = {}
    bias: dict[str, float] = {}
    reports = []
    for model, rows in sorted(by_model.items()):
        if len(rows) < MIN_ROWS:
            raise InvalidInputError("scores", f"{model!r} has {len(rows)} scores; at least {MIN_ROWS} are needed")
        weights[model], bias[model], report = _fit(model, rows)
        reports.append(report)
    return TextQuality(weights, bias), reports


def _fit(model: str, rows: Sequence[Score]) -> tuple[Vector, float, ModelReport]:
    used = sorted(rows, key=lambda row: _place(row.prompt))[:MAX_ROWS]
    places = np.array([_place(row.prompt) for row in used])
    # A subset of the rows is the lowest of the places: shares are of what was used.
    places = places / max(float(places.max()), 1e-12)
    x = np.stack([features(row.prompt) for row in used])
    y = np.array([row.score for row in used])
    held = places >= 1.0 - _HELD_OUT
    validated = ~held & (places >= 1.0 - _HELD_OUT - _VALIDATED)
    fitted = ~held & ~validated
    if not (fitted.any() and validated.any() and held.any()):
        raise InvalidInputError("scores", f"{model!r} has too few different prompts to hold some of them out")
    solved = _Ridge(x[fitted], y[fitted])
    penalty = min(PENALTIES, key=lambda each: _error(solved.at(each), x[validated], y[validated]))
    weights, bias = solved.at(penalty)
    mean = float(y[fitted].mean())
    return (
        weights,
        bias,
        ModelReport(
            model=model,
            fitted=int(fitted.sum()),
            held_out=int(held.sum()),
            left_out=len(rows) - len(used),
            penalty=penalty,
            mean_absolute_error=_error((weights, bias), x[held], y[held]),
            base_error=float(np.abs(y[held] - mean).mean()),
            mean_score=mean,
        ),
    )


class _Ridge:
    """One decomposition for all penalties: of X Xᵀ or of Xᵀ X, whichever is smaller."""

    def __init__(self, x: NDArray[np.float32], y: NDArray[np.float64]) -> None:
        self._means, self._mean = x.mean(axis=0, dtype=np.float64), float(y.mean())
        self._x = x.astype(np.float64) - self._means
        self._y = y - self._mean
        self._dual = len(x) <= BUCKETS + 1
        gram = self._x @ self._x.T if self._dual else self._x.T @ self._x
        self._values, self._vectors = np.linalg.eigh(gram)

    def at(self, penalty: float) -> tuple[Vector, float]:
        """Weights and bias."""
        right = self._y if self._dual else self._x.T @ self._y
        solved = self._vectors @ ((self._vectors.T @ right) / (np.maximum(self._values, 0.0) + penalty))
        weights = self._x.T @ solved if self._dual else solved
        return weights.astype(np.float32), self._mean - float(self._means @ weights)


def _error(solution: tuple[Vector, float], x: NDArray[np.float32], y: NDArray[np.float64]) -> float:
    weights, bias = solution
    return float(np.abs(np.clip(x @ weights + bias, 0.0, 1.0) - y).mean())


def _place(prompt: bytes) -> float:
    """In [0, 1), the same for equal prompts and nothing else."""
    digest = hashlib.blake2b(prompt, digest_size=8).digest()
    return math.ldexp(int.from_bytes(digest, "big"), -64)
