"""A plan for an hour: how much of the expected demand each region gets (Green-LLM, in paper carbon-slo-tension §V-A).

    min Σ c_{k,d} · x_{k,d},   Σ_d x_{k,d} = demand of k,   Σ_k x_{k,d} ≤ token budget of d

in tokens per second, for classes k of requests that may go to the same regions. The budget is what a region's engines
compute at their batch limit, and c is the cost at that limit. The latency estimate knows no load, as in the paper: a
class does not go where the mean end-to-end time of a request on its own would be above `LONGEST_SECONDS`.
"""

import numpy as np

from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.solve.highs import facility_by_highs
from heliotrope.place.window import BoolMatrix, FloatColumn, FloatMatrix

LONGEST_SECONDS = 5.0
_LEAST_RATE = 1e-6


def plan(
    demand: FloatMatrix, masks: BoolMatrix, regions: Regions, policy: PlacementPolicy, per_joule: FloatColumn
) -> FloatMatrix:
    """The shares of each class that regions get, shape (K, d); rows add up to 1, or are 0 where no region takes any.

    What exceeds all budgets is spread by the budgets.

    Args:
        demand: requests, prompt tokens and output tokens per second of each class that this scheduler expects, shape
            (3, K).
        masks: where each class may go, shape (K, d).
        regions: those without a known step model, or without engines, get nothing.
        policy: for the number of peers that budgets are shared with.
        per_joule: cost of a joule, length d.

    Raises:
        SolverError: if HiGHS fails.
        ValueError: if there is no demand.
    """
    from heliotrope.place.hourly_kernel import region_rates

    if not demand[0].sum() > 0.0:
        raise ValueError("a plan needs demand")
    total_requests, total_prompt, total_output = demand.sum(axis=1)
    some = demand[0] > 0.0
    prompt = np.divide(demand[1], demand[0], out=np.full(len(some), total_prompt / total_requests), where=some)
    output = np.divide(demand[2], demand[0], out=np.full(len(some), total_output / total_requests), where=some)
    budget, joules, seconds = region_rates(
        regions.engine_rows,
        regions.engines,
        np.where(
            np.isnan(regions.batch_capacity),
            regions.engine_rows[:, Coefficient.MAX_NUM_SEQS],
            regions.batch_capacity,
        ),
        prompt,
        output,
        total_prompt / total_requests,
        total_output / total_requests,
    )
    budget = budget / (1.0 + policy.peers)
    total = seconds + regions.rtt_seconds + regions.dispatch_seconds
    cost = joules * per_joule / (prompt + output)[:, None]
    usable = masks & (budget > 0.0) & (total <= LONGEST_SECONDS) & np.isfinite(cost)
    # A class that nobody was seen of still has shares, for the first of them.
    rates = np.maximum(demand[1] + demand[2], _LEAST_RATE)
    # One more region takes what exceeds all budgets, at a price that no other has.
    dearest = 10.0 * max(float(np.where(usable, np.abs(cost), 0.0).max(initial=0.0)), 1.0)
    columns = np.column_stack([np.where(usable, cost, np.inf), np.full(len(rates), dearest)])
    found = facility_by_highs(columns, rates, np.append(budget, np.inf), np.zeros(len(budget) + 1), relaxed=True)
    flow, excess = found.flow[:-1].T, found.flow[-1]
    spread = np.where(usable, budget, 0.0)
    whole = spread.sum(axis=1, keepdims=True)
    flow = flow + excess[:, None] * np.divide(spread, whole, out=np.zeros_like(spread), where=whole > 0.0)
    sums = flow.sum(axis=1, keepdims=True)
    shares: FloatMatrix = np.divide(flow, sums, out=np.zeros_like(flow), where=sums > 0.0)
    return shares
