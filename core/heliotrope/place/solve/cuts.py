"""Lower bounds that hold for every choice of open regions, and the choice of least bound.

Import it where it is first needed: see `heliotrope.compiled`. For any prices of the requests u the facility program
costs at least

    Σ_r u_r + Σ_{d open} v_d,    v_d = f_d − max Σ_r (u_r − c_{r,d}) x_r   over 0 ≤ x_r ≤ 1, Σ_r x_r ≤ H_d

(Lagrangian relaxation of "each request once"; with the u of one choice's transport problem it is that choice's Benders
cut, which is exact there). Over all cuts the choice of least bound is found by depth-first search.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
FlagMatrix = NDArray[np.bool_]

CHOICES_PER_EVALUATION = 4096
"""So many visited choices take about the time of one transport problem, and count as one evaluation."""


@compiled
def request_prices(cost: Matrix, amount: Row, opened: Flags, prices: Row, second: float, worth: Row) -> float:
    """Write u of each class at the capacity prices of the open regions, length K; returns Σ u.

    `second`: how far u is from what the cheapest open region asks to what the second one does, in [0, 1].
    """
    classes, regions = cost.shape
    base = 0.0
    for k in range(classes):
        least, next_least = np.inf, np.inf
        for a in range(regions):
            if opened[a]:
                asked = cost[k, a] + prices[a]
                if asked < least:
                    least, next_least = asked, least
                elif asked < next_least:
                    next_least = asked
        if second > 0.0 and next_least < np.inf:
            least += second * (next_least - least)
        worth[k] = least
        base += least * amount[k]
    return base


@compiled
def region_saving(
    cost: Matrix, amount: Row, room: float, worth: Row, a: int, gains: Row, of: NDArray[np.intp], served: Row
) -> tuple[float, float]:
    """The most that region a saves against u within its room, and the price at which exactly that room is asked for.

    `served` is the share of each class that it takes for it, length K; `gains` and `of` are working space.
    """
    count = 0
    for k in range(len(worth)):
        served[k] = 0.0
        if worth[k] > cost[k, a]:
            gains[count], of[count] = worth[k] - cost[k, a], k
            count += 1
    gained, low, high = 0.0, 0, count
    while low < high:  # quickselect by amount: [low, high) is undecided, what is before is taken
        pivot = gains[(low + high) // 2]
        above, end, at = low, high, low
        held, level = 0.0, 0.0
        while at < end:
            if gains[at] > pivot:
                held += amount[of[at]]
                gains[at], gains[above] = gains[above], gains[at]
                of[at], of[above] = of[above], of[at]
                above += 1
                at += 1
            elif gains[at] < pivot:
                end -= 1
                gains[at], gains[end] = gains[end], gains[at]
                of[at], of[end] = of[end], of[at]
            else:
                level += amount[of[at]]
                at += 1
        if held > room:
            high = above
            continue
        for j in range(low, above):
            served[of[j]] = 1.0
            gained += gains[j] * amount[of[j]]
        room -= held
        if level >= room:
            gained += pivot * room
            for j in range(above, end):
                k = of[j]
                served[k] = min(1.0, room / amount[k])
                room -= served[k] * amount[k]
            return gained, pivot
        for j in range(above, end):
            served[of[j]] = 1.0
        gained += pivot * level
        room -= level
        low = end
    return gained, 0.0


@compiled
def add_cut(
    cost: Matrix,
    amount: Row,
    capacity: Row,
    fixed: Row,
    opened: Flags,
    prices: Row,
    second: float,
    everywhere: bool,
    saved: Row,
) -> float:
    """Write v_d of the cut at the capacity prices of `opened`; returns Σ u.

    Args:
        cost: as in `transport`, shape (K, D); so are the next two.
        amount: see there.
        capacity: see there.
        fixed: f_d, length D, 0 at the end.
        opened: length D; the last is true.
        prices: of the open regions; those of the others are written: the price at which exactly H_d would come.
        second: see `request_prices`: 0 is exact for this choice and good for what opens more, nearer 1 is better for
            what opens less.
        everywhere: whether v_d of open regions, too, is the best bound rather than what their prices say; both are the
            same for prices of a solved transport problem.
        saved: v_d, length D, written.
    """
    classes, regions = cost.shape
    worth, served = np.empty(classes), np.empty(classes)
    base = request_prices(cost, amount, opened, prices, second, worth)
    gains, of = np.empty(classes), np.empty(classes, np.intp)
    for a in range(regions):
        if opened[a] and not everywhere:
            saved[a] = fixed[a]
            if prices[a] > 0.0:
                saved[a] -= prices[a] * capacity[a]
            continue
        gained, price = region_saving(cost, amount, capacity[a], worth, a, gains, of, served)
        saved[a] = fixed[a] - gained
        if not opened[a]:
            prices[a] = price
    return base


@compiled
def polish(
    cost: Matrix,
    amount: Row,
    capacity: Row,
    fixed: Row,
    prices: Row,
    upper: float,
    steps: int,
    saved: Row,
) -> float:
    """Raise the bound of the cut at these prices of all regions by subgradient steps on u; returns Σ u.

    The step is Polyak's, (upper − bound) / |g|² times a factor that halves where the bound stays. `saved` is v_d of the
    best cut found, length D, and `prices` become those of its regions.
    """
    classes, regions = cost.shape
    last = regions - 1
    worth, gains, served = np.empty(classes), np.empty(classes), np.empty(classes)
    of, slope = np.empty(classes, np.intp), np.empty(classes)
    now, priced, best_base, best = np.empty(regions), np.empty(regions), 0.0, -np.inf
    request_prices(cost, amount, capacity > 0.0, prices, 0.0, worth)
    factor, stayed = 1.0, 0
    for _ in range(steps):
        base, bound = 0.0, 0.0
        for k in range(classes):
            worth[k] = min(worth[k], cost[k, last])
            base += worth[k] * amount[k]
            slope[k] = 1.0
        bound = base
        now[last], priced[last] = 0.0, 0.0
        for a in range(last):
            gained, priced[a] = region_saving(cost, amount, capacity[a], worth, a, gains, of, served)
            now[a] = fixed[a] - gained
            if now[a] < 0.0:
                bound += now[a]
                for k in range(classes):
                    slope[k] -= served[k]
        if bound > best:
            best, best_base, stayed = bound, base, 0
            saved[:] = now
            prices[:] = priced
        else:
            stayed += 1
            if stayed == 4:
                factor, stayed = 0.5 * factor, 0
        norm = 0.0
        for k in range(classes):
            norm += slope[k] * slope[k] * amount[k]
        if norm <= 0.0 or bound >= upper:
            break
        step = factor * (upper - bound) / norm
        for k in range(classes):
            worth[k] += step * slope[k]
    return best_base


@compiled
def _is_known(known: FlagMatrix, count: int, order: NDArray[np.intp], opens: Flags) -> bool:
    for c in range(count):
        j = 0
        while j < len(order) and known[c, order[j]] == opens[j]:
            j += 1
        if j == len(order):
            return True
    return False


@compiled
def least_bound(
    base: Row,
    saved: Matrix,
    cuts: int,
    capacity: Row,
    need: float,
    below: float,
    visits: int,
    known: FlagMatrix,
    count: int,
    choice: Flags,
) -> tuple[float, int, bool]:
    """The choice of open regions whose greatest bound over the cuts is least.

    Args:
        base: Σ u of each cut.
        saved: v_d of each cut, shape (cuts or more, d or more).
        cuts: how many of them there are.
        capacity: length d.
        need: what the open regions must hold together.
        below: only bounds under it are of interest.
        visits: most partial choices to look at.
        known: choices that are out, shape (count or more, d or more).
        count: how many of them there are.
        choice: length d, written where one is found.

    Returns:
        A bound under which no choice is; partial choices looked at; whether a choice was written. Where the search was
        complete the bound is the choice's own, or `below` if there is none.
    """
    regions = len(capacity)
    strongest, strength = 0, -np.inf
    for c in range(cuts):
        alone = base[c]
        for a in range(regions):
            alone += min(saved[c, a], 0.0)
        if alone > strength:
            strongest, strength = c, alone
    order = np.argsort(-np.abs(saved[strongest, :regions]))
    rest = np.zeros((regions + 1, cuts))
    room = np.zeros(regions + 1)
    for i in range(regions - 1, -1, -1):
        a = order[i]
        room[i] = room[i + 1] + capacity[a]
        for c in range(cuts):
            rest[i, c] = rest[i + 1, c] + min(saved[c, a], 0.0)

    partial = np.zeros((regions + 1, cuts))
    partial[0] = base[:cuts]
    held, bounds = np.zeros(regions + 1), np.full(regions + 1, np.inf)
    tried = np.zeros(regions + 1, np.intp)
    opens = np.zeros(regions + 1, np.bool_)
    found, best, looked, pruned, i = False, below, 0, strongest, 0
    enough = need - 1e-9
    while i >= 0:
        if tried[i] == 0:
            if looked >= visits:
                for j in range(i):
                    if tried[j] == 1:
                        best = min(best, bounds[j])
                upto = -np.inf
                for c in range(cuts):
                    upto = max(upto, partial[i, c] + rest[i, c])
                return min(best, upto), looked, found
            looked += 1
            bound = np.inf
            if held[i] + room[i] >= enough:
                bound = partial[i, pruned] + rest[i, pruned]  # what pruned last often prunes next
                for c in range(cuts):
                    if bound >= best:
                        break
                    if partial[i, c] + rest[i, c] > bound:
                        bound, pruned = partial[i, c] + rest[i, c], c
            if bound >= best:
                i -= 1
                continue
            bounds[i] = bound
            if i == regions:
                if not _is_known(known, count, order, opens):
                    best, found = bound, True
                    for j in range(regions):
                        choice[order[j]] = opens[j]
                i -= 1
                continue
        if tried[i] == 2 or bounds[i] >= best:
            tried[i] = 0
            i -= 1
            continue
        a = order[i]
        first = saved[strongest, a] < 0.0
        opens[i] = first if tried[i] == 0 else not first
        tried[i] += 1
        if opens[i]:
            held[i + 1] = held[i] + capacity[a]
            for c in range(cuts):
                partial[i + 1, c] = partial[i, c] + saved[c, a]
        else:
            held[i + 1] = held[i]
            for c in range(cuts):
                partial[i + 1, c] = partial[i, c]
        i += 1
    return best, looked, found
