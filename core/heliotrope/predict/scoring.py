"""How good models are on samples that they did not see."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.bundle import Bundle, Scores
from heliotrope.predict.features import FloatColumn
from heliotrope.predict.models import LearnedModels, Level
from heliotrope.predict.targets import ANALYTIC_COLUMN, Target
from heliotrope.predict.trainingset import Split, TrainingSet


def held_out(samples: TrainingSet, target: Target, split: Split = Split.TEST) -> TrainingSet:
    """The samples of a split that have this target's label."""
    return samples.where((samples.splits == split) & np.isfinite(samples.labels_of(target)))


def analytic_estimates(samples: TrainingSet, target: Target) -> FloatColumn:
    """The analytic model's own estimates; NaN where there is none."""
    column = samples.rows[:, ANALYTIC_COLUMN[target]]
    return np.where(np.isfinite(column) & (column > 0.0), column, np.nan)


def relative_errors(predicted: FloatColumn, observed: FloatColumn) -> FloatColumn:
    """|predicted - observed| / observed, element by element."""
    errors: FloatColumn = np.abs(predicted - observed) / observed
    return errors


def scores_of(bundle: Bundle, target: Target, samples: TrainingSet) -> Scores:
    """Scores of a bundle's model of one target; its errors are NaN where it has none.

    Errors are those of the typical value, which is nearest in relative terms to whatever single requests take.
    `analytic_mape` is of the samples with an analytic estimate only.
    """
    observed = samples.labels_of(target)
    analytic = relative_errors(analytic_estimates(samples, target), observed)
    known: NDArray[np.bool_] = ~np.isnan(analytic)
    analytic_mape = float(analytic[known].mean()) if known.any() else np.nan
    if target not in bundle.models or not len(samples):
        return Scores(len(samples), np.nan, analytic_mape, np.nan)
    predictions = LearnedModels(bundle).predict_at(Level.CURRENT, samples.table, samples.rows)
    errors = relative_errors(predictions.typical_of(target), observed)
    coverage = float(np.mean(observed <= predictions.q90_of(target)))
    return Scores(len(samples), float(errors.mean()), analytic_mape, coverage)
