"""How well the length of an answer is known before it is written: six buckets, learned online from recordings."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from heliotrope.predict.length_distribution import LengthContext, bucket_of
from heliotrope.predict.output_length import OutputLengths
from heliotrope_sim.evaluation.lengths import Lengths
from heliotrope_sim.evaluation.scores import Score, mean_score

MODEL = "model"
BLOCK = 100
"""Neighbouring requests that are resampled together."""


@dataclass(frozen=True, slots=True)
class BucketScores:
    """Of the requests after the warm-up."""

    exact: Score
    within_one: Score
    base_rate: float
    """Share of the commonest bucket: what always answering it would reach."""
    base_within_one: float
    """Best share that one constant answer reaches within one bucket."""


def bucket_scores(requests: list[Lengths], seed: int, *, warm_up: int, with_application: bool) -> BucketScores:
    """Predict each request's bucket, then learn its length; in the order given, each length seen after its prediction.

    Args:
        requests: a stream.
        seed: of the intervals.
        warm_up: first requests, which teach but do not count.
        with_application: whether the picker knows what a request is for.
    """
    lengths = OutputLengths()
    distances: list[int] = []
    true: list[int] = []
    for i, request in enumerate(requests):
        now_s = float(i)
        application = request.application if with_application else ""
        context = LengthContext(MODEL, application, request.prompt_tokens, None, streaming=True)
        if i >= warm_up:
            true.append(bucket_of(request.output_tokens))
            distances.append(abs(lengths.predict_bucket(context, now_s) - true[-1]))
        lengths.started(MODEL, now_s)
        lengths.ended(MODEL, now_s, now_s + 1.0, request.output_tokens, context)
    away = np.array(distances)
    groups = np.arange(len(away)) // BLOCK
    counts = Counter(true)
    return BucketScores(
        exact=mean_score((away == 0).astype(np.float64), groups, seed),
        within_one=mean_score((away <= 1).astype(np.float64), groups, seed),
        base_rate=max(counts.values()) / len(true),
        base_within_one=max(sum(counts[b + d] for d in (-1, 0, 1)) for b in range(6)) / len(true),
    )
