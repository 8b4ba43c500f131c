"""Requests that are alike as one class: fewer rows where a window is large."""

from dataclasses import dataclass

import numpy as np

from heliotrope.place.solve.problem import Problem
from heliotrope.place.window import FloatColumn, FloatMatrix, IntColumn

BUCKETS = 3
"""Per step of the length of requests: their costs as shares of the dearest fall into so many buckets by quantile."""


@dataclass(frozen=True, slots=True)
class Classes:
    """Requests with the same feasible regions and alike costs."""

    of: IntColumn
    """Class of each request, length n."""
    amount: FloatColumn
    """Weight of each class, length K."""
    cost: FloatMatrix
    """Per unit of weight, mean over the class, shape (K, d); inf where it may not be."""


def single(problem: Problem) -> Classes:
    """Each request on its own."""
    return Classes(np.arange(len(problem.weight)), problem.weight, problem.cost / problem.weight[:, None])


def aggregate(problem: Problem, buckets: int = BUCKETS) -> Classes:
    """Classes by bitmask of feasible regions and bucket of size, where size is the least cost.

    The bitmask keeps feasibility exact; costs within a class are replaced by their mean, so that the optimum of the
    classes is near the requests' own but neither bound.
    """
    feasible = np.isfinite(problem.cost)
    size = np.min(problem.cost, axis=1, initial=np.inf)
    edges = np.quantile(size[np.isfinite(size)], np.linspace(0.0, 1.0, buckets + 1)[1:-1]) if feasible.any() else []
    bucket = np.searchsorted(edges, size)
    keys = np.packbits(np.column_stack([feasible, bucket[:, None] >> np.arange(8) & 1]), axis=1)
    _, inverse = np.unique(keys, axis=0, return_inverse=True)
    of = inverse.reshape(-1).astype(np.int64)
    count = int(of.max(initial=-1)) + 1
    amount = np.bincount(of, weights=problem.weight, minlength=count).astype(np.float64)
    total = np.zeros((count, problem.cost.shape[1]))
    np.add.at(total, of, problem.cost)
    return Classes(of, amount, total / amount[:, None])
