"""The facility program of a window: which regions open, and who goes where, with a proven bound.

Import it where it is first needed: see `heliotrope.compiled`. Choices of open regions are priced exactly
(`transport`); each prices all others from below (`cuts`). First the neighbours of the best choice are tried in the
order of their bounds, then whatever choice has the least bound, until none is below the best: that is the optimum.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled
from heliotrope.place.solve.cuts import CHOICES_PER_EVALUATION, add_cut, least_bound, polish
from heliotrope.place.solve.transport import transport

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]

CUTS = 256
"""Most cuts at a time; beyond them the oldest but the first is replaced."""
NEIGHBOURS = 4
"""Neighbours in a row that may be worse before the search asks for the least bound anywhere."""
VISITS = 16 * CHOICES_PER_EVALUATION
"""Partial choices that one such question may look at."""
ASKED = 6
"""After so many choices of least bound that did not end the search, or one that was not found to the end, better
bounds are worth their time."""
POLISH = 60
"""Subgradient steps on the bound."""
ROUNDING = 1e-9
"""Least tolerance: below it are rounding errors."""


@compiled
def _bound_of(base: Row, saved: Matrix, cuts: int, opened: Flags, regions: int) -> tuple[float, int]:
    """The greatest bound of one choice, and the cut that gives it."""
    greatest, of = -np.inf, 0
    for c in range(cuts):
        bound = base[c]
        for a in range(regions):
            if opened[a]:
                bound += saved[c, a]
        if bound > greatest:
            greatest, of = bound, c
    return greatest, of


@compiled
def _best_neighbour(
    base: Row, saved: Matrix, cuts: int, capacity: Row, need: float, opened: Flags, below: float, choice: Flags
) -> bool:
    """The add, drop or swap of least bound, written into `choice`; False if none is below."""
    regions = len(capacity) - 1
    whole = np.empty(cuts)
    held = 0.0
    for c in range(cuts):
        whole[c] = base[c]
    for a in range(regions):
        if opened[a]:
            held += capacity[a]
            for c in range(cuts):
                whole[c] += saved[c, a]
    flip, flop, least = -1, -1, below
    for a in range(regions):
        for b in range(a, regions):
            if b > a and opened[a] == opened[b]:
                continue
            room, bound = held, -np.inf
            room += -capacity[a] if opened[a] else capacity[a]
            if b > a:
                room += -capacity[b] if opened[b] else capacity[b]
            if room < need - 1e-9 or capacity[a] <= 0.0 or capacity[b] <= 0.0:
                continue
            for c in range(cuts):
                value = whole[c]
                value += -saved[c, a] if opened[a] else saved[c, a]
                if b > a:
                    value += -saved[c, b] if opened[b] else saved[c, b]
                bound = max(bound, value)
                if bound >= least:
                    break
            if bound < least:
                flip, flop, least = a, b, bound
    if flip < 0:
        return False
    choice[:] = opened
    choice[flip] = not opened[flip]
    if flop > flip:
        choice[flop] = not opened[flop]
    return True


@compiled
def search(
    cost: Matrix,
    amount: Row,
    capacity: Row,
    fixed: Row,
    start: Flags,
    prices: Row,
    evaluations: int,
    tolerance: float,
    opened: Flags,
    flow: Matrix,
) -> tuple[float, float, int]:
    """Solve as far as the evaluations reach.

    Args:
        cost: per unit, shape (K, D), with nowhere as last column, as in `transport`.
        amount: length K.
        capacity: length D.
        fixed: f_d ≥ 0, length D, 0 at the end.
        start: a choice to begin with, length D, all false if there is none.
        prices: of capacity with all regions open, to begin with; length D; those found are written.
        evaluations: transport problems to solve, at least 1.
        tolerance: share of the objective by which a choice may be better and yet is not looked for.
        opened: length D, written: the best choice.
        flow: shape (D, K), written: its assignment.

    Returns:
        Objective with what is nowhere at its cost, a bound that no assignment is below, and evaluations spent.
    """
    classes, regions = cost.shape
    last = regions - 1
    base, saved, dual = np.empty(CUTS), np.empty((CUTS, regions)), np.empty((CUTS, regions))
    usable = capacity > 0.0
    spread = cost.copy()
    for a in range(last):
        share = fixed[a] / capacity[a] if usable[a] else 0.0
        for k in range(classes):
            spread[k, a] += share
    # All open, each unit paying its share of the fixed cost: the program's linear relaxation.
    bound, _ = transport(spread, amount, capacity, usable, prices, np.inf, flow)
    spent = 1
    need = amount.sum() - flow[last].sum()
    filled = np.zeros(regions)
    for a in range(last):
        if usable[a]:
            filled[a] = flow[a].sum() / capacity[a]
            dual[0, a] = prices[a] + fixed[a] / capacity[a]
        else:
            dual[0, a] = 0.0
    dual[0, last] = 0.0
    base[0] = add_cut(cost, amount, capacity, fixed, usable, dual[0], 0.0, True, saved[0])
    cuts, oldest = 1, 1

    nowhere = 0.0
    for k in range(classes):
        nowhere += flow[last, k] * cost[k, last]
    opened[:] = filled > 0.0
    opened[last] = True
    best = 0.0
    for a in range(regions):
        if opened[a]:
            best += fixed[a]
        for k in range(classes):
            if flow[a, k] > 0.0:
                best += flow[a, k] * cost[k, a]

    trial, trial_flow, trial_prices = np.zeros(regions, np.bool_), np.empty_like(flow), np.empty(regions)
    step, worse, asked, polished = 0, 0, 0, False
    known, count = np.zeros((CUTS, regions), np.bool_), 0
    while spent < evaluations:
        slack = max(tolerance, ROUNDING) * abs(best - nowhere)
        if bound >= best - slack:
            break
        seed = step < 3
        if step == 0:  # the last window's choice
            step = 1
            trial[:] = start & usable
            if not trial.any():
                continue
        elif step == 1:  # the relaxation, rounded: the fullest regions that hold everything
            step = 2
            trial[:] = False
            held = 0.0
            for a in np.argsort(-filled):
                if held >= need - 1e-9 or filled[a] == 0.0:
                    break
                trial[a] = True
                held += capacity[a]
        elif step == 2:  # the relaxation's own choice
            step = 3
            trial[:] = filled > 0.0
        else:
            found = False
            if worse < NEIGHBOURS:
                found = _best_neighbour(base, saved, cuts, capacity, need, opened, best - slack, trial)
            if not found:
                least, visits, found = least_bound(
                    base, saved, cuts, capacity[:last], need, best - slack, VISITS, known, count, trial[:last]
                )
                bound = max(bound, least)
                spent += visits // CHOICES_PER_EVALUATION
                if not found:
                    break
                worse = 0
                asked += 1
                if not polished and (visits >= VISITS or asked > ASKED):
                    polished = True
                    dual[cuts] = dual[0]
                    base[cuts] = polish(cost, amount, capacity, fixed, dual[cuts], best, POLISH, saved[cuts])
                    cuts += 1
                    spent += POLISH // 2
                    continue
        trial[last] = True
        lower, nearest = _bound_of(base, saved, cuts, trial, regions)
        if seed and lower >= best - slack:
            continue
        charged = 0.0
        for a in range(regions):
            trial_prices[a] = dual[nearest, a]
            if trial[a]:
                charged += fixed[a]
        value, _ = transport(cost, amount, capacity, trial, trial_prices, best - slack - charged, trial_flow)
        spent += 1
        value += charged
        if value < best - slack:
            best, worse = value, 0
            opened[:] = trial
            flow[:] = trial_flow
        else:
            worse += 1
        if count == len(known):
            more = np.zeros((2 * count, regions), np.bool_)
            more[:count] = known
            known = more
        known[count] = trial
        count += 1
        for second in (0.0, 0.5):
            at = cuts
            if cuts < CUTS:
                cuts += 1
            else:
                at, oldest = oldest, oldest + 1 if oldest + 1 < CUTS else 1
            dual[at] = trial_prices
            base[at] = add_cut(cost, amount, capacity, fixed, trial, dual[at], second, second > 0.0, saved[at])
    if bound >= best - 2.0 * ROUNDING * abs(best - nowhere):
        bound = best
    return best, bound, spent
