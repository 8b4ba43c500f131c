"""Boosted trees (LightGBM) on what the regression sees and on hour, weekday and lags: a rival, not in use."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from heliotrope.carbon.forecast.hours import FloatMatrix, Hours, IntVector
from heliotrope.carbon.forecast.inputs import Inputs
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, Fitted

TRAINED_AHEAD = (1, 2, 3, 4, 6, 9, 12, 18, 24, 30, 36, 48, 60, 72)
"""Hours ahead that are trained on; how far ahead is an input, so that the others lie between."""
PARAMETERS = {
    "objective": "l1",
    "num_leaves": 15,
    "learning_rate": 0.05,
    "min_data_in_leaf": 200,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
    "lambda_l2": 10.0,
    "num_threads": 1,
    "seed": 0,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
TREES = 150


@dataclass(frozen=True, slots=True)
class Boosted:
    """One model of all hours ahead."""

    name: str = "LightGBM"

    def fit(self, hours: Hours) -> Fitted | None:
        """See `Method`."""
        import lightgbm

        inputs = Inputs.of(hours)
        known = np.flatnonzero(np.isfinite(hours.values))
        rows, targets = [], []
        for ahead in TRAINED_AHEAD:
            origins = known[known < len(hours.values) - ahead]
            usual, columns = _columns(inputs, hours, origins, ahead)
            target = hours.values[origins + ahead] - usual
            whole = np.isfinite(target)
            rows.append(columns[whole])
            targets.append(target[whole])
        data = lightgbm.Dataset(np.concatenate(rows), np.concatenate(targets))
        return _FittedTrees(lightgbm.train(PARAMETERS, data, TREES))


@dataclass(frozen=True, slots=True)
class _FittedTrees:
    trees: Any

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        inputs = Inputs.of(hours)
        predicted = np.empty((len(origins), HORIZON_HOURS))
        for ahead in range(1, HORIZON_HOURS + 1):
            usual, columns = _columns(inputs, hours, origins, ahead)
            predicted[:, ahead - 1] = usual + self.trees.predict(columns)
        return np.maximum(predicted, 0.0)


def _columns(inputs: Inputs, hours: Hours, origins: IntVector, ahead: int) -> tuple[Any, FloatMatrix]:
    usual, deviations = inputs.towards(origins, ahead)
    target = hours.first + origins + ahead
    calendar = np.stack(
        [usual, inputs.values[origins], target % DAY, target // DAY % 7, np.full(len(origins), float(ahead))], axis=1
    )
    return usual, np.concatenate([deviations, calendar], axis=1)
