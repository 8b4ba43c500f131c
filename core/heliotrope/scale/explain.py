"""One plain sentence per variant, as `kubectl describe` shows it."""

from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import Role
from heliotrope.scale.facts import GroupFacts, VariantFacts
from heliotrope.scale.plan import Reason
from heliotrope.scale.saturation import MeasuredLoad

LONGEST = 300
"""Characters of an explanation at most."""


@dataclass(frozen=True, slots=True)
class Told:
    """What there is to tell."""

    variant: VariantFacts
    group: GroupFacts
    desired: int | None
    reason: Reason
    planned: int | None
    """What the program would have; None: it has no opinion."""
    demand: float | None
    """Requests per second that capacity is planned for; None: unknown."""
    rate: float | None
    """Of them, what this variant carries."""
    load: MeasuredLoad | None
    terms: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()


def explain(told: Told) -> str:
    """The sentence; what is too long ends in an ellipsis."""
    text = f"{_number(told)}: {_why(told)}{_capacity(told)}{_dropped(told)}."
    return text if len(text) <= LONGEST else text[: LONGEST - 1].rstrip() + "…"


def _number(told: Told) -> str:
    counts = told.variant.replicas
    if told.desired is None or counts is None:
        return "No opinion"
    if told.desired == counts.wanted:
        return f"Keep {_replicas(told.desired)}"
    return f"{'Raise' if told.desired > counts.wanted else 'Lower'} from {counts.wanted} to {told.desired} replicas"


def _why(told: Told) -> str:
    v, rules, planned = told.variant, told.group.rules, told.planned
    share = "" if told.load is None else f"{told.load.share:.0%}"
    order = ", then ".join(told.terms)
    sentences = {
        Reason.DEMAND_MET: f"the least {order or 'hardware'} that carries the demand",
        Reason.MINIMUM: f"minReplicas is {v.min_replicas}"
        if told.desired == v.min_replicas
        else "at least one engine stays awake",
        Reason.MAXIMUM: f"more would help, but maxReplicas is {v.max_replicas}",
        Reason.QUOTA: f"no {v.accelerator_type} is left in {v.region}",
        Reason.REGION_WATTS: f"the power of {v.region} is used up",
        Reason.REGION_SHARE: f"{v.region} carries the largest share that one region may",
        Reason.HUB_CEILING: f"the hub's ceiling is {v.ceiling}",
        Reason.OBJECTIVE: f"other variants carry the load with less {told.terms[0] if told.terms else 'hardware'}",
        Reason.NOT_ALLOWED: f"the policy lets no load go there (region {v.region or 'unknown'}, "
        f"quality {'unknown' if v.quality is None else f'{v.quality:g}'})",
        Reason.START_AHEAD: f"started ahead of the forecast's rise, as a start takes {v.start_seconds:.0f} s",
        Reason.CONSOLIDATION: "the engines that would remain cannot carry the measured load below "
        f"{rules.scale_down_share:.0%}",
        Reason.SATURATION: f"measured load is {share} of what serves within the SLO, above "
        f"{rules.scale_up_share:.0%}; this overrides {order or 'the objective'}",
        Reason.WOKEN: f"{told.group.held_requests:.0f} requests wait and no engine serves",
        Reason.STEP_LIMIT: "one step at a time on the way to more or fewer",
        Reason.DWELL: f"{_planned(planned)}waits, as the last change or wish is too recent",
        Reason.DEMAND_UNKNOWN: "the demand is unknown, so that nothing changes",
        Reason.METRICS_UNKNOWN: "metrics or capacity are unknown, so that nothing is taken away",
        Reason.UNSERVED: f"{_planned(planned)}would carry what is served, but requests wait or engines are not "
        "measured, so that nothing is taken away",
        Reason.SLO_OUT_OF_REACH: "no variant keeps the SLO at any load, so that nothing changes",
        Reason.SOLVER_HELD: "the solver found no plan in time, so that the last one holds",
        Reason.NOT_MANAGED: "left alone (no maxReplicas, another owner, or not granted)",
    }
    return sentences[told.reason]


def _capacity(told: Told) -> str:
    capacity, phase = told.variant.capacity, told.variant.role
    parts = []
    if told.demand is not None and not told.reason.held:
        carried = "" if told.rate is None else f"{_rate(told.rate)} of "
        source = "" if told.group.told_by is None else f" by {told.group.told_by}"
        parts.append(f"carries {carried}{_rate(told.demand)} requests/s{source}")
    if capacity is not None:
        what = "" if phase is Role.BOTH else f" of {phase.value}"
        parts.append(f"a replica {_rate(capacity.requests_per_second)}/s{what} within the SLO")
    return f"; {', '.join(parts)}" if parts else ""


def _dropped(told: Told) -> str:
    if not told.dropped or told.reason.held:
        return ""
    return f"; without {'; '.join(told.dropped)}"


def _planned(planned: int | None) -> str:
    return "" if planned is None else f"the plan's {planned} "


def _replicas(count: int) -> str:
    return f"{count} replica" if count == 1 else f"{count} replicas"


def _rate(rate: float) -> str:
    return f"{rate:.3g}" if rate < 1_000 else f"{rate:.0f}"
