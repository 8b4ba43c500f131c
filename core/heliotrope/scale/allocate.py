"""Fleet allocation: from facts to a number of replicas per variant, and why.

    facts → options (what may change, what must hold) → program (least of the objective) → guard (may only raise)
          → consolidation (what remains must carry what is measured) → steps and dwell → explanation

Pure: the same facts give the same plan, in whatever order they come. Whatever is unknown or fails leaves numbers as
they are; the guard still acts on what is known.
"""

import numpy as np

from heliotrope.errors import SolverError
from heliotrope.scale.choices import Choice, choose
from heliotrope.scale.explain import Told, explain
from heliotrope.scale.facts import FleetFacts, VariantFacts
from heliotrope.scale.known import known
from heliotrope.scale.options import GroupColumns, Options, prepare, served_together
from heliotrope.scale.plan import Certificate, FleetPlan, GroupPlan, Reason, SolverOutcome, VariantPlan
from heliotrope.scale.reasons import Reasons
from heliotrope.scale.saturation import MeasuredLoad, measured_load
from heliotrope.scale.search import Searched, SearchLimit, search

__all__ = ["SearchLimit", "allocate"]

PROVEN_GAP = 1e-3
"""Up to it a plan is called optimal."""


def allocate(facts: FleetFacts, limit: SearchLimit | None = None) -> FleetPlan:
    """Plan the fleet.

    Args:
        facts: of every group that shares quotas, so that they are planned together.
        limit: of the solver.
    """
    facts = known(facts)
    options = prepare(facts)
    try:
        searched: Searched | None = search(options, limit or SearchLimit())
    except SolverError:
        searched = None
    members: dict[str, list[VariantFacts]] = {group.name: [] for group in facts.groups}
    for variant in sorted(facts.variants, key=lambda v: v.name):
        members[variant.group].append(variant)
    loads = tuple(measured_load(group.facts, members[group.facts.name]) for group in options.groups)
    choices = choose(options, searched, loads, facts.now_unix_s)
    reasons = None if searched is None else Reasons(options, searched)
    plans = [
        _variant_plan(options, i, choice, searched, reasons, loads[int(options.group[i])])
        for i, choice in enumerate(choices)
    ]
    planned = {plan.name for plan in plans}
    for group, load in zip(options.groups, loads, strict=True):
        for variant in members[group.facts.name]:
            if variant.name not in planned:
                told = Told(variant, group.facts, None, Reason.METRICS_UNKNOWN, None, None, None, load)
                plans.append(VariantPlan(variant.name, None, None, told.reason, explain(told), variant.state))
    plans.sort(key=lambda plan: plan.name)
    desired = {plan.name: plan.desired for plan in plans}
    return FleetPlan(
        variants=tuple(plans),
        groups=tuple(
            _group_plan(group, members[group.facts.name], searched, index, desired, load)
            for index, (group, load) in enumerate(zip(options.groups, loads, strict=True))
        ),
        certificate=_certificate(options, searched),
    )


def _variant_plan(
    options: Options,
    i: int,
    choice: Choice,
    searched: Searched | None,
    reasons: Reasons | None,
    load: MeasuredLoad | None,
) -> VariantPlan:
    variant, index = options.variants[i], int(options.group[i])
    group = options.groups[index]
    solved = searched is not None and group.held is None and index not in searched.failed
    optimal: int | None = None
    rate: float | None = None
    # What is asked for now serves after its start.
    step = int(options.lead[i])
    ahead: tuple[int, ...] = ()
    if solved and searched is not None:
        optimal, rate = round(float(searched.replicas[i, 0])), float(searched.rates[i, step])
        ahead = tuple(int(np.ceil(value - 1e-6)) for value in searched.replicas[i].tolist())
    reason = choice.reason
    if reason is None:
        reason = reasons.why(i, choice.wished) if reasons is not None else Reason.SOLVER_HELD
    told = Told(
        variant,
        group.facts,
        choice.wished,
        reason,
        optimal,
        None if group.held is not None else float(group.demand[step]),
        rate,
        load,
        group.terms.names,
        group.terms.dropped,
    )
    return VariantPlan(variant.name, choice.wished, optimal, reason, explain(told), choice.state, ahead, rate)


def _group_plan(
    group: GroupColumns,
    members: list[VariantFacts],
    searched: Searched | None,
    index: int,
    desired: dict[str, int | None],
    load: MeasuredLoad | None,
) -> GroupPlan:
    capacity, demand = None, group.facts.demand
    if all(variant.capacity is not None and desired[variant.name] is not None for variant in members):
        rates = [v.capacity.requests_per_second * (desired[v.name] or 0) if v.capacity else 0.0 for v in members]
        capacity = served_together(tuple(members), np.arange(len(members)), np.array(rates))
    solved = searched is not None and group.held is None and index not in searched.failed
    return GroupPlan(
        name=group.facts.name,
        demand_requests_per_second=None if demand is None or not demand.upper else demand.upper[0],
        capacity_requests_per_second=capacity,
        load_share=None if load is None else load.share,
        unmet_requests_per_second=float(searched.short[index].max(initial=0.0)) if solved and searched else 0.0,
        terms=group.terms.names,
        dropped=group.terms.dropped,
    )


def _certificate(options: Options, searched: Searched | None) -> Certificate:
    if searched is None:
        everyone = tuple(group.facts.name for group in options.groups)
        return Certificate(SolverOutcome.FAILED, None, 0, 0, everyone)
    names = tuple(options.groups[index].facts.name for index in sorted(searched.failed))
    proven = searched.gap is not None and searched.gap <= PROVEN_GAP
    outcome = SolverOutcome.OPTIMAL if proven else SolverOutcome.FEASIBLE
    return Certificate(SolverOutcome.FAILED if names else outcome, searched.gap, searched.parts, searched.nodes, names)
