"""Solves a fleet's program: in parts that share nothing, exactly where they are small, by prices where they are large.

Groups belong to one part when a quota or a region's power that both use may bind. A small part is one program. Of a
large one the relaxation (fractions of replicas) is solved by column generation: it proves how good any plan can be, and
prices what is scarce. Then each group is solved on its own, with these prices and with what those before it have left;
once more without prices, with what all others have left; with all its options where it is short then; and stage after
stage.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from heliotrope.errors import SolverError
from heliotrope.linear import Basis, Limits
from heliotrope.scale.options import Floats, Integers, Options, weights_in
from heliotrope.scale.program import Answer, Duals, Part, Prepared, Room, prepare_part, relaxed, scales_of, solve_part
from heliotrope.scale.terms import Stage, TermCosts

EXACT_CELLS = 160
"""Options times steps up to which a part is one program."""
GAP = 1e-4
"""Relative gap at which a small part is solved."""
GROUP_GAP = 1e-2
"""Of a group of a large part."""
ROUNDS = 3
"""Of column generation; what is still missing then lowers the bound."""
NEW_OPTIONS = 6
"""Most options of a group that a round adds."""
FIRST_OPTIONS = 8
"""Options of a group that column generation begins with."""
NEAR_OPTIONS = 4
"""Cheapest options of a group, with scarce limits priced, among which it is solved, beside those of the relaxation."""
LEAST_USED = 1e-6
"""Replicas of the relaxation from which an option counts as used."""
WORTH_A_ROUND = 5e-3
"""Share of the objective by which options that are left out may at most improve it, for a round more."""


@dataclass(frozen=True, slots=True)
class SearchLimit:
    """When HiGHS stops, for each program that it solves; the same answer everywhere needs nodes alone."""

    seconds: float | None = 10.0
    nodes: int | None = 2_000


@dataclass(frozen=True, slots=True)
class Searched:
    """A plan for all options."""

    replicas: Floats
    """Shape (N, H); whole in step 0."""
    rates: Floats
    """Shape (N, H)."""
    short: Floats
    """Shape (groups, H)."""
    failed: frozenset[int]
    """Groups without an answer; their replicas are the present ones."""
    gap: float | None
    """Of the first stage, as a share of the objective; None: unknown."""
    optimal: bool
    parts: int
    nodes: int


def search(options: Options, limit: SearchLimit) -> Searched:
    """The best plan that is found."""
    count, steps = options.available.shape
    replicas = np.repeat(options.current[:, None].astype(np.float64), steps, axis=1)
    rates, short = np.zeros((count, steps)), np.zeros((len(options.groups), steps))
    failed: set[int] = set()
    value, bound, optimal, nodes = 0.0, 0.0, True, 0
    scales = scales_of(options)
    parts = _parts(options)
    for groups in parts:
        members = np.flatnonzero(np.isin(options.group, groups))
        if not len(members):
            continue
        part = Part(options, groups, members, Room(options.free_now, options.free_later))
        small = len(members) * steps <= EXACT_CELLS
        done = _exactly(part, scales, limit) if small else _by_prices(part, scales, limit)
        for group, answer, chosen in done.answers:
            if answer is None:
                failed.add(group)
                continue
            replicas[chosen], rates[chosen] = answer.replicas, answer.rates
            short[group] = answer.short[0]
        value, bound = value + done.value, bound + done.bound
        optimal, nodes = optimal and done.optimal, nodes + done.nodes
    gap = max(value - bound, 0.0) / value if value > 0.0 else 0.0
    return Searched(
        replicas,
        rates,
        short,
        frozenset(failed),
        gap if np.isfinite(gap) and not failed else None,
        optimal,
        len(parts),
        nodes,
    )


@dataclass(frozen=True, slots=True)
class _Done:
    answers: list[tuple[int, Answer | None, Integers]]
    """Group, its answer, and the options that it speaks of."""
    value: float
    bound: float
    optimal: bool
    nodes: int


def _parts(options: Options) -> list[tuple[int, ...]]:
    """Groups that may meet at a limit which may bind."""
    parent = list(range(len(options.groups)))

    def root(group: int) -> int:
        while parent[group] != group:
            group = parent[group]
        return group

    planned = np.array([group.held is None for group in options.groups], dtype=np.bool_)
    for index, everyone in enumerate(options.in_limit):
        members = everyone[planned[options.group[everyone]]]
        weight = weights_in(options.limits[index], members, options.accelerators, options.loaded_watts)
        growth = float(weight @ (options.high[members] - options.current[members]).clip(min=0))
        most = float(weight @ options.later_high[members])
        if not len(members):
            continue
        if growth <= options.free_now[index] and most <= options.free_later[index]:
            continue
        meeting = sorted({root(int(group)) for group in options.group[members]})
        for group in meeting[1:]:
            parent[group] = meeting[0]
    parts: dict[int, list[int]] = {}
    for group in np.flatnonzero(planned).tolist():
        parts.setdefault(root(group), []).append(group)
    return [tuple(groups) for _, groups in sorted(parts.items())]


def _exactly(part: Part, scales: Mapping[str, float], limit: SearchLimit) -> _Done:
    try:
        answer = solve_part(part, scales, Limits(limit.seconds, limit.nodes, GAP))
    except SolverError:
        return _Done([(group, None, part.members) for group in part.groups], 0.0, -np.inf, False, 0)
    answers: list[tuple[int, Answer | None, Integers]] = []
    for position, group in enumerate(part.groups):
        inside = np.flatnonzero(part.options.group[part.members] == group)
        own = Answer(
            answer.replicas[inside],
            answer.rates[inside],
            answer.short[position : position + 1],
            answer.values,
            answer.bound,
            answer.optimal,
            answer.nodes,
            answer.columns,
        )
        answers.append((group, own, part.members[inside]))
    return _Done(answers, answer.values[0], answer.bound, answer.optimal, answer.nodes)


@dataclass(frozen=True, slots=True)
class _Pass:
    """One look at each group of a large part."""

    stage: int
    priced: bool = False
    """Whether what is scarce has its price."""
    short: bool = False
    """Whether only groups are looked at some of whose demand is not carried."""


def _by_prices(part: Part, scales: Mapping[str, float], limit: SearchLimit) -> _Done:
    options, steps = part.options, part.options.steps
    kept = part.members
    bound, prices = -np.inf, np.zeros((len(options.limits), steps))
    try:
        bound, kept, duals = _generate(part, scales)
        prices = -duals.limits
    except SolverError:
        # Without a relaxation there are no prices and no bound; groups are solved one after the other all the same.
        kept = part.members
    limits = Limits(limit.seconds, limit.nodes, GROUP_GAP)
    answers: dict[int, tuple[Answer, Integers]] = {}
    prepared: dict[int, Prepared] = {}
    usage = _Usage(options, part.groups)
    nodes, optimal = 0, True
    widest = {g: int(options.accelerators[options.groups[g].members].max()) for g in part.groups}
    order = sorted(part.groups, key=lambda g: (-widest[g], g))
    stages = max(len(options.groups[g].terms.stages) for g in part.groups)
    # First with prices, then without; what is short then with all options, as those that were kept are full;
    # then the later stages, each group within what it had.
    passes = [_Pass(0, priced=True), _Pass(0), _Pass(0, short=True)] if len(part.groups) > 1 else [_Pass(0)]
    passes += [_Pass(stage) for stage in range(1, stages)]
    for each in passes:
        stage, priced = each.stage, each.priced
        for group in order:
            if stage >= len(options.groups[group].terms.stages):
                continue
            previous = answers.get(group)
            if each.short and (previous is None or previous[0].short.max() <= LEAST_USED):
                continue
            members = kept[options.group[kept] == group]
            if each.short:
                members = part.members[options.group[part.members] == group]
            held: tuple[float, ...] = ()
            start: Floats | None = None
            if stage > 0:
                if previous is None:
                    continue
                tolerance = options.groups[group].terms.stages[stage - 1].tolerance
                held, start, members = (previous[0].values[0] * (1.0 + tolerance),), previous[0].columns, previous[1]
            own = Part(options, (group,), members, usage.room(group), prices if priced else None)
            if group not in prepared or each.short:
                prepared[group] = prepare_part(own)
            try:
                found = solve_part(
                    own,
                    scales,
                    limits,
                    first_stage=stage,
                    kept=held,
                    stages=stage + 1,
                    start=start,
                    prepared=prepared[group],
                )
            except SolverError:
                continue
            nodes += found.nodes
            if previous is not None and not priced and stage == 0 and _worse(found, previous[0]):
                continue
            answers[group] = found, members
            usage.put(group, members, found.replicas)
            optimal = optimal and found.optimal
        if stage == 0 and not priced:
            value = sum(found.values[0] for found, _ in answers.values())
    done: list[tuple[int, Answer | None, Integers]] = []
    for group in part.groups:
        answer = answers.get(group)
        if answer is None:
            done.append((group, None, part.members[options.group[part.members] == group]))
            continue
        found, members = answer
        everyone = part.members[options.group[part.members] == group]
        position = np.searchsorted(everyone, members)
        replicas, rates = np.zeros((len(everyone), steps)), np.zeros((len(everyone), steps))
        replicas[position], rates[position] = found.replicas, found.rates
        done.append(
            (group, Answer(replicas, rates, found.short, found.values, 0.0, found.optimal, 0, found.columns), everyone)
        )
    return _Done(done, value, bound, optimal, nodes)


def _worse(one: Answer, other: Answer) -> bool:
    """Whether less is carried, or as much at a higher price."""
    short, before = float(one.short.sum()), float(other.short.sum())
    if abs(short - before) > 1e-6 * max(1.0, before):
        return short > before
    return one.values[0] > other.values[0]


class _Usage:
    """What the groups of a part take of the limits; of one that has no plan yet, what it cannot do without."""

    def __init__(self, options: Options, groups: tuple[int, ...]) -> None:
        self._options = options
        self._row = {group: row for row, group in enumerate(groups)}
        members = [options.groups[group].members for group in groups]
        least = [self._taken(m, options.low[m, None], options.later_low[m, None]) for m in members]
        self._now = np.array([now for now, _ in least])
        self._later = np.array([later for _, later in least])

    def put(self, group: int, members: Integers, replicas: Floats) -> None:
        """Note a group's plan."""
        row = self._row[group]
        self._now[row], self._later[row] = self._taken(members, replicas[:, :1], replicas[:, 1:])

    def room(self, group: int) -> Room:
        """What the others leave for a group."""
        row = self._row[group]
        now = self._options.free_now - (self._now.sum(axis=0) - self._now[row])
        later = self._options.free_later - (self._later.sum(axis=0) - self._later[row])
        return Room(now.clip(min=0.0), later)

    def _taken(self, members: Integers, first: Floats | Integers, later: Floats | Integers) -> tuple[Floats, Floats]:
        o = self._options
        grown = (first[:, 0] - o.current[members]).clip(min=0)
        now, most = np.zeros(len(o.limits)), np.zeros((len(o.limits), later.shape[1]))
        for position, i in enumerate(members.tolist()):
            for index, weight in o.limits_of[i]:
                now[index] += weight * grown[position]
                most[index] += weight * later[position]
        return now, most.max(axis=1, initial=0.0)


