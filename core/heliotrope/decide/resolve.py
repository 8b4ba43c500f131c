"""The settings that hold for one request: the policy's, its class's, a demand event's, its own, in this order.

Sustainable-inference-control-plane §6.1: the weights of equation 6 need not be static; a demand-response event or a
latency-critical class changes them. Later layers replace earlier ones as far as they say anything:

    policy → class (promise, comparison) → event (comparison) → the request's own wishes, as far as they are allowed

Constraints of the operator are no class's or request's to loosen: allowed regions can only be narrowed, and the floor
of quality, the limits of power and share, enforcement and holdout are the policy's alone.
"""

from collections.abc import Sequence
from dataclasses import replace

from heliotrope.decide.asked import NOTHING_ASKED, Asked
from heliotrope.decide.policy import (
    Comparison,
    DecisionPolicy,
    DemandEvent,
    Objective,
    Overridable,
    Override,
    Provenance,
    ServiceClass,
)

NOT_ALLOWED = "not allowed by the policy"


def policy_for(policy: DecisionPolicy, asked: Asked, now_unix_s: float) -> DecisionPolicy:
    """The policy as it holds for one request; `provenance` says where its settings come from.

    A promise that the request may make stays in its own profile; one that it may not is in `provenance.refused`.

    Args:
        policy: as attached to the pool.
        asked: the request's wishes.
        now_unix_s: for demand events.
    """
    service = class_of(policy.classes, asked)
    event = event_at(policy.events, now_unix_s) if policy.event_comparison is not None else None
    if service is not None and not service.answers_demand:
        event = None
    if service is None and event is None and asked is NOTHING_ASKED:
        return policy
    comparison: Comparison | None = None
    changes: dict[str, object] = {}
    if service is not None:
        comparison = service.comparison
        if service.ttft_slo_seconds is not None:
            changes["ttft_slo_seconds"] = service.ttft_slo_seconds
        if service.tpot_slo_seconds is not None:
            changes["tpot_slo_seconds"] = service.tpot_slo_seconds
    if event is not None:
        comparison = policy.event_comparison
    if comparison is not None:
        changes |= _compared_by(comparison)
    applied, refused = _overridden(policy, asked, changes)
    changes["provenance"] = Provenance(
        service_class=None if service is None else service.name,
        event=None if event is None else event.name,
        applied=applied,
        refused=refused,
    )
    return replace(policy, **changes)  # type: ignore[arg-type]


class Resolver:
    """`policy_for` with a memory: requests of one class at one time share their settings, as most do.

    It keeps the settings of one policy, one for each of its classes, events and kinds of promise.
    """

    def __init__(self) -> None:
        self._policy: DecisionPolicy | None = None
        self._kept: dict[tuple[str | None, str | None, bool], DecisionPolicy] = {}

    def policy_for(self, policy: DecisionPolicy, asked: Asked, now_unix_s: float) -> DecisionPolicy:
        """As the function of this name."""
        if asked is NOTHING_ASKED and not policy.events:
            return policy
        if policy is not self._policy:
            self._policy = policy
            self._kept.clear()
        own_promise = asked.ttft_slo_seconds is not None or asked.tpot_slo_seconds is not None
        refused = own_promise and (
            Override.SLO not in policy.overrides.allowed or _out_of_bounds(policy.overrides, asked) is not None
        )
        if refused or asked.order or asked.weights or asked.regions is not None:
            return policy_for(policy, asked, now_unix_s)
        service, event = class_of(policy.classes, asked), event_at(policy.events, now_unix_s)
        key = (None if service is None else service.name, None if event is None else event.name, own_promise)
        kept = self._kept.get(key)
        if kept is None:
            kept = self._kept[key] = policy_for(policy, asked, now_unix_s)
        return kept


def class_of(classes: Sequence[ServiceClass], asked: Asked) -> ServiceClass | None:
    """The class that a request names, else the first that lists its InferenceObjective or holds its priority.

    A name that no class has counts for nothing: clients outlive policies.
    """
    if not classes:
        return None
    if asked.service_class is not None:
        for each in classes:
            if each.name == asked.service_class:
                return each
    for each in classes:
        if asked.inference_objective is not None and asked.inference_objective in each.inference_objectives:
            return each
        if asked.priority is not None and _holds(each, asked.priority):
            return each
    return None


def event_at(events: Sequence[DemandEvent], now_unix_s: float) -> DemandEvent | None:
    """The first event that holds now."""
    for event in events:
        if event.start_unix_s <= now_unix_s < event.end_unix_s:
            return event
    return None


def _holds(service: ServiceClass, priority: int) -> bool:
    low, high = service.lowest_priority, service.highest_priority
    if low is None and high is None:
        return False
    return (low is None or low <= priority) and (high is None or priority <= high)


def _compared_by(comparison: Comparison) -> dict[str, object]:
    return {
        "objective": comparison.objective,
        "order": comparison.order,
        "tolerances": comparison.tolerances,
        "weights": comparison.weights,
        "soft_weight": comparison.soft_weight,
        "score_tolerance": comparison.score_tolerance,
        "choices": comparison.choices,
    }


def _overridden(
    policy: DecisionPolicy, asked: Asked, changes: dict[str, object]
) -> tuple[tuple[Override, ...], tuple[tuple[Override, str], ...]]:
    """Adds what the request may change to `changes`; what it changes and what it may not."""
    applied: list[Override] = []
    refused: list[tuple[Override, str]] = []

    def allowed(override: Override, reason: str | None = None) -> bool:
        if override not in policy.overrides.allowed:
            reason = NOT_ALLOWED
        if reason is not None:
            refused.append((override, reason))
            return False
        applied.append(override)
        return True

    if asked.ttft_slo_seconds is not None or asked.tpot_slo_seconds is not None:
        allowed(Override.SLO, _out_of_bounds(policy.overrides, asked))
    if (asked.order or asked.weights) and allowed(Override.OBJECTIVE):
        if asked.weights:
            changes |= {"objective": Objective.WEIGHTED, "weights": asked.weights}
        else:
            changes |= {"objective": Objective.LEXICOGRAPHIC, "order": asked.order}
    if asked.regions is not None and allowed(Override.REGIONS):
        own = policy.allowed_regions
        changes["allowed_regions"] = asked.regions if own is None else own & asked.regions
    return tuple(applied), tuple(refused)


def _out_of_bounds(bounds: Overridable, asked: Asked) -> str | None:
    for name, value, shortest, longest in (
        ("TTFT", asked.ttft_slo_seconds, bounds.shortest_ttft_seconds, bounds.longest_ttft_seconds),
        ("TPOT", asked.tpot_slo_seconds, bounds.shortest_tpot_seconds, bounds.longest_tpot_seconds),
    ):
        if value is not None and not shortest <= value <= longest:
            return f"{name} of {value:g} s is not between {shortest:g} s and {longest:g} s"
    return None
