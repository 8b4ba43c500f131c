"""The program of fleet allocation, for some of the groups and options.

For options i and steps t of the horizon, with n replicas wanted and x requests per second carried:

    min  Σ per_replica · n + per_rate · x + boot · up       up_i ≥ n_i,0 - current_i
    x_i,t ≤ ρ_t · c_i · n_i,t   and   x_i,t ≤ ρ_t · c_i · n_i,t-L     what is starting does not serve yet (L steps)
    Σ x (entry) + short = demand_t                                    of each group
    Σ x (prefill) = Σ x (decode)                                      of each group and region
    Σ x (entry, region) ≤ share · demand_t + over
    Σ weight · n_t ≤ limit   and   Σ weight · up ≤ what is free now   accelerators and watts of each region
    n_t ≤ n_t-1 + rise,   low ≤ n ≤ high,   n_0 whole

Later steps are planned again before they come, so that only step 0 is whole. `short` and `over` are 0 where that is
possible; else they are made least before anything else is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InfeasibleError
from heliotrope.linear import Basis, Found, Limits, Model, Program, Rows, solve
from heliotrope.scale.options import Floats, GroupColumns, Integers, Options, served_together, weights_in

SHARE_PRICE = 1e-2
"""Of a request per second beyond a region's share, in requests per second that nobody carries."""
CEILING_PRICE = 1e-4
"""Of a replica beyond a hub's ceiling, as a share of the group's demand."""
LACK_PRICE = 1e-1
"""Of a replica that must be awake and cannot be, likewise."""
LATER_GAP = 5e-3
LATER_NODES = 20
_ROUNDING = 1e-7
"""Relative room that a found value gets as a bound."""


@dataclass(frozen=True, slots=True)
class Room:
    """What is left of the limits, one value per limit."""

    now: Floats
    """For growth in step 0."""
    later: Floats
    """For all replicas of the options, in each later step."""

    def of(self, index: int, steps: int) -> Floats:
        """Of one limit, in each step."""
        return np.concatenate([self.now[index : index + 1], np.full(steps - 1, self.later[index])])


@dataclass(frozen=True, slots=True)
class Part:
    """Some of the groups, with some of their options."""

    options: Options
    groups: tuple[int, ...]
    members: Integers
    """Options, rising."""
    room: Room
    prices: Floats | None = None
    """Per unit of each limit and step that others would pay, shape (limits, H), in units of stage 0's objective."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A solution of a part."""

    replicas: Floats
    """Shape (K, H); whole in step 0."""
    rates: Floats
    """Requests per second, shape (K, H)."""
    short: Floats
    """Shape (groups, H)."""
    values: tuple[float, ...]
    """Objective of each stage, in its unit."""
    bound: float
    """Of the first stage."""
    optimal: bool
    nodes: int
    columns: Floats
    """All of the program's variables, for a later solve of the same options to begin with."""


@dataclass(frozen=True, slots=True)
class Duals:
    """Prices of what groups share and need, of a relaxed program."""

    demand: Floats
    """Shape (groups, H)."""
    balance: Mapping[tuple[int, int], Floats]
    """Length H, by group (position in the part) and region."""
    shares: Mapping[tuple[int, int], Floats]
    limits: Floats
    """Shape (limits, H); column 0 prices growth now."""
    least: Floats
    """Shape (groups, H)."""


class Columns:
    """Where a part's variables are."""

    def __init__(self, part: Part) -> None:
        options = part.options
        k, h, g = len(part.members), options.steps, len(part.groups)
        self.k, self.h = k, h
        self.n = np.arange(k * h).reshape(k, h)
        self.x = k * h + self.n
        self.up = 2 * k * h + np.arange(k)
        self.short = 2 * k * h + k + np.arange(g * h).reshape(g, h)
        self.group_of = np.searchsorted(np.asarray(part.groups), options.group[part.members])
        self.capped = np.flatnonzero(np.isfinite(options.ceiling[part.members]))
        self.shares = [(p, r) for p, index in enumerate(part.groups) for r in options.groups[index].region_shares]
        first = 2 * k * h + k + g * h
        self.over_ceiling = first + np.arange(len(self.capped))
        first += len(self.capped)
        self.over_share = first + np.arange(len(self.shares) * h).reshape(len(self.shares), h)
        first += len(self.shares) * h
        self.lack = first + np.arange(g)
        self.count = first + g
        self._part = part

    def names(self) -> Integers:
        """Names that a variable keeps in a part with more options."""
        part, steps = self._part, np.arange(self.h)
        groups, shares = np.asarray(part.groups), np.arange(len(self.shares))
        each = part.members[:, None]
        return np.concatenate(
            [
                np.ravel(names)
                for names in (
                    _names(0, each, steps),
                    _names(1, each, steps),
                    _names(2, part.members),
                    _names(3, groups[:, None], steps),
                    _names(4, part.members[self.capped]),
                    _names(5, shares[:, None], steps),
                    _names(6, groups),
                )
            ]
        )

    @property
    def yielding(self) -> tuple[Integers, ...]:
        """What is 0 unless nothing else is possible."""
        return self.short, self.over_ceiling, self.over_share, self.lack


