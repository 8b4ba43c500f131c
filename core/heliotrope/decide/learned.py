"""Learned estimates in place of analytic ones, wherever a promoted model answers.

Models answer for a request at an endpoint as it is now. The energy that carbon and cost are computed from is shared at
another batch: the one that the endpoint reaches when the pool's load is consolidated on it, for the reason that
`heliotrope.decide.estimate` gives. So the model of energy is asked twice: about the endpoint as it is, and as it will
be at that batch.

They have learned from requests that one endpoint prefilled and decoded, so they are asked about such plans only; pairs
of endpoints keep the analytic estimate.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn
from heliotrope.decide.columns import Columns
from heliotrope.predict.features import Matrix
from heliotrope.predict.targets import Target

if TYPE_CHECKING:  # its compiled walk takes a second to import, which whoever has no models need not wait for
    from heliotrope.predict.models import LearnedModels


def apply_models(
    models: "LearnedModels | None", features: Matrix, columns: Columns, candidates: Candidates
) -> Mapping[Target, BoolColumn]:
    """Overwrite the estimates of `columns` with those of the models; None: everything stays analytic.

    Args:
        models: see above.
        features: rows of the candidates, without those that are pairs.
        columns: of all candidates.
        candidates: all of them, pairs last.

    Returns:
        For each learned target, the candidates that it was answered for; the others keep their analytic estimate.
    """
    if models is None or not models.targets or not len(features):
        return {}
    alone = len(features)
    running, waiting = candidates.running[:alone], candidates.waiting[:alone]
    columns = columns if alone == len(candidates) else columns.first(alone)
    answers = models.predict(features)
    learned: dict[Target, BoolColumn] = {}
    for target in models.targets:
        if target not in answers.targets:
            continue
        mean, error = answers.mean_of(target), answers.relative_error_of(target)
        known: BoolColumn = np.isfinite(mean)
        learned[target] = known
        if target is Target.TTFT:
            _latency(columns.ttft, columns.ttft_error, mean, error, known)
        elif target is Target.TPOT:
            _latency(columns.tpot, columns.tpot_error, mean, error, known)
        elif target is Target.REQUEST_ENERGY:
            met = np.maximum(running + waiting + 1.0, 1.0)
            np.copyto(columns.batch, met, where=np.isnan(columns.batch))
            shared = models.predict_means(_consolidated(features, columns), target)
            _energy(columns, mean, shared, error, known)
    if Target.TTFT in learned:
        # Without a step model nobody knows the step that those who wait will share with this request: it is theirs.
        behind = np.where(waiting > 0.0, candidates.oldest_waiting_seconds[:alone] + columns.ttft, 0.0)
        np.copyto(columns.queue_ttft, behind, where=learned[Target.TTFT] & np.isnan(columns.queue_ttft))
    if alone == len(candidates):
        return learned
    pairs = np.zeros(len(candidates) - alone, dtype=np.bool_)
    return {target: np.concatenate([known, pairs]) for target, known in learned.items()}


def _latency(
    seconds: FloatColumn, relative_error: FloatColumn, mean: FloatColumn, error: FloatColumn, known: BoolColumn
) -> None:
    np.copyto(seconds, mean, where=known)
    np.copyto(relative_error, error, where=known)


def _energy(
    columns: Columns, attributed: FloatColumn, shared: FloatColumn, error: FloatColumn, known: BoolColumn
) -> None:
    # What the fleet draws more has no label; it is off by as much as the share that has one.
    correction = np.where(columns.attributed > 0.0, attributed / columns.attributed, np.nan)
    incremental = np.where(np.isnan(columns.incremental), attributed, columns.incremental * correction)
    np.copyto(columns.incremental, incremental, where=known)
    np.copyto(columns.attributed, attributed, where=known)
    np.copyto(columns.energy, shared, where=known)
    np.copyto(columns.energy_error, error, where=known)


def _consolidated(features: Matrix, columns: Columns) -> Matrix:
    """The same rows with each endpoint at the batch at which energy is shared, and nobody waiting."""
    from heliotrope.decide.consolidated import write_consolidated

    rows = np.empty_like(features)
    write_consolidated(features, columns.batch, columns.energy, rows)
    return rows
