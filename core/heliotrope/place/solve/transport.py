"""The transport problem of a window for given open regions, exactly: successive shortest paths on the regions' graph.

Import it where it is first needed: see `heliotrope.compiled`. Requests of one class leave a region over the cheapest of
them, so that a path is searched among d + 1 nodes however many classes there are. The dual prices that come out start
the next problem and bound every other one.

The last region of each array is nowhere: it takes what no other has room for, at a cost above every detour. So the most
requests that have a place get one.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

AMOUNT = 1e-9
"""Amounts below it are rounding."""


@compiled
def _exits(cost: Matrix, flow: Matrix, a: int, detour: Matrix, leaving: NDArray[np.intp]) -> None:
    """What the cheapest class in region a pays to leave for each other region, and which class that is."""
    classes, regions = cost.shape
    for b in range(regions):
        detour[a, b] = np.inf
    for k in range(classes):
        if flow[a, k] > AMOUNT:
            here = cost[k, a]
            for b in range(regions):
                more = cost[k, b] - here
                if more < detour[a, b]:
                    detour[a, b] = more
                    leaving[a, b] = k


@compiled
def transport(
    cost: Matrix, amount: Row, capacity: Row, opened: Flags, prices: Row, stop: float, flow: Matrix
) -> tuple[float, int]:
    """Assign all amounts at least cost.

    Args:
        cost: per unit, shape (K, D), inf where a class may not be; its last column is finite.
        amount: of each class, length K.
        capacity: length D, ≥ 0; the last is inf.
        opened: length D; the last is true. What is not opened takes nothing.
        prices: of capacity, length D, ≥ 0: where to start from; any will do, good ones save work. Becomes dual prices.
        stop: end as soon as the cost cannot be below it. The flow is then worth nothing, the prices still bound.
        flow: shape (D, K), written.

    Returns:
        The cost, or a bound of it that is at least `stop`; and how many paths it took.
    """
    classes, regions = cost.shape
    sink = regions
    taken = np.zeros(regions)  # units on the arc from a region to the sink
    excess = np.zeros(regions + 1)
    distance, before = np.empty(regions + 1), np.empty(regions + 1, np.intp)
    done = np.empty(regions + 1, np.bool_)
    price = np.zeros(regions + 1)
    price[:regions] = prices
    price[regions - 1] = 0.0
    detour, leaving = np.empty((regions, regions)), np.zeros((regions, regions), np.intp)

    # Everybody to the cheapest region at these prices: optimal for the prices, if not within the capacities.
    flow[:] = 0.0
    total, bound = 0.0, 0.0
    for k in range(classes):
        at, least = regions - 1, np.inf
        for a in range(regions):
            if opened[a] and cost[k, a] + price[a] < least:
                at, least = a, cost[k, a] + price[a]
        flow[at, k] = amount[k]
        excess[at] += amount[k]
        total += amount[k]
        bound += least * amount[k]
    for a in range(regions):
        if not opened[a]:
            continue
        if price[a] > 0.0:
            taken[a] = capacity[a]
            bound -= price[a] * capacity[a]
        else:
            taken[a] = min(excess[a], capacity[a])
        excess[a] -= taken[a]
        excess[sink] += taken[a]
        _exits(cost, flow, a, detour, leaving)
    excess[sink] -= total

    paths = 0
    while True:
        over = 0.0
        for v in range(regions + 1):
            distance[v], before[v], done[v] = np.inf, -1, False
            if excess[v] > AMOUNT:
                distance[v] = 0.0
                over += excess[v]
        if over == 0.0 or bound >= stop:
            break
        target = -1
        while True:
            u, nearest = -1, np.inf
            for v in range(regions + 1):
                if not done[v] and distance[v] < nearest:
                    u, nearest = v, distance[v]
            if u < 0:
                break
            if excess[u] < -AMOUNT:
                target = u
                break
            done[u] = True
            for v in range(regions):
                if done[v] or not opened[v]:
                    continue
                if u == sink:
                    if taken[v] <= AMOUNT:
                        continue
                    reduced = price[v] - price[sink]
                else:
                    reduced = detour[u, v] + price[v] - price[u]
                reached = nearest + max(reduced, 0.0)
                if reached < distance[v]:
                    distance[v], before[v] = reached, u
            if u != sink and not done[sink] and taken[u] < capacity[u] - AMOUNT:
                reached = nearest + max(price[sink] - price[u], 0.0)
                if reached < distance[sink]:
                    distance[sink], before[sink] = reached, u
        if target < 0:  # rounding alone is left over
            break
        paths += 1
        bound += over * distance[target]
        for v in range(regions + 1):
            price[v] -= min(distance[v], distance[target])

        moved, v = -excess[target], target
        while before[v] >= 0:
            u = before[v]
            if v == sink:
                moved = min(moved, capacity[u] - taken[u])
            elif u == sink:
                moved = min(moved, taken[v])
            else:
                moved = min(moved, flow[u, leaving[u, v]])
            v = u
        moved = min(moved, excess[v])
        excess[v] -= moved
        excess[target] += moved
        v = target
        while before[v] >= 0:
            u = before[v]
            if v == sink:
                taken[u] += moved
            elif u == sink:
                taken[v] -= moved
            else:
                k = leaving[u, v]
                flow[u, k] -= moved
                flow[v, k] += moved
            v = u
        v = target
        while v >= 0:
            if v != sink:
                _exits(cost, flow, v, detour, leaving)
            v = before[v]

    for a in range(regions):
        prices[a] = max(0.0, price[a] - price[sink]) if opened[a] else 0.0
    if over > 0.0 and bound >= stop:
        return bound, paths
    spent = 0.0
    for a in range(regions):
        for k in range(classes):
            if flow[a, k] > AMOUNT:
                spent += flow[a, k] * cost[k, a]
    return spent, paths
