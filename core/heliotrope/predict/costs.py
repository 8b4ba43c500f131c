"""What steps cost on each kind of hardware, refitted to what requests were measured to take.

Profiles are measured elsewhere, and some endpoints have none. But what a request takes is nearly linear in what its
steps have to do (`heliotrope.predict.base`), whatever the hardware; so the coefficients of each kind, its clock
included, come from the requests themselves, by non-negative least squares on relative errors. Trees then only have to
say what is not linear, which they need far fewer of for.
"""

from dataclasses import dataclass, field

import numpy as np

from heliotrope.nonnegative import nonnegative
from heliotrope.predict.features import FloatColumn, Matrix, column_of
from heliotrope.predict.targets import REQUESTS, Target

TERMS = 7
"""Coefficients of a kind; a target that has fewer leaves the last ones 0."""
KIND_FEATURES = ("accelerator", "model", "role", "tensor_parallel", "sm_clock_mhz")
CLOCK_STEP_MHZ = 50.0
"""Clocks that round to the same multiple are one kind."""
MIN_SAMPLES = 60
"""Of a kind; with fewer it has no coefficients of its own."""
MAX_KINDS = 256
"""Those with the most samples are kept."""
ROUNDS = {Target.TTFT: 3}
"""Fits, each without the requests that the one before was furthest from: what came in between, nobody could know. Other
targets have one, as all that comes in between is part of what they take on average."""
OUTLIER = 3.0
"""Times the median relative error."""
SMALLEST_OUTLIER = 0.02
UNKNOWN = -1.0
"""Stands for NaN in a kind, so that unknown is equal to unknown."""

KIND_COLUMNS = np.array([column_of(name) for name in KIND_FEATURES], dtype=np.intp)
"""Of a request's row, those that tell hardware apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Coefficients of one target by kind of hardware."""

    kinds: Matrix = field(default_factory=lambda: np.empty((0, len(KIND_FEATURES))))
    """Shape (kinds, `KIND_FEATURES`), as `kinds_of` gives them; none twice."""
    coefficients: Matrix = field(default_factory=lambda: np.empty((0, TERMS)))
    """Shape (kinds, `TERMS`), none negative."""


NO_COSTS = Costs()


def kinds_of(rows: Matrix) -> Matrix:
    """What tells hardware apart in each row of a request, shape (n, `KIND_FEATURES`)."""
    from heliotrope.predict.classes import write_kinds

    kinds = np.empty((len(rows), len(KIND_COLUMNS)))
    write_kinds(rows, KIND_COLUMNS, CLOCK_STEP_MHZ, UNKNOWN, kinds)
    return kinds


def fit_costs(target: Target, rows: Matrix, labels: FloatColumn) -> Costs:
    """Coefficients of each kind that has enough samples; none for the energy of steps.

    Args:
        target: what the labels are.
        rows: of requests, shape (n, F).
        labels: of each; NaN: not observed.
    """
    if target not in REQUESTS.targets or not len(rows):
        return NO_COSTS
    from heliotrope.predict.base import terms_of

    terms, offsets = terms_of(target, rows)
    known = np.isfinite(terms).all(axis=1) & np.isfinite(offsets) & np.isfinite(labels)
    kinds, index, counts = np.unique(kinds_of(rows[known]), axis=0, return_inverse=True, return_counts=True)
    terms, sums, labels = terms[known], labels[known] + offsets[known], labels[known]
    fitted = []
    for kind in np.argsort(-counts, kind="stable")[:MAX_KINDS]:
        if counts[kind] < MIN_SAMPLES:
            break
        there = index.ravel() == kind
        coefficients = _robust_fit(terms[there], sums[there], labels[there], ROUNDS.get(target, 1))
        if coefficients.any():
            fitted.append((kinds[kind], coefficients))
    if not fitted:
        return NO_COSTS
    return Costs(np.array([kind for kind, _ in fitted]), np.array([coefficients for _, coefficients in fitted]))


def _robust_fit(terms: Matrix, sums: FloatColumn, labels: FloatColumn, rounds: int) -> FloatColumn:
    used = np.ones(len(labels), dtype=np.bool_)
    coefficients = np.zeros(terms.shape[1])
    for _ in range(rounds):
        coefficients = non_negative_fit(terms[used] / labels[used, np.newaxis], sums[used] / labels[used])
        errors = np.abs((terms @ coefficients - sums) / labels)
        used = errors <= max(OUTLIER * float(np.median(errors)), SMALLEST_OUTLIER)
    return coefficients


def non_negative_fit(matrix: Matrix, observed: FloatColumn) -> FloatColumn:
    """The x ≥ 0 with the smallest |matrix · x - observed|; columns may differ by orders of magnitude."""
    scale = np.sqrt((matrix**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    fitted: FloatColumn = nonnegative(matrix / scale, observed) / scale
    return fitted
