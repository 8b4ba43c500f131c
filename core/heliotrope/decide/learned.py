"""Learned estimates in place of analytic ones, wherever a promoted model answers.

Models answer for a request at an endpoint as it is now. The energy that carbon and cost are computed from is shared at
another batch: the one that the endpoint reaches when the pool's load is consolidated on it, for the reason that
`heliotrope.decide.estimate` gives. So the model of energy is asked twice: about the endpoint as it is, and as it will
be at that batch.

They have learned from requests that one endpoint prefilled and decoded. Where a pair of endpoints is among the plans
they are not asked (`heliotrope.decide.basis`).
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.columns import Columns
from heliotrope.predict.features import Matrix
from heliotrope.predict.targets import REQUESTS, Target

if TYPE_CHECKING:  # its compiled walk takes a second to import, which whoever has no models need not wait for
    from heliotrope.predict.models import LearnedModels

_ENERGY = REQUESTS.targets.index(Target.REQUEST_ENERGY)


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
    from heliotrope.decide.consolidated import write_consolidated, write_learned

    targets, alone = models.targets, len(features)
    asked = [target in targets for target in REQUESTS.targets]
    rows = features
    if asked[_ENERGY]:
        rows = np.empty((2 * alone, features.shape[1]))
        write_consolidated(features, candidates.running, candidates.waiting, columns.table, rows)
    answers = models.predict(rows, {Target.TTFT: alone, Target.TPOT: alone})
    known = np.zeros((len(asked), len(candidates)), dtype=np.bool_)
    write_learned(
        np.array(asked),
        answers.mean,
        answers.relative_error,
        alone,
        candidates.waiting,
        candidates.oldest_waiting_seconds,
        columns.table,
        known,
    )
    return {target: known[line] for line, target in enumerate(REQUESTS.targets) if asked[line]}
