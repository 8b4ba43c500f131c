"""Whole requests of different weights in regions of limited room: what a splittable assignment leaves open.

Import it where it is first needed: see `heliotrope.compiled`. A basic optimum of the splittable problem splits at most
one request per region; those are placed again, and the assignment is improved by moves and swaps. Feasibility itself is
bin packing here: a request may find no place although one exists.
"""

import numpy as np
from numpy.typing import NDArray

from heliotrope.compiled import compiled

Matrix = NDArray[np.float64]
Row = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]

_LEAST_GAIN = 1e-12


@compiled
def _place(cost: Matrix, weight: Row, fixed: Row, room: Row, opened: Flags, r: int, anew: bool, places: Places) -> bool:
    """Put request r where it costs least and fits; `anew`: in a region that is not open."""
    at, least = -1, np.inf
    for a in range(len(room)):
        if room[a] >= weight[r] and opened[a] != anew:
            more = cost[r, a] + (fixed[a] if anew else 0.0)
            if more < least:
                at, least = a, more
    if at < 0:
        return False
    places[r] = at
    room[at] -= weight[r]
    opened[at] = True
    return True


@compiled
def _make_room(cost: Matrix, weight: Row, room: Row, opened: Flags, r: int, places: Places) -> bool:
    """Put request r in place of one that fits elsewhere, at least cost."""
    mover, to, least = -1, -1, np.inf
    for s in range(len(weight)):
        a = places[s]
        if a < 0 or s == r or cost[r, a] == np.inf or room[a] + weight[s] < weight[r]:
            continue
        for b in range(len(room)):
            if b != a and opened[b] and room[b] >= weight[s]:
                more = cost[s, b] - cost[s, a] + cost[r, a]
                if more < least:
                    mover, to, least = s, b, more
    if mover < 0:
        return False
    a = places[mover]
    room[to] -= weight[mover]
    room[a] += weight[mover] - weight[r]
    places[mover], places[r] = to, a
    return True


@compiled
def _improve(cost: Matrix, weight: Row, room: Row, opened: Flags, places: Places) -> bool:
    """One pass of moves and swaps that lower the cost; whether there was any."""
    improved = False
    for r in range(len(weight)):
        a = places[r]
        if a < 0:
            continue
        for b in range(len(room)):
            if opened[b] and room[b] >= weight[r] and cost[r, b] < cost[r, places[r]] - _LEAST_GAIN:
                room[places[r]] += weight[r]
                room[b] -= weight[r]
                places[r] = b
                improved = True
        for s in range(r):
            a, b = places[r], places[s]
            if b < 0 or a == b:
                continue
            more = cost[r, b] + cost[s, a] - cost[r, a] - cost[s, b]
            if more < -_LEAST_GAIN and room[a] + weight[r] >= weight[s] and room[b] + weight[s] >= weight[r]:
                room[a] += weight[r] - weight[s]
                room[b] += weight[s] - weight[r]
                places[r], places[s] = b, a
                improved = True
    return improved


@compiled
def pack(cost: Matrix, weight: Row, capacity: Row, fixed: Row, opened: Flags, passes: int, places: Places) -> int:
    """Place what `places` leaves at -1, and improve the rest.

    Args:
        cost: of whole requests, shape (n, d), inf where one may not be.
        weight: length n.
        capacity: length d.
        fixed: length d.
        opened: length d; more may be opened for requests that fit nowhere else.
        passes: most passes of improvement.
        places: region of each request or -1, length n; kept within the capacities.

    Returns:
        How many requests have no place.
    """
    room = capacity.copy()
    for r in range(len(weight)):
        if places[r] >= 0:
            room[places[r]] -= weight[r]
    heaviest = np.argsort(-weight)
    missing = 0
    for i in range(passes + 1):
        missing = 0
        for r in heaviest:
            if (
                places[r] < 0
                and not _place(cost, weight, fixed, room, opened, r, False, places)
                and not _make_room(cost, weight, room, opened, r, places)
                and (i == 0 or not _place(cost, weight, fixed, room, opened, r, True, places))
            ):
                missing += 1
        if not _improve(cost, weight, room, opened, places) and i > 0:
            break
    return missing
