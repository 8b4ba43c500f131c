"""What is solved for a window, cleaned of what is unknown, and what comes out."""

from dataclasses import dataclass

import numpy as np

from heliotrope.place.window import BoolColumn, BoolMatrix, FloatColumn, FloatMatrix, IntColumn

NOT_PLACED = -1
"""In `Solution.regions`: no feasible region has room."""

ROUNDING = 1e-9
"""Relative: what sums of costs and weights may differ by."""


@dataclass(frozen=True, slots=True)
class Problem:
    """min Σ c_{r,d} x_{r,d} + Σ f_d y_d, each request once, Σ_r w_r x_{r,d} ≤ H_d y_d.

    Equations of paper carbon-slo-tension, §IV-B and §IV-C.
    """

    cost: FloatMatrix
    """c, shape (n, d); inf where the request may not go."""
    capacity: FloatColumn
    """H, length d, ≥ 0."""
    fixed: FloatColumn
    """f, length d, ≥ 0; all zero is the plain ILP."""
    weight: FloatColumn
    """w, length n, > 0."""

    @property
    def unit(self) -> bool:
        """Whether every request weighs 1: the assignment of given open regions is a transport problem then."""
        return bool((self.weight == 1.0).all())


@dataclass(frozen=True, slots=True)
class Solution:
    """Where each request goes."""

    regions: IntColumn
    """Length n; `NOT_PLACED` where no room is left."""
    opened: BoolColumn
    """Length d: regions that get a request."""
    objective: float
    """Of what is placed, fixed costs included."""
    bound: float
    """No assignment that places as much costs less; NaN if nothing is known."""
    evaluations: int
    """Transport problems solved, or nodes."""
    prices: FloatColumn
    """Dual prices of capacity with all regions open, length d: where the next window's search starts."""

    @property
    def gap(self) -> float:
        """Relative distance of the objective to the bound; NaN if nothing is known."""
        if self.objective <= self.bound:
            return 0.0
        return (self.objective - self.bound) / abs(self.objective) if self.objective else float("nan")

    def proven(self, tolerance: float) -> bool:
        """Whether no assignment is better by more than this share of the objective."""
        return self.gap <= tolerance + ROUNDING


def problem_of(
    cost: FloatMatrix,
    feasible: BoolMatrix,
    capacity: FloatColumn,
    fixed: FloatColumn | None = None,
    weight: FloatColumn | None = None,
) -> Problem:
    """The problem of a window.

    What is unknown: a pair without a cost is not feasible; a region without a capacity, or whose fixed cost is
    infinite, gets nothing; fixed costs of which one is unknown drop out for all; a request of unknown weight weighs as
    much as the heaviest.

    Args:
        cost: shape (n, d).
        feasible: shape (n, d).
        capacity: length d; for unit weights the whole part counts.
        fixed: length d; None: no fixed cost. Negative ones count as none.
        weight: length n; None: 1 each.

    Raises:
        ValueError: if shapes do not agree.
    """
    n, d = cost.shape
    if feasible.shape != (n, d) or capacity.shape != (d,):
        raise ValueError(f"for costs of shape {(n, d)}: feasible {feasible.shape}, capacity {capacity.shape}")
    if (fixed is not None and fixed.shape != (d,)) or (weight is not None and weight.shape != (n,)):
        raise ValueError(f"for costs of shape {(n, d)}: fixed costs or weights of another length")
    fixed = np.zeros(d) if fixed is None or np.isnan(fixed).any() else np.maximum(fixed, 0.0)
    room = np.where(np.isfinite(fixed), np.nan_to_num(np.maximum(capacity, 0.0), nan=0.0, posinf=np.inf), 0.0)
    fixed = np.where(np.isfinite(fixed), fixed, 0.0)
    if weight is None:
        weight, room = np.ones(n), np.floor(room)
    else:
        known = weight[np.isfinite(weight) & (weight > 0.0)]
        weight = np.where(np.isfinite(weight) & (weight > 0.0), weight, known.max() if len(known) else 1.0)
    usable = feasible & np.isfinite(cost) & (room > 0.0)
    return Problem(
        cost=np.where(usable, cost, np.inf),
        capacity=np.minimum(room, weight @ usable),
        fixed=fixed,
        weight=weight,
    )