def _unit_costs(options: Options) -> Floats:
    """First stage's cost of a request per second in a full replica, mean over the horizon; infinite where none is."""
    costs = np.full(len(options.group), np.inf)
    for group in options.groups:
        stage = group.terms.stages[0].costs
        capacity = options.capacity[group.members] * options.usable[group.members]
        each = np.divide(
            stage.per_replica.mean(axis=1), capacity, out=np.full(len(capacity), np.inf), where=capacity > 0.0
        )
        costs[group.members] = each + stage.per_request_rate.mean(axis=1)
    return costs


def _ranked(options: Options, members: Integers, cost: Floats, most: int) -> Integers:
    """Those that are there or must be, all of groups whose phases are apart, and the cheapest `most` of each other."""
    keep = (options.current > 0) | (options.later_low > 0) | (options.low > 0)
    for index in np.unique(options.group[members]):
        own = options.groups[index].members
        if (options.entry[own] != options.exit[own]).any():
            keep[own] = True
            continue
        ranked = own[np.argsort(cost[own], kind="stable")]
        keep[ranked[np.isfinite(cost[ranked])][:most]] = True
    return members[keep[members]]


def _priced(options: Options, limits: Floats) -> Floats:
    """Unit costs with what scarce limits are worth per step."""
    cost = _unit_costs(options)
    for index in np.flatnonzero(limits):
        inside = options.in_limit[index]
        weight = weights_in(options.limits[index], inside, options.accelerators, options.loaded_watts)
        capacity = options.capacity[inside]
        cost[inside] += np.divide(
            weight * limits[index], capacity, out=np.full(len(inside), np.inf), where=capacity > 0.0
        )
    return cost