def _names(kind: int, index: Integers | int, steps: Integers | int = 0) -> Integers:
    """Of variables, and of rows: a number each."""
    return np.asarray((kind << 56) + (index << 16) + steps, dtype=np.int64)


@dataclass(slots=True)
class _Built:
    columns: Columns
    low: Floats
    high: Floats
    rows: Rows
    demand_row: int
    least_row: int
    balance_rows: dict[tuple[int, int], int]
    share_row: int
    limit_rows: Integers
    """First row of each limit that the part touches, -1 elsewhere; H rows each."""


def demand_within_reach(options: Options, group: GroupColumns) -> Floats:
    """The demand without what cannot be carried because it comes before anything new serves."""
    members, steps = group.members, options.steps
    demand = group.demand.copy()
    for t in range(steps):
        serving = np.where(
            t < options.lead[members],
            np.minimum(options.available[members, t], options.high[members]),
            np.inf,
        )
        rates = np.zeros(len(options.capacity))
        usable = options.usable[members] & (options.capacity[members] > 0.0)
        rates[members] = np.where(usable, options.capacity[members], 0.0) * np.where(usable, serving, 0.0)
        demand[t] = min(demand[t], served_together(options.variants, members, rates) * float(group.load_share[t]))
    return demand


def _build(part: Part, demand: Floats) -> _Built:
    o, members = part.options, part.members
    v = Columns(part)
    k, h = v.k, v.h
    low, high = np.zeros(v.count), np.full(v.count, np.inf)
    low[v.n[:, 0]], high[v.n[:, 0]] = o.low[members], o.high[members]
    if h > 1:
        low[v.n[:, 1:]], high[v.n[:, 1:]] = o.later_low[members, None], o.later_high[members, None]
    share = np.array([o.groups[g].load_share for g in part.groups])[v.group_of]
    capacity = o.capacity[members] * o.usable[members]
    waits = np.arange(h)[None, :] < o.lead[members, None]
    high[v.x] = np.where(waits, share * capacity[:, None] * o.available[members], np.inf)
    high[v.x[capacity <= 0.0]] = 0.0
    for variables in v.yielding:
        high[variables] = 0.0
    rows = Rows()
    each = np.arange(k * h).reshape(k, h)
    steps, groups = np.arange(h), np.asarray(part.groups)
    carried = share * capacity[:, None]
    first = rows.block(-np.inf, 0.0, k * h, _names(0, members[:, None], steps))
    rows.put(first + each, v.x, 1.0)
    rows.put(first + each, v.n, -carried)
    late_i, late_t = np.nonzero(~waits & (o.lead[members, None] > 0))
    first = rows.block(-np.inf, 0.0, len(late_i), _names(1, members[late_i], late_t))
    line = first + np.arange(len(late_i))
    rows.put(line, v.x[late_i, late_t], 1.0)
    rows.put(line, v.n[late_i, late_t - o.lead[members][late_i]], -carried[late_i, late_t])
    first = rows.block(-np.inf, o.current[members].astype(np.float64), k, _names(2, members))
    rows.put(first + np.arange(k), v.n[:, 0], 1.0)
    rows.put(first + np.arange(k), v.up, -1.0)
    slow = np.flatnonzero(o.rise[members] < o.later_high[members] - o.later_low[members])
    if h > 1 and len(slow):
        names = _names(3, members[slow][:, None], steps[1:])
        first = rows.block(-np.inf, np.repeat(o.rise[members][slow], h - 1), len(slow) * (h - 1), names)
        lines = first + np.arange(len(slow) * (h - 1)).reshape(len(slow), h - 1)
        rows.put(lines, v.n[slow, 1:], 1.0)
        rows.put(lines, v.n[slow, :-1], -1.0)
    if len(v.capped):
        first = rows.block(-np.inf, o.ceiling[members][v.capped], len(v.capped), _names(4, members[v.capped]))
        rows.put(first + np.arange(len(v.capped)), v.n[v.capped, 0], 1.0)
        rows.put(first + np.arange(len(v.capped)), v.over_ceiling, -1.0)

    entry, leaving = o.entry[members], o.exit[members]
    demand_row = rows.block(demand.ravel(), np.inf, demand.size, _names(5, groups[:, None], steps))
    by_group = demand_row + np.arange(demand.size).reshape(demand.shape)
    rows.put(by_group[v.group_of[entry]], v.x[entry], 1.0)
    rows.put(by_group, v.short, 1.0)
    reachable = [
        min(float(o.groups[g].least), float(o.high[m[o.entry[m] & o.usable[m]]].sum()))
        for g in part.groups
        for m in (o.groups[g].members,)
    ]
    least_row = rows.block(np.repeat(reachable, h), np.inf, len(groups) * h, _names(6, groups[:, None], steps))
    least_rows = least_row + np.arange(len(groups) * h).reshape(len(groups), h)
    counted = entry & o.usable[members]
    rows.put(least_rows[v.group_of[counted]], v.n[counted], 1.0)
    rows.put(least_rows, np.repeat(v.lack[:, None], h, axis=1), 1.0)

    balance_rows: dict[tuple[int, int], int] = {}
    phases = np.flatnonzero(entry != leaving)
    for position, region in sorted({(int(v.group_of[i]), int(o.region[members[i]])) for i in phases}):
        inside = phases[(v.group_of[phases] == position) & (o.region[members[phases]] == region)]
        names = _names(7, part.groups[position] * (len(o.regions) + 1) + region + 1, steps)
        row = balance_rows[position, region] = rows.block(0.0, 0.0, h, names)
        rows.put(
            np.tile(row + np.arange(h), (len(inside), 1)), v.x[inside], np.where(entry[inside], 1.0, -1.0)[:, None]
        )
    share_row = rows.count
    for index, (position, region) in enumerate(v.shares):
        inside = np.flatnonzero((v.group_of == position) & (o.region[members] == region) & entry)
        cap = o.groups[part.groups[position]].region_shares[region]
        row = rows.block(-np.inf, cap * demand[position], h, _names(8, index, steps))
        rows.put(np.tile(row + np.arange(h), (len(inside), 1)), v.x[inside], 1.0)
        rows.put(row + np.arange(h), v.over_share[index], -1.0)

    limit_rows = np.full(len(o.limits), -1, dtype=np.int64)
    place = np.full(len(o.group), -1, dtype=np.int64)
    place[members] = np.arange(k)
    for index, (limit, touched) in enumerate(zip(o.limits, o.in_limit, strict=True)):
        here = touched[place[touched] >= 0]
        if not len(here):
            continue
        weight, inside = weights_in(limit, here, o.accelerators, o.loaded_watts), place[here]
        row = rows.block(-np.inf, part.room.of(index, h), h, _names(9, index, steps))
        limit_rows[index] = row
        rows.put(np.full(len(inside), row), v.up[inside], weight)
        for t in range(1, h):
            rows.put(np.full(len(inside), row + t), v.n[inside, t], weight)
    return _Built(v, low, high, rows, demand_row, least_row, balance_rows, share_row, limit_rows)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a part's program is made of, whatever the room and the prices."""

    demand: Floats
    built: _Built

    def within(self, room: Room) -> _Built:
        """The program for a room, to be changed on its own."""
        built = self.built
        rows = built.rows.copy()
        for index in np.flatnonzero(built.limit_rows >= 0).tolist():
            rows.limit(int(built.limit_rows[index]), room.of(index, built.columns.h))
        return replace(built, rows=rows, high=built.high.copy())


