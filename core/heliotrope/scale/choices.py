"""From the program's numbers to those that are asked for: guard, consolidation, steps and dwell."""

from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np

from heliotrope.scale.facts import ScalingState, VariantFacts
from heliotrope.scale.options import Floats, GroupColumns, Options, served_together
from heliotrope.scale.plan import Reason
from heliotrope.scale.saturation import MeasuredLoad, raise_to
from heliotrope.scale.search import Searched
from heliotrope.scale.stabilise import settle

UNLIMITED = 1 << 30


@dataclass(slots=True)
class Choice:
    """What becomes of an option on its way."""

    wished: int
    state: ScalingState
    reason: Reason | None = None
    """What bound it after the program; None: nothing."""


def choose(
    options: Options, searched: Searched | None, loads: tuple[MeasuredLoad | None, ...], now_unix_s: float
) -> list[Choice]:
    """What to ask for, one per option.

    Args:
        options: the fleet.
        searched: what the program answers; None: nothing.
        loads: measured of each group.
        now_unix_s: the time.
    """
    choices = [_planned(options, searched, i) for i in range(len(options.variants))]
    free = options.free_now.copy()
    for i, choice in enumerate(choices):
        _take(options, free, i, choice.wished - int(options.current[i]))
    for group, load in zip(options.groups, loads, strict=True):
        _guard(options, group, choices, load, free)
        _consolidate(options, group, choices, load)
    for i, choice in enumerate(choices):
        bounds = options.reaches[i]
        if bounds is None:
            continue
        if choice.reason in (Reason.SATURATION, Reason.WOKEN):
            # The dwell of scaling up does not hold the guard back, and its steps are in the wish already.
            bounds = replace(bounds, high=max(bounds.high, choice.wished))
        rules = options.groups[int(options.group[i])].facts.rules
        settled = settle(choice.wished, int(options.current[i]), bounds, rules, choice.state, now_unix_s)
        choice.wished, choice.state = settled.desired, settled.state
        if settled.waits:
            choice.reason = Reason.DWELL
    return choices


def _planned(options: Options, searched: Searched | None, i: int) -> Choice:
    variant, current = options.variants[i], int(options.current[i])
    group = int(options.group[i])
    held = options.groups[group].held
    if held is None and (searched is None or group in searched.failed):
        held = Reason.SOLVER_HELD
    if options.reaches[i] is None:
        unknown = variant.managed and variant.max_replicas is not None
        return Choice(current, variant.state, Reason.METRICS_UNKNOWN if unknown else Reason.NOT_MANAGED)
    if held is not None or searched is None:
        # The user's own bounds hold also where nothing is planned.
        return Choice(min(max(current, variant.min_replicas), top(variant)), variant.state, held)
    return Choice(round(float(searched.replicas[i, 0])), variant.state)


def top(variant: VariantFacts) -> int:
    """Most replicas that the user lets a variant have; a minimum above the maximum wins."""
    return max(variant.max_replicas or 0, variant.min_replicas)


def _guard(
    options: Options, group: GroupColumns, choices: list[Choice], load: MeasuredLoad | None, free: Floats
) -> None:
    """Raise what measured load needs, within maximum, step and quota; dwell does not hold it back."""
    members = [
        i
        for i in group.members.tolist()
        if options.usable[i] and options.capacity[i] > 0.0 and options.variants[i].capacity
    ]
    index_of = {options.variants[i].name: i for i in members}
    stage = group.terms.stages[0].costs
    unit = dict(zip(group.members.tolist(), stage.per_replica[:, 0].tolist(), strict=True))
    # What serves soonest comes first; of equals the one that costs least.
    order = sorted(
        members,
        key=lambda i: (options.start_seconds[i], unit[i] / options.capacity[i], options.variants[i].name),
    )

    planned = {options.variants[i].name: choices[i].wished for i in members}
    asked_for = dict(planned)

    def grant(variant: VariantFacts, asked: int) -> int:
        i = index_of[variant.name]
        if options.reaches[i] is None:
            return 0
        current, wished = int(options.current[i]), asked_for[variant.name]
        # What was to go and stays takes nothing of the quota; the user's own maximum holds for it as well.
        kept = min(current, top(variant))
        back = min(asked, max(kept - wished, 0))
        room = _room(options, free, i)
        most = min(current + group.facts.rules.scale_up.max_replicas, top(variant))
        more = max(min(asked - back, most - max(wished, kept), room), 0)
        _take(options, free, i, more)
        asked_for[variant.name] = wished + back + more
        return int(back + more)

    for name, raised in raise_to(group.facts, [options.variants[i] for i in order], planned, grant, load).items():
        choice = choices[index_of[name]]
        if raised > choice.wished:
            woken = load is not None and load.serving_capacity == 0.0
            choice.wished, choice.reason = raised, Reason.WOKEN if woken else Reason.SATURATION


def _room(options: Options, free: Floats, i: int) -> int:
    """Replicas that an option may still add."""
    rooms = [int(float(free[index]) / weight + 1e-9) for index, weight in options.limits_of[i] if weight > 0.0]
    return max(min(rooms, default=UNLIMITED), 0)


def _take(options: Options, free: Floats, i: int, replicas: int) -> None:
    for index, weight in options.limits_of[i] if replicas > 0 else ():
        free[index] -= weight * replicas


def _consolidate(options: Options, group: GroupColumns, choices: list[Choice], load: MeasuredLoad | None) -> None:
    """Take replicas away only while those that serve carry what is measured; unknown load takes nothing away.

    What is starting carries nothing yet, so that a replica goes only after the one that replaces it serves.
    """
    current = options.current
    lowered = [
        i
        for i in group.members.tolist()
        if choices[i].wished < current[i] and (bounds := options.reaches[i]) is not None and bounds.high >= current[i]
    ]
    if not lowered:
        return
    if load is None:
        for i in lowered:
            choices[i].wished, choices[i].reason = int(current[i]), Reason.METRICS_UNKNOWN
        return
    if group.facts.keeps:
        for i in lowered:
            choices[i].wished, choices[i].reason = int(current[i]), Reason.UNSERVED
        return
    rates = options.capacity * options.usable
    serving = np.array([v.replicas.serving if v.replicas else 0 for v in options.variants], dtype=np.float64)
    need = load.requests_per_second / group.facts.rules.scale_down_share

    def carried(counts: Floats) -> float:
        return served_together(options.variants, group.members, counts * rates)

    cost = dict(zip(group.members.tolist(), group.terms.stages[0].costs.per_replica[:, 0].tolist(), strict=True))
    remaining, before = serving.copy(), carried(serving)
    # The dearest goes first: where not all may go, the least is lost.
    for _, _, i in sorted(((-cost[i], options.variants[i].name, i) for i in lowered), key=itemgetter(0, 1)):
        least, wished = choices[i].wished, int(current[i])
        while wished > least:
            trial = remaining.copy()
            trial[i] = min(serving[i], wished - 1)
            after = carried(trial)
            if after < before and after < need:
                choices[i].reason = Reason.CONSOLIDATION
                break
            remaining, before, wished = trial, after, wished - 1
        choices[i].wished = wished