def _at_once(options: Options) -> Options:
    """The fleet as if all were one step: highest demand, mean costs, and whatever is wanted serves."""
    groups = tuple(
        replace(
            group,
            demand=group.demand.max(keepdims=True),
            load_share=group.load_share.max(keepdims=True),
            terms=replace(group.terms, stages=(_mean_stage(group.terms.stages[0]),)),
        )
        for group in options.groups
    )
    return replace(
        options,
        groups=groups,
        low=np.minimum(options.later_low, options.current),
        high=np.maximum(options.later_high, options.current),
        available=options.available[:, -1:],
        lead=np.zeros_like(options.lead),
    )


def _mean_stage(stage: Stage) -> Stage:
    costs = stage.costs
    means = TermCosts(costs.per_replica.mean(axis=1, keepdims=True), costs.per_request_rate.mean(axis=1, keepdims=True))
    return replace(stage, costs=means)


def _generate(part: Part, scales: Mapping[str, float]) -> tuple[float, Integers, Duals]:
    """Column generation: a bound on every plan of the part, the options that matter, and the prices.

    What the fleet would pay for scarce limits if all were one step says which options to begin with.
    """
    options, best = part.options, -np.inf
    rough = _at_once(options)
    _, duals, _, _ = relaxed(Part(rough, part.groups, part.members, part.room), scales)
    unit = np.array([scales[options.groups[g].terms.stages[0].name] for g in range(len(options.groups))])
    cost = _priced(options, -duals.limits.sum(axis=1) * float(unit.mean()))
    kept = _ranked(options, part.members, cost, FIRST_OPTIONS)
    begin: Basis | None = None
    for _ in range(ROUNDS):
        value, duals, replicas, ended = relaxed(Part(options, part.groups, kept, part.room), scales, begin)
        solved, left_out = kept, np.setdiff1d(part.members, kept)
        missed = _missed(part, left_out, duals, scales)
        best = max(best, value + float(missed.sum()))
        if float(missed.sum()) > -WORTH_A_ROUND * abs(value):
            break
        begin = ended()
        worth = np.flatnonzero(missed < 0.0)
        ranked = worth[np.argsort(missed[worth], kind="stable")]
        groups = options.group[left_out[ranked]]
        wanted = [ranked[groups == group][:NEW_OPTIONS] for group in np.unique(groups)]
        kept = np.union1d(kept, left_out[np.concatenate(wanted)])
    later: Floats = -(duals.limits[:, 1:] if options.steps > 1 else duals.limits).mean(axis=1)
    cost = _priced(options, later * float(unit.mean()))
    near = _ranked(options, part.members, cost, NEAR_OPTIONS)
    return best, np.union1d(near, solved[(replicas > LEAST_USED).any(axis=1)]), duals


