"""Distributions of answer lengths by context, learned online: what six buckets and quantiles are read from.

A context is narrowed step by step: model → its application or tenant → reasoning, where the client says something of it
→ prompt length → token limit and streaming. Each step has a histogram of its own, and is a mixture with the step above
that weighs as much as `SHRINKAGE` answers: a context that was never seen answers as its application does, that one as
its model, that one as public traces.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from heliotrope.predict.features import FloatColumn
from heliotrope.predict.reasoning import UNSAID, Reasoning

BINS_PER_DOUBLING = 4
BINS = 17 * BINS_PER_DOUBLING
"""Logarithmic, up to 131,072 tokens; what is longer counts into the last."""
BUCKET_EDGES = (32, 64, 128, 256, 512)
"""Tokens at which one of the six buckets ends and the next begins."""
BUCKETS = len(BUCKET_EDGES) + 1
SHRINKAGE = 4.0
DECAY = 0.998
"""Weight of an answer relative to the next one in its context: a window of about 500."""
MAX_CONTEXTS = 4_096
PRIOR_SPREAD = 1.0
"""Standard deviation of the logarithm of lengths before anything was seen."""

_CENTERS: FloatColumn = 2.0 ** ((np.arange(BINS) + 0.5) / BINS_PER_DOUBLING)
_BUCKET_OF_BIN = np.searchsorted(BUCKET_EDGES, _CENTERS, side="right")
_KERNEL = (0.25, 0.5, 0.25)
"""A length says something of its neighbours too."""


@dataclass(frozen=True, slots=True)
class LengthContext:
    """What is known of a request that says something about its answer's length. Never its text."""

    model: str
    application: str = ""
    """Or the tenant; empty: not known."""
    prompt_tokens: int = 0
    max_output_tokens: int | None = None
    streaming: bool = False
    reasoning: Reasoning = UNSAID

    def path(self) -> tuple[tuple[object, ...], ...]:
        """From the widest to the narrowest."""
        prompt = int(math.log2(self.prompt_tokens + 1))
        limit = -1 if self.max_output_tokens is None else int(math.log2(max(self.max_output_tokens, 0) + 1))
        wide: tuple[object, ...] = (self.model, self.application)
        first: tuple[tuple[object, ...], ...] = ((self.model,), wide)
        reasoning = self.reasoning.kind()
        if reasoning is not None:
            wide = (*wide, reasoning)
            first = (*first, wide)
        return (*first, (*wide, prompt), (*wide, prompt, limit, self.streaming))


@dataclass(frozen=True, slots=True)
class LengthPrediction:
    """An answer's length in tokens."""

    mean: float
    median: float
    q90: float
    bucket: int
    """The likeliest of the six, from 0."""
    bucket_probabilities: tuple[float, ...]


class _Histogram:
    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = np.zeros(BINS)
        self.total = 0.0

    def add(self, bin_index: int) -> None:
        self.counts *= DECAY
        for offset, weight in zip((-1, 0, 1), _KERNEL, strict=True):
            self.counts[min(max(bin_index + offset, 0), BINS - 1)] += weight
        self.total = self.total * DECAY + 1.0


class LengthDistributions:
    """Histograms of contexts; those beyond `max_contexts` push out the least recently used."""

    def __init__(self, prior_mean_tokens: float, max_contexts: int = MAX_CONTEXTS) -> None:
        self._contexts: OrderedDict[tuple[object, ...], _Histogram] = OrderedDict()
        self._max_contexts = max_contexts
        self._prior = _log_normal(prior_mean_tokens)

    def __len__(self) -> int:
        return len(self._contexts)

    def add(self, context: LengthContext, output_tokens: int) -> None:
        """An answer has finished."""
        bin_index = bin_of(output_tokens)
        for key in context.path():
            histogram = self._contexts.setdefault(key, _Histogram())
            self._contexts.move_to_end(key)
            histogram.add(bin_index)
        while len(self._contexts) > self._max_contexts:
            self._contexts.popitem(last=False)

    def probabilities(self, context: LengthContext) -> FloatColumn:
        """Of each bin."""
        found = []
        for key in context.path():
            histogram = self._contexts.get(key)
            if histogram is None:
                break
            found.append(histogram)
        shares = self._prior
        for i, histogram in enumerate(found):
            counts, total = histogram.counts, histogram.total
            if i + 1 < len(found):  # what the narrower context knows itself must not count for the wider one too
                counts = np.maximum(counts - found[i + 1].counts, 0.0)
                total = counts.sum()
            shares = (counts + SHRINKAGE * shares) / (total + SHRINKAGE)
        return shares

    def model_mean(self, model: str) -> float:
        """Mean length of the answers of a model that have finished, with the prior mixed in as everywhere."""
        histogram = self._contexts.get((model,))
        if histogram is None:
            return float(self._prior @ _CENTERS)
        shares = (histogram.counts + SHRINKAGE * self._prior) / (histogram.total + SHRINKAGE)
        return float(shares @ _CENTERS)


def bin_of(tokens: int) -> int:
    """The bin that a length counts into."""
    return min(int(math.log2(max(tokens, 1)) * BINS_PER_DOUBLING), BINS - 1)


def bucket_of(tokens: int) -> int:
    """The bucket of a length, 0 to 5."""
    return int(np.searchsorted(BUCKET_EDGES, tokens, side="right"))


def summary(shares: FloatColumn, longer: float, max_output_tokens: int | None) -> LengthPrediction:
    """Mean, quantiles and buckets of a distribution.

    Args:
        shares: of each bin.
        longer: factor on all lengths.
        max_output_tokens: no answer is longer; None: no limit.
    """
    tokens = _CENTERS * longer
    if max_output_tokens is not None:
        tokens = np.minimum(tokens, float(max(max_output_tokens, 1)))
    buckets = _BUCKET_OF_BIN
    if longer != 1.0 or max_output_tokens is not None:
        buckets = np.searchsorted(BUCKET_EDGES, tokens, side="right")
    probabilities = np.bincount(buckets, weights=shares, minlength=BUCKETS)
    below = np.cumsum(shares)
    median, q90 = tokens[np.minimum(np.searchsorted(below, (0.5, 0.9)), BINS - 1)]
    return LengthPrediction(
        mean=max(float(shares @ tokens), 1.0),
        median=max(float(median), 1.0),
        q90=max(float(q90), 1.0),
        bucket=int(probabilities.argmax()),
        bucket_probabilities=tuple(probabilities.tolist()),
    )


def _log_normal(mean: float) -> FloatColumn:
    """Of this mean and `PRIOR_SPREAD`, over the bins."""
    z = (np.log(_CENTERS) - (math.log(mean) - PRIOR_SPREAD**2 / 2.0)) / PRIOR_SPREAD
    density: FloatColumn = np.exp(-z * z / 2.0)
    density /= density.sum()
    return density
