"""The same programs by HiGHS: what solves them where loops are not compiled, and what tests compare with.

Import it where it is first needed. One thread and no output; HiGHS' own clock is the only limit that is not counted.
"""

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import SolverError
from heliotrope.linear import QuietHighs
from heliotrope.place.window import BoolColumn, FloatColumn, FloatMatrix


@dataclass(frozen=True, slots=True)
class HighsResult:
    """What HiGHS found; `flow` and `opened` are empty where it found nothing within its limits."""

    objective: float
    bound: float
    opened: BoolColumn
    """Length d."""
    flow: FloatMatrix
    """Amount of each class in each region, shape (d, K)."""
    nodes: int


def facility_by_highs(
    cost: FloatMatrix,
    amount: FloatColumn,
    capacity: FloatColumn,
    fixed: FloatColumn,
    *,
    opened: BoolColumn | None = None,
    whole: bool = False,
    relaxed: bool = False,
    seconds: float | None = None,
    nodes: int | None = None,
    tolerance: float = 0.0,
) -> HighsResult:
    """Solve min Σ cost · x + Σ f y, Σ_d x = amount, Σ_k x ≤ H y, y binary, x ≥ 0.

    Args:
        cost: per unit of amount, shape (K, d); inf where a class may not be.
        amount: length K.
        capacity: length d; inf is no limit, and such a region must have no fixed cost.
        fixed: length d.
        opened: the choice of regions, if it is given.
        whole: whether classes may not be split: x is all or nothing.
        relaxed: whether y may be any share.
        seconds: HiGHS' time limit.
        nodes: most branch-and-bound nodes.
        tolerance: relative gap at which to stop.

    Raises:
        SolverError: if HiGHS fails, or says that there is no solution.
    """
    classes, regions = cost.shape
    k, a = np.nonzero(np.isfinite(cost))
    limited = np.isfinite(capacity)
    count = len(k)
    # Column by column: each x is in its class' row and, where the region is limited, in the region's; each y in that.
    in_region = limited[a]
    entries = 1 + in_region.astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(entries), entries.sum() + np.cumsum(limited)])
    index = np.zeros(starts[-1], dtype=np.int32)
    value = np.zeros(starts[-1])
    index[starts[:count]], value[starts[:count]] = k, 1.0
    second = starts[:count][in_region] + 1
    index[second], value[second] = classes + a[in_region], amount[k[in_region]]
    gates = starts[count : count + regions][limited]
    index[gates], value[gates] = classes + np.flatnonzero(limited), -capacity[limited]

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count + regions, classes + regions
    lp.col_cost_ = np.concatenate([cost[k, a] * amount[k], fixed])
    lower, upper = np.zeros(regions), np.where(capacity > 0.0, 1.0, 0.0)
    if opened is not None:
        lower = upper = opened.astype(np.float64)
    lp.col_lower_ = np.concatenate([np.zeros(count), lower])
    lp.col_upper_ = np.concatenate([np.where(upper[a] > 0.0, 1.0, 0.0), upper])
    lp.row_lower_ = np.concatenate([np.ones(classes), np.full(regions, -np.inf)])
    lp.row_upper_ = np.concatenate([np.ones(classes), np.zeros(regions)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts.astype(np.int32), index, value
    integer, free = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    if not relaxed:
        lp.integrality_ = [integer if whole else free] * count + [integer] * regions
    return _run(lp, a, k, amount, (regions, classes), seconds, nodes, tolerance)


def _run(
    lp: Any,
    a: NDArray[np.intp],
    k: NDArray[np.intp],
    amount: FloatColumn,
    shape: tuple[int, int],
    seconds: float | None,
    nodes: int | None,
    tolerance: float,
) -> HighsResult:
    solver = QuietHighs()  # type: ignore[no-untyped-call]
    for option, setting in (("threads", 1), ("mip_rel_gap", tolerance), ("mip_abs_gap", 0.0)):
        solver.setOptionValue(option, setting)
    if seconds is not None:
        solver.setOptionValue("time_limit", max(seconds, 0.0))
    if nodes is not None:
        solver.setOptionValue("mip_max_nodes", nodes)
    if solver.passModel(lp) == highspy.HighsStatus.kError or solver.run() == highspy.HighsStatus.kError:
        raise SolverError("HiGHS cannot read or solve the window's program")
    status, info = solver.getModelStatus(), solver.getInfo()
    limits = (
        highspy.HighsModelStatus.kTimeLimit,
        highspy.HighsModelStatus.kSolutionLimit,
        highspy.HighsModelStatus.kIterationLimit,
    )
    optimal = status == highspy.HighsModelStatus.kOptimal
    if not optimal and status not in limits:
        raise SolverError(f"HiGHS ends with {solver.modelStatusToString(status)}")
    integer = len(lp.integrality_) > 0
    bound = info.mip_dual_bound if integer else (info.objective_function_value if optimal else -np.inf)
    explored = max(int(info.mip_node_count), 1)
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        nothing = np.zeros((0, shape[1]))
        return HighsResult(np.inf, bound, np.zeros(0, dtype=np.bool_), nothing, explored)
    values = np.asarray(solver.getSolution().col_value)
    flow = np.zeros(shape)
    flow[a, k] = values[: len(k)] * amount[k]
    return HighsResult(info.objective_function_value, bound, values[len(k) :] > 0.5, flow, explored)