def _missed(part: Part, left_out: Integers, duals: Duals, scales: Mapping[str, float]) -> Floats:
    """By how much each option that was left out may at most improve the relaxed program: 0 or less each.

    With the prices of what is shared an option stands alone: a request per second that it carries in step t earns its
    price, and needs replicas in t and in t - L. The best that it can do is found step by step.
    """
    o, h = part.options, part.options.steps
    missed = np.zeros(len(left_out))
    if not len(left_out):
        return missed
    groups = np.asarray(part.groups)
    position = np.searchsorted(groups, o.group[left_out])
    replica, rate = np.zeros((len(left_out), h)), np.zeros((len(left_out), h))
    share = np.array([o.groups[g].load_share for g in part.groups])[position]
    boot = np.zeros(len(left_out))
    for place, index in enumerate(part.groups):
        group = o.groups[index]
        inside = np.flatnonzero(position == place)
        within = np.searchsorted(group.members, left_out[inside])
        stage = group.terms.stages[0]
        replica[inside] = stage.costs.per_replica[within] / scales[stage.name]
        rate[inside] = stage.costs.per_request_rate[within] / scales[stage.name]
    boot = replica[:, 0] * o.start_seconds[left_out] / o.step_seconds
    entry, leaving = o.entry[left_out], o.exit[left_out]
    rate -= np.where(entry[:, None], duals.demand[position], 0.0)
    replica -= np.where((entry & o.usable[left_out])[:, None], duals.least[position], 0.0)
    for (place, region), price in duals.balance.items():
        here = (position == place) & (o.region[left_out] == region) & (entry != leaving)
        rate[here] -= np.where(entry[here], 1.0, -1.0)[:, None] * price
    for (place, region), price in duals.shares.items():
        rate[(position == place) & (o.region[left_out] == region) & entry] -= price
    for index, inside in enumerate(o.in_limit):
        here = np.flatnonzero(np.isin(left_out, inside))
        weight = weights_in(o.limits[index], left_out[here], o.accelerators, o.loaded_watts)
        boot[here] -= weight * duals.limits[index, 0]
        replica[here, 1:] -= weight[:, None] * duals.limits[index, 1:]
    # What is left out has no replicas now, so that each one in step 0 is also a start.
    replica[:, 0] += boot
    earned = (-rate).clip(min=0.0) * share * (o.capacity * o.usable)[left_out, None]
    most = np.concatenate([o.high[left_out, None], np.repeat(o.later_high[left_out, None], h - 1, axis=1)], axis=1)
    for lead in np.unique(o.lead[left_out]).tolist():
        here = np.flatnonzero(o.lead[left_out] == lead)
        if lead == 0:
            missed[here] = np.minimum((replica[here] - earned[here]) * most[here], 0.0).sum(axis=1)
            continue
        for first in range(lead):
            # Step t earns with t - L, so that every L-th step is a chain. Without a replica, or with as many as may be.
            off, on, before = np.zeros(len(here)), np.zeros(len(here)), np.zeros(len(here))
            for t in range(first, h, lead):
                costs = replica[here, t] * most[here, t]
                both = earned[here, t] * np.minimum(most[here, t], before) if t >= lead else 0.0
                off, on = np.minimum(off, on), costs + np.minimum(off, on - both)
                before = most[here, t]
            missed[here] += np.minimum(off, on)
    return missed
