"""Predicts from a prompt's text how good each model's answer will be: hashed character n-grams and a linear model.

Features: the 3-, 4- and 5-grams of bytes of the first and last `SAMPLE_BYTES`, hashed into `BUCKETS`, each counted as
log(1 + n), scaled to length 1; behind them the logarithm of the prompt's length. Per model a weight for each and a
bias; predictions are clipped to [0, 1]. The file:

    heliotrope-quality 1
    sha256 <digest of all bytes after this line>
    {"buckets": 4096, "models": {"NAME": {"bias": …, "length": …, "weights": "<base64 of little-endian float32>"}}}

No pickle: nothing in the file is executed, and what passes the digest is still checked. It holds no text of anybody's,
but weights of n-grams: whoever has the file can test whether a string resembles what it was trained on.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.sealed import sealed, unsealed

FORMAT = "heliotrope-quality 1"
BUCKETS = 4_096
SAMPLE_BYTES = 2_048
MAX_CHARACTERS = 4_000_000
MAX_MODELS = 64
_SIZES = (3, 4, 5)
_MULTIPLIER = np.uint32(2_654_435_761)
_SHIFT = np.uint32(20)

Vector = NDArray[np.float32]


def features(prompt: bytes) -> Vector:
    """The features of a prompt, shape (BUCKETS + 1,)."""
    row = np.zeros(BUCKETS + 1, dtype=np.float32)
    sample = prompt if len(prompt) <= 2 * SAMPLE_BYTES else prompt[:SAMPLE_BYTES] + prompt[-SAMPLE_BYTES:]
    letters = np.frombuffer(sample, dtype=np.uint8).astype(np.uint32)
    hashed = []
    for size in _SIZES:
        if len(letters) < size:
            break
        code = np.full(len(letters) - size + 1, size, dtype=np.uint32)
        for offset in range(size):
            code = code * np.uint32(257) + letters[offset : len(letters) - size + 1 + offset]
        hashed.append((code * _MULTIPLIER) >> _SHIFT)
    if hashed:
        counts = np.log1p(np.bincount(np.concatenate(hashed), minlength=BUCKETS))
        row[:BUCKETS] = counts / math.sqrt(float(counts @ counts))
    row[BUCKETS] = math.log1p(len(prompt)) / 10.0
    return row


@dataclass(frozen=True, slots=True, eq=False)
class TextQuality:
    """A trained predictor."""

    weights: Mapping[str, Vector] = field(repr=False)
    """By model, as `features`."""
    bias: Mapping[str, float] = field(repr=False)

    @property
    def models(self) -> tuple[str, ...]:
        """That it knows."""
        return tuple(self.weights)

    def predict(self, prompt: bytes) -> dict[str, float]:
        """Quality in [0, 1] by model."""
        row = features(prompt)
        return {
            model: min(max(float(weights @ row) + self.bias[model], 0.0), 1.0)
            for model, weights in self.weights.items()
        }

    def to_text(self) -> str:
        """The file."""
        models = {
            model: {
                "bias": self.bias[model],
                "length": float(weights[BUCKETS]),
                "weights": base64.b64encode(weights[:BUCKETS].astype("<f4").tobytes()).decode("ascii"),
            }
            for model, weights in self.weights.items()
        }
        body = json.dumps({"buckets": BUCKETS, "models": models}) + "\n"
        return sealed(FORMAT, body)


def parse_text_quality(text: str) -> TextQuality:
    """Read what `TextQuality.to_text` wrote.

    Raises:
        InvalidInputError: if the text is cut off, was changed, is of another version, or holds what is no number.
    """
    body = unsealed(text, FORMAT, name="quality", max_characters=MAX_CHARACTERS)
    try:
        document = json.loads(body)
        entries = document["models"].items()
        if document["buckets"] != BUCKETS or not 0 < len(entries) <= MAX_MODELS:
            raise InvalidInputError("quality", f"must have {BUCKETS} buckets and from 1 to {MAX_MODELS} models")
        weights = {model: _weights(entry) for model, entry in entries}
        bias = {model: float(entry["bias"]) for model, entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("quality", "holds no such predictor") from None
    if not all(map(math.isfinite, bias.values())):
        raise InvalidInputError("quality", "holds what is no number")
    return TextQuality(weights, bias)


def _weights(entry: Mapping[str, Any]) -> Vector:
    try:
        raw = base64.b64decode(entry["weights"], validate=True)
    except binascii.Error:
        raise InvalidInputError("quality.weights", "is no base64") from None
    if len(raw) != 4 * BUCKETS:
        raise InvalidInputError("quality.weights", f"must hold {BUCKETS} numbers")
    row = np.append(np.frombuffer(raw, dtype="<f4"), np.float32(entry["length"])).astype(np.float32)
    if not np.isfinite(row).all():
        raise InvalidInputError("quality.weights", "holds what is no number")
    return row
