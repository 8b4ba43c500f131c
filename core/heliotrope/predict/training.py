"""Trains the models of a bundle, in a process of its own.

Beside `heliotrope.cache.gate_training` the only module that imports LightGBM.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import lightgbm
import numpy as np

from heliotrope.predict.bundle import Bundle, Scores, TargetModel
from heliotrope.predict.conformal import calibrate
from heliotrope.predict.costs import NO_COSTS, Costs, fit_costs
from heliotrope.predict.features import FloatColumn, Group, Matrix
from heliotrope.predict.forest import Forest, parse_forest
from heliotrope.predict.models import Bases
from heliotrope.predict.regimes import regimes_of
from heliotrope.predict.scoring import analytic_estimates, held_out, scores_of
from heliotrope.predict.targets import Target
from heliotrope.predict.trainingset import Split, TrainingSet
from heliotrope.predict.walk import walk

TREES_SHARE = {Target.TTFT: 1.2, Target.TPOT: 0.6, Target.REQUEST_ENERGY: 1.0, Target.STEP_ENERGY: 0.8}
"""Queues are worth many trees. What comes after the first token depends on arrivals that nobody knows yet, so that more
trees would learn noise."""
MAX_WEIGHT = 4.0
"""A sample weighs by the inverse of what it took over its base, within this factor of 1."""
NEEDED_FOR_COSTS = frozenset({Group.REQUEST, Group.STATE, Group.POWER, Group.HARDWARE})
"""Groups whose features the refitted costs are made of: without one of them there are none."""


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """How models are trained. The defaults keep 64 candidates within the time a decision has for them."""

    trees: int = 40
    """Of a target on average; `TREES_SHARE` says how they are divided."""
    leaves: int = 24
    max_depth: int = 5
    """Steps of the longest walk, so its worst time."""
    learning_rate: float = 0.2
    min_train: int = 100
    """A target with fewer samples to train on gets no model; so for the next one."""
    min_calibrate: int = 20
    half_life_seconds: float | None = None
    """Age at which a sample counts half; None: all count the same."""
    without: frozenset[Group] = frozenset()
    """Groups of features that are hidden from the models, for ablations."""


DEFAULT = TrainingConfig()


def train(sets: Sequence[TrainingSet], seed: int, created_unix_s: float, config: TrainingConfig = DEFAULT) -> Bundle:
    """A candidate with a model of each target that has enough samples; the same input gives the same bundle.

    Args:
        sets: of different tables.
        seed: of LightGBM.
        created_unix_s: the time to write into the bundle.
        config: see there.
    """
    models: dict[Target, TargetModel] = {}
    for samples in sets:
        for target in samples.table.targets:
            model = _train_target(samples, target, seed, config)
            if model is not None:
                models[target] = model
    return Bundle(created_unix_s, models)


def _train_target(samples: TrainingSet, target: Target, seed: int, config: TrainingConfig) -> TargetModel | None:
    seen = held_out(samples, target, Split.TRAIN)
    unseen = held_out(samples, target, Split.CALIBRATE)
    if len(seen) < config.min_train or len(unseen) < config.min_calibrate:
        return None
    analytic_base = Group.ANALYTIC not in config.without
    costs = NO_COSTS if config.without & NEEDED_FOR_COSTS else fit_costs(target, seen.rows, seen.labels_of(target))
    scale = _scale(seen, target, analytic_base)
    residuals = np.log(seen.labels_of(target) / _bases(seen, target, costs, scale, analytic_base))
    trees = max(round(config.trees * TREES_SHARE[target]), 1)
    weights = _weights(seen, config.half_life_seconds)
    objective = "regression"
    if len(costs.kinds):
        # What a good base leaves over is what nobody could foresee, and some take much longer than most. The least
        # relative error then has the median with weights 1 / observed (Gneiting 2011, section 3.2). Without such a
        # base trees must still find the size of things, which means of logarithms do with fewer samples.
        weights = weights * np.clip(np.exp(-residuals), 1.0 / MAX_WEIGHT, MAX_WEIGHT)
        objective = "regression_l1"
    text = _fit(seen, residuals, weights, seed, trees, objective, config)
    forest = parse_forest(text, seen.table.feature_names)
    residuals = _residuals(unseen, target, forest, costs, scale, analytic_base)
    weights = _weights(unseen, config.half_life_seconds)
    calibration = calibrate(residuals, regimes_of(unseen.rows, unseen.table), weights)
    model = TargetModel(
        target=target,
        text=text,
        forest=forest,
        scale=scale,
        analytic_base=analytic_base,
        calibration=calibration,
        trained_on=len(seen),
        scores=Scores(0, np.nan, np.nan, np.nan),
        costs=costs,
    )
    return replace(model, scores=scores_of(Bundle(0.0, {target: model}), target, held_out(samples, target)))


def _scale(samples: TrainingSet, target: Target, analytic_base: bool) -> float:
    """Geometric mean of the labels that have no analytic estimate, or of all."""
    labels = samples.labels_of(target)
    alone = labels[np.isnan(analytic_estimates(samples, target))] if analytic_base else labels
    return float(np.exp(np.mean(np.log(alone if len(alone) else labels))))


def _bases(samples: TrainingSet, target: Target, costs: Costs, scale: float, analytic_base: bool) -> FloatColumn:
    """As `heliotrope.predict.models` finds them."""
    bases = Bases([(target, costs)]).of(np.ascontiguousarray(samples.rows))[0]
    analytic = analytic_estimates(samples, target) if analytic_base else np.full(len(samples), np.nan)
    bases = np.where(np.isfinite(bases) & (bases > 0.0), bases, analytic)
    return np.nan_to_num(bases, nan=scale)


def _weights(samples: TrainingSet, half_life_seconds: float | None) -> FloatColumn:
    if half_life_seconds is None:
        return np.ones(len(samples))
    age = samples.at_unix_s.max() - samples.at_unix_s
    weights: FloatColumn = 0.5 ** (age / half_life_seconds)
    return np.maximum(weights, 1e-3)


def _fit(
    samples: TrainingSet,
    residuals: FloatColumn,
    weights: FloatColumn,
    seed: int,
    trees: int,
    objective: str,
    config: TrainingConfig,
) -> str:
    parameters: dict[str, Any] = {
        "objective": objective,
        "num_leaves": config.leaves,
        "max_depth": config.max_depth,
        "learning_rate": config.learning_rate,
        "min_data_in_leaf": int(np.clip(len(samples) // 50, 5, 20)),
        "min_data_per_group": int(np.clip(len(samples) // 20, 5, 50)),
        "cat_smooth": 1.0,
        "cat_l2": 1.0,
        "seed": seed,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    table = samples.table
    data = lightgbm.Dataset(
        _visible(samples, config.without),
        residuals,
        weight=weights,
        feature_name=list(table.feature_names),
        categorical_feature=list(table.categorical),
        free_raw_data=True,
    )
    booster = lightgbm.train(parameters, data, num_boost_round=trees)
    text, end, _ = booster.model_to_string().partition("\nend of trees\n")
    return str(text + end)


def _visible(samples: TrainingSet, without: frozenset[Group]) -> Matrix:
    if not without:
        return samples.rows
    rows = samples.rows.copy()
    rows[:, [feature.group in without for feature in samples.table.features]] = np.nan
    return rows


def _residuals(
    samples: TrainingSet, target: Target, forest: Forest, costs: Costs, scale: float, analytic_base: bool
) -> FloatColumn:
    rows = np.ascontiguousarray(samples.rows)
    logs = walk(rows, forest, np.array([0, forest.trees], dtype=np.int32))[0, : len(rows)]
    bases = _bases(samples, target, costs, scale, analytic_base)
    residuals: FloatColumn = np.log(samples.labels_of(target) / bases) - logs
    return residuals
