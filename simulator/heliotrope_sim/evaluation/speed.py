"""What a decision pays for its predictions."""

import statistics
import time

import numpy as np

from heliotrope.predict.features import Matrix
from heliotrope.predict.models import LearnedModels

CANDIDATES = 64
ROUNDS = 7
CALLS = 200


def microseconds_per_64_candidates(models: LearnedModels, rows: Matrix, seed: int) -> float:
    """TTFT, TPOT and energy of 64 candidates, mean, quantile and spread: the median call of the quietest round.

    Args:
        models: trained.
        rows: observed rows, of which each call gets others.
        seed: chooses them.
    """
    rng = np.random.default_rng(seed)
    batches = [np.ascontiguousarray(rows[rng.integers(len(rows), size=CANDIDATES)]) for _ in range(CALLS)]
    models.warm_up()
    models.predict(batches[0])
    rounds = []
    for _ in range(ROUNDS):
        took = []
        for batch in batches:
            started = time.perf_counter_ns()
            models.predict(batch)
            took.append(time.perf_counter_ns() - started)
        rounds.append(statistics.median(took))
    return min(rounds) / 1_000.0
