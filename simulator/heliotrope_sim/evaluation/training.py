"""Requests and steps as training sets, and models trained on them as the picker's trainer does it."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import Group, with_output_tokens
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS, STEPS
from heliotrope.predict.training import DEFAULT, TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet, block_key, split_of
from heliotrope_sim.evaluation.rows import Requests, Steps


def request_set(requests: Requests) -> TrainingSet:
    """The samples that finished requests give: their rows at their true lengths."""
    labels = np.column_stack([requests.ttft_seconds, requests.tpot_seconds, requests.joules])
    rows = with_output_tokens(requests.rows, requests.output_tokens)
    n = len(requests)
    return TrainingSet(REQUESTS, rows, labels, np.arange(n, dtype=np.float64), _splits(requests.run))


def step_set(steps: Steps) -> TrainingSet:
    """The samples of measured steps."""
    n = len(steps)
    return TrainingSet(
        STEPS, steps.rows, steps.joules[:, np.newaxis], np.arange(n, dtype=np.float64), _splits(steps.run)
    )


def models_of(
    requests: Requests,
    steps: Steps | None,
    seed: int,
    *,
    without: Collection[Group] = (),
    config: TrainingConfig = DEFAULT,
) -> LearnedModels:
    """Models trained on these samples, with the picker's own settings.

    Args:
        requests: to train and calibrate on.
        steps: as well; None: no model of steps.
        seed: of LightGBM.
        without: groups of features that the models do not see.
        config: the settings.
    """
    sets = [request_set(requests)] if steps is None else [request_set(requests), step_set(steps)]
    hidden = replace(config, without=frozenset(without))
    return LearnedModels(train(sets, seed, 0.0, hidden))


def _splits(runs: NDArray[np.int64]) -> NDArray[np.uint8]:
    """As the picker splits: a run is an endpoint."""
    positions: Counter[int] = Counter()
    splits = np.empty(len(runs), dtype=np.uint8)
    for i, run in enumerate(runs.tolist()):
        splits[i] = split_of(block_key(f"run-{run}", positions[run]))
        positions[run] += 1
    return splits