def prepare_part(part: Part) -> Prepared:
    """Build a part's program once for all solves of the same groups and options."""
    demand = np.array([demand_within_reach(part.options, part.options.groups[g]) for g in part.groups])
    return Prepared(demand, _build(part, demand))


def _stage_costs(part: Part, built: _Built, stage: int, scales: Mapping[str, float]) -> tuple[Floats, Floats]:
    """The objective of a stage, and the same without prices by group, shape (groups, columns)."""
    o, v = part.options, built.columns
    by_group = np.zeros((len(part.groups), v.count))
    for position, index in enumerate(part.groups):
        group = o.groups[index]
        chosen = group.terms.stages[min(stage, len(group.terms.stages) - 1)]
        inside = np.flatnonzero(v.group_of == position)
        within = np.searchsorted(group.members, part.members[inside])
        replica, rate = chosen.costs.per_replica[within], chosen.costs.per_request_rate[within]
        unit = scales[chosen.name]
        by_group[position, v.n[inside]] = replica / unit
        by_group[position, v.x[inside]] = rate / unit
        boot = o.start_seconds[part.members[inside]] / o.step_seconds
        by_group[position, v.up[inside]] = replica[:, 0] * boot / unit
    cost = by_group.sum(axis=0)
    if part.prices is not None and stage == 0:
        for position, i in enumerate(part.members.tolist()):
            for index, weight in o.limits_of[i]:
                cost[v.up[position]] += weight * part.prices[index, 0]
                cost[v.n[position, 1:]] += weight * part.prices[index, 1:]
    return cost, by_group


