"""Predicted output lengths that are as good as the paper's predictor (§V-C): median of what is still possible.

The predictor sees a signal that is correlated with the log of the true length and says the median of the lengths that
go with it. The correlation is the one with which as many predictions fall into the right one of six equally filled
buckets as in the paper.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.fleet.lengths import Lengths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
BUCKETS = 6
SAMPLE = 20_000
SAMPLE_SEED = 51
BISECTIONS = 30


def predicted(output_tokens: Integers, lengths: Lengths, accuracy: float, seed: int) -> Floats:
    """What the predictor says of each true length."""
    correlation, _ = calibrated(lengths, accuracy)
    return _predict(output_tokens, lengths, correlation, np.random.default_rng(seed))


@cache
def calibrated(lengths: Lengths, accuracy: float) -> tuple[float, float]:
    """The correlation, and the share of predictions in the right bucket or one beside it.

    Args:
        lengths: what true lengths are drawn from.
        accuracy: share of predictions in the right bucket, between 1/6 and 1.
    """
    random = np.random.default_rng(SAMPLE_SEED)
    _, true = lengths.draw(random, SAMPLE)
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _accuracies(true, lengths, middle)[0] < accuracy else (low, middle)
    return low, _accuracies(true, lengths, low)[1]


def _accuracies(true: Integers, lengths: Lengths, correlation: float) -> tuple[float, float]:
    said = _predict(true, lengths, correlation, np.random.default_rng(SAMPLE_SEED + 1))
    edges = np.quantile(true, np.arange(1, BUCKETS) / BUCKETS)
    distance = np.abs(np.searchsorted(edges, said) - np.searchsorted(edges, true))
    return float((distance == 0).mean()), float((distance <= 1).mean())


def _predict(true: Integers, lengths: Lengths, correlation: float, random: np.random.Generator) -> Floats:
    deviation = np.sqrt(np.log1p(lengths.output_variation**2))
    median = np.log(lengths.mean_output_tokens) - deviation**2 / 2.0
    standard = (np.log(true) - median) / deviation
    signal = correlation * standard + np.sqrt(1.0 - correlation**2) * random.standard_normal(len(true))
    said: Floats = np.clip(np.exp(median + deviation * correlation * signal), 1.0, lengths.most_output_tokens)
    return said
