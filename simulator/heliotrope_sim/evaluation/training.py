"""Requests and steps as training sets, and models trained on them as the picker's trainer does it."""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from heliotrope.predict.features import Group, with_output_tokens
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS, STEPS
from heliotrope.predict.training import DEFAULT, TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet, split_of
from heliotrope_sim.evaluation.rows import Requests, Steps


def request_set(requests: Requests) -> TrainingSet:
    """The samples that finished requests give: their rows at their true lengths."""
    labels = np.column_stack([requests.ttft_seconds, requests.tpot_seconds, requests.joules])
    rows = with_output_tokens(requests.rows, requests.output_tokens)
    n = len(requests)
    return TrainingSet(REQUESTS, rows, labels, np.arange(n, dtype=np.float64), _splits(n))


def step_set(steps: Steps) -> TrainingSet:
    """The samples of measured steps."""
    n = len(steps)
    return TrainingSet(STEPS, steps.rows, steps.joules[:, np.newaxis], np.arange(n, dtype=np.float64), _splits(n))


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


def _splits(n: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.array([split_of(f"sample-{i}") for i in range(n)], dtype=np.uint8)