def scales_of(options: Options) -> dict[str, float]:
    """What one request per second costs in each stage on average: the unit in which stages of groups are added."""
    sums: dict[str, list[float]] = {}
    for group in options.groups:
        carries = options.capacity[group.members] > 0.0
        capacity = options.capacity[group.members][carries]
        for stage in group.terms.stages:
            costs = stage.costs.per_replica[carries, 0] / capacity + stage.costs.per_request_rate[carries, 0]
            sums.setdefault(stage.name, []).extend(costs[costs > 0.0].tolist())
    return {name: float(np.mean(values)) if values else 1.0 for name, values in sums.items()}


def solve_part(
    part: Part,
    scales: Mapping[str, float],
    limits: Limits,
    *,
    first_stage: int = 0,
    kept: Sequence[float] = (),
    stages: int | None = None,
    start: Floats | None = None,
    prepared: Prepared | None = None,
) -> Answer:
    """Stage after stage, each within the tolerance of those before.

    Args:
        part: what is solved.
        scales: see `scales_of`.
        limits: of each solve.
        first_stage: where to begin.
        kept: what each group's objective of the stage before may be at most; empty: no bound.
        stages: where to end; None: after the last.
        start: columns of an earlier answer, to begin with; None: of none.
        prepared: of the same groups and options; None: made here.

    Raises:
        SolverError: if HiGHS fails, or finds nothing within the limits.
    """
    prepared = prepared or prepare_part(part)
    demand, built = prepared.demand, prepared.within(part.room)
    v = built.columns
    whole = np.zeros(v.count, dtype=np.bool_)
    whole[v.n[:, 0]] = True
    if stages is None:
        stages = max(len(part.options.groups[g].terms.stages) for g in part.groups)
    if kept:
        _, by_group = _stage_costs(part, built, first_stage - 1, scales)
        _bound(built, by_group, np.asarray(kept))
    found: Found | None = None
    bound, optimal, nodes = 0.0, True, 0
    values: list[float] = []
    relaxed = False
    model: Model | None = None
    stage = first_stage
    while stage < stages:
        cost, by_group = _stage_costs(part, built, stage, scales)
        within = limits if stage == 0 else _later(limits)
        try:
            model = model or Model(Program(cost, built.low, built.high, whole, built.rows))
            found, earlier = model.solve(cost, within, start if found is None else found.values), found
        except InfeasibleError:
            if relaxed:
                raise
            relaxed = True
            nodes, model = nodes + _relax(built, demand, whole, limits), None
            continue
        nodes, optimal = nodes + found.nodes, optimal and found.optimal
        if found.values is None:
            if earlier is None:
                raise InfeasibleError("nothing was found within the limits")
            found = earlier
            break
        if stage == first_stage:
            bound = found.bound
        spent = by_group @ found.values
        values.append(float(spent.sum()))
        if stage + 1 < stages:
            tolerances = np.array(
                [
                    terms[min(stage, len(terms) - 1)].tolerance if stage < len(terms) - 1 else 0.0
                    for g in part.groups
                    for terms in (part.options.groups[g].terms.stages,)
                ]
            )
            _bound(built, by_group, spent * (1.0 + tolerances))
        stage += 1
    if found is None or found.values is None:
        raise InfeasibleError("there is no stage to solve")
    replicas = found.values[v.n].copy()
    replicas[:, 0] = np.round(replicas[:, 0])
    carried, short = found.values[v.x], found.values[v.short]
    return Answer(replicas, carried, short, tuple(values), bound, optimal, nodes, found.values)


