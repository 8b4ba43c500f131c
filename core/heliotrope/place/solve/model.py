"""A problem as solvers take it."""

from dataclasses import dataclass

import numpy as np

from heliotrope.place.solve.classes import Classes
from heliotrope.place.solve.problem import Problem
from heliotrope.place.window import FloatColumn, FloatMatrix

LEAST_SHARE = 1e-9
"""Of the greatest fixed cost: what is below it is rounding beside it."""
LEAST_COST = 1e-200
"""Below it quotients overflow."""


@dataclass(frozen=True, slots=True)
class Model:
    """Numbers near 1, and nowhere as last region, so that there is always a solution."""

    cost: FloatMatrix
    """Per unit of amount, shape (K, d + 1)."""
    amount: FloatColumn
    capacity: FloatColumn
    fixed: FloatColumn
    weight_unit: float
    """Weight of one unit of amount: a power of two, so that whole numbers stay exact."""
    cost_unit: float
    """Cost of one unit of cost times one of amount."""


def model_of(problem: Problem, classes: Classes) -> Model:
    """Scale; nowhere costs more than any detour through all regions and all fixed costs together."""
    d = len(problem.capacity)
    weight_unit = 1.0 if problem.unit else float(2.0 ** np.round(np.log2(problem.weight.mean())))
    finite = np.isfinite(classes.cost)
    cost_unit = float(np.max(np.abs(classes.cost), where=finite, initial=0.0)) * weight_unit
    cost_unit = max(cost_unit, float(problem.fixed.max(initial=0.0)) * LEAST_SHARE)
    cost_unit = cost_unit if cost_unit > LEAST_COST else 1.0
    amount = classes.amount / weight_unit
    capacity, fixed = problem.capacity / weight_unit, problem.fixed / cost_unit
    share = np.divide(fixed, capacity, out=np.zeros(d), where=capacity > 0.0)
    nowhere = 1.0 + (d + 2) * (2.0 + float(share.max(initial=0.0))) + fixed.sum() / min(1.0, float(amount.min()))
    return Model(
        cost=np.column_stack([classes.cost * (weight_unit / cost_unit), np.full(len(amount), nowhere)]),
        amount=amount,
        capacity=np.append(capacity, np.inf),
        fixed=np.append(fixed, 0.0),
        weight_unit=weight_unit,
        cost_unit=cost_unit,
    )