def _later(limits: Limits) -> Limits:
    """Of stages that choose among plans that tie: a little more or less of their term is not worth a long search."""
    nodes = LATER_NODES if limits.nodes is None else min(limits.nodes, LATER_NODES)
    return Limits(limits.seconds, nodes, max(limits.relative_gap, LATER_GAP))


def _bound(built: _Built, by_group: Floats, most: Floats) -> None:
    for costs, high in zip(by_group, most, strict=True):
        (used,) = np.nonzero(costs)
        if len(used):
            row = built.rows.block(-np.inf, float(high) * (1.0 + _ROUNDING) + _ROUNDING, 1)
            built.rows.put(np.full(len(used), row), used, costs[used])


def _relax(built: _Built, demand: Floats, whole: NDArray[np.bool_], limits: Limits) -> int:
    """Let `short` and `over` be what they have to be at least; returns the nodes that it took."""
    v = built.columns
    cost = np.zeros(v.count)
    most = np.maximum(demand.max(axis=1, keepdims=True), 1e-9)
    cost[v.short] = 1.0 / most
    for index, (position, _) in enumerate(v.shares):
        cost[v.over_share[index]] = SHARE_PRICE / most[position]
    cost[v.over_ceiling] = CEILING_PRICE
    cost[v.lack] = LACK_PRICE
    for variables in v.yielding:
        built.high[variables] = np.inf
    built.high[v.short] = demand
    least = Limits(limits.seconds, limits.nodes, 1e-4, 1e-6)
    found = solve(Program(cost, built.low, built.high, whole, built.rows), least)
    if found.values is None:
        raise InfeasibleError("what has to yield was not found within the limits")
    row = built.rows.block(-np.inf, float(cost @ found.values) * (1.0 + _ROUNDING) + _ROUNDING, 1)
    (used,) = np.nonzero(cost)
    built.rows.put(np.full(len(used), row), used, cost[used])
    return found.nodes


SHORT_PRICE = 1e3
"""Of a request per second that nobody carries, in the relaxed program: in units of an average one."""


def relaxed(
    part: Part, scales: Mapping[str, float], begin: Basis | None = None
) -> tuple[float, Duals, Floats, Callable[[], Basis]]:
    """The first stage with fractions of replicas: its value, the prices, the replicas, and where it ended.

    Args:
        part: what is solved.
        scales: see `scales_of`.
        begin: where that of the same groups with fewer options ended; None: anywhere.

    Raises:
        SolverError: if HiGHS fails.
    """
    built = prepare_part(part).built
    v, h = built.columns, built.columns.h
    cost, _ = _stage_costs(part, built, 0, scales)
    cost[v.short] = SHORT_PRICE
    cost[v.over_share] = SHORT_PRICE * SHARE_PRICE
    cost[v.over_ceiling] = SHORT_PRICE * CEILING_PRICE
    cost[v.lack] = SHORT_PRICE * LACK_PRICE
    for variables in v.yielding:
        built.high[variables] = np.inf
    model = Model(Program(cost, built.low, built.high, np.zeros(v.count, dtype=np.bool_), built.rows))
    if begin is not None:
        model.begin(begin, v.names())
    found = model.solve(cost)
    if found.values is None:
        raise InfeasibleError("the relaxed program was not solved")
    duals, groups = found.duals, len(part.groups)
    limits = np.zeros((len(part.options.limits), h))
    for index in np.flatnonzero(built.limit_rows >= 0):
        limits[index] = duals[built.limit_rows[index] : built.limit_rows[index] + h]
    prices = Duals(
        demand=duals[built.demand_row : built.demand_row + groups * h].reshape(groups, h),
        balance={key: duals[row : row + h] for key, row in built.balance_rows.items()},
        shares={key: duals[built.share_row + i * h : built.share_row + (i + 1) * h] for i, key in enumerate(v.shares)},
        limits=limits,
        least=duals[built.least_row : built.least_row + groups * h].reshape(groups, h),
    )
    return found.objective, prices, found.values[v.n], lambda: model.basis(v.names())
