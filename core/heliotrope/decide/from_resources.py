"""Custom resources as decisions use them: checked, frozen, in SI units."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from math import inf

from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1 import objective as api
from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicyStatus
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.controls import DemandResponse
from heliotrope.api.v1alpha1.engine import Engine
from heliotrope.api.v1alpha1.models import Models
from heliotrope.api.v1alpha1.objective import KvAction as ApiKvAction
from heliotrope.api.v1alpha1.objective import KvActions, SessionGate, Slo, Tolerances, Weights
from heliotrope.api.v1alpha1.requests import Overrides, RequestClass
from heliotrope.cache.action import KvAction
from heliotrope.cache.rules import KvRules
from heliotrope.cache.session_rules import SessionMode, SessionRules
from heliotrope.decide.candidates import Embodied, Hardware
from heliotrope.decide.policy import (
    Comparison,
    DecisionPolicy,
    DemandEvent,
    Objective,
    Overridable,
    Override,
    PowerLimit,
    ServiceClass,
    Term,
)
from heliotrope.decide.quality import NAN, Group, Level, Lower, Member, ModelRules, Predictor
from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError
from heliotrope.predict.reasoning import Effort


def decision_policy(policy: CarbonPolicy) -> DecisionPolicy:
    """The settings of a CarbonPolicy that single decisions follow; its name is `namespace/name`."""
    spec, response = policy.spec, policy.spec.demand_response
    regions, headroom = spec.placement.allowed_regions, spec.power_headroom
    comparison = _comparison(spec.objective)
    return DecisionPolicy(
        name=f"{policy.metadata.namespace or 'default'}/{policy.metadata.name}",
        objective=comparison.objective,
        order=comparison.order,
        tolerances=comparison.tolerances,
        weights=comparison.weights,
        soft_weight=comparison.soft_weight,
        score_tolerance=comparison.score_tolerance,
        choices=comparison.choices,
        ttft_slo_seconds=spec.slo.ttft.total_seconds(),
        tpot_slo_seconds=spec.slo.tpot.total_seconds(),
        quality_floor=spec.quality_floor,
        allowed_regions=None if regions is None else frozenset(regions),
        include_embodied=spec.accounting_boundary.embodied,
        include_water=spec.accounting_boundary.water,
        enforce=spec.enforcement is Enforcement.ENFORCE,
        holdout_percent=spec.holdout_percent,
        holdout_seed=spec.holdout_seed,
        kv=_kv_rules(spec.kv_actions),
        sessions=_sessions(spec.placement.session_gate),
        largest_region_share=spec.placement.largest_region_share_percent / 100.0,
        power=None
        if headroom is None
        else PowerLimit(least_watts=float(headroom.least_watts), avoid_throttled=headroom.avoid_throttled),
        classes=tuple(_service_class(each) for each in spec.classes),
        events=() if response is None else _events(response, policy.status),
        event_comparison=None if response is None else _event_comparison(response, comparison),
        overrides=_overridable(spec.overrides),
        models=None if spec.models is None or not spec.models.enabled else _model_rules(spec.models),
        revision=revision(policy),
    )


def revision(policy: CarbonPolicy) -> str:
    """Tells versions of a policy apart: its generation, or a digest of its spec where files give it none."""
    if policy.metadata.generation is not None:
        return f"generation {policy.metadata.generation}"
    text = policy.spec.model_dump_json(by_alias=True, exclude_none=True)
    return f"digest {blake2b(text.encode(), digest_size=6).hexdigest()}"


def _comparison(objective: api.Objective) -> Comparison:
    return Comparison(
        objective=Objective(objective.mode.value),
        order=tuple(Term(term.value) for term in objective.order),
        tolerances=_tolerances(objective.tolerances_percent),
        weights=_weights(objective.weights),
        soft_weight=objective.soft_multiplier_weight,
        score_tolerance=objective.score_tolerance_percent / 100.0,
        choices=objective.choices,
    )


def _service_class(each: RequestClass) -> ServiceClass:
    slo: Slo | None = each.slo
    return ServiceClass(
        name=each.name,
        inference_objectives=frozenset(each.inference_objectives),
        lowest_priority=each.min_priority,
        highest_priority=each.max_priority,
        ttft_slo_seconds=None if slo is None else slo.ttft.total_seconds(),
        tpot_slo_seconds=None if slo is None else slo.tpot.total_seconds(),
        comparison=None if each.objective is None else _comparison(each.objective),
        answers_demand=each.answers_demand,
    )


def _events(response: DemandResponse, status: CarbonPolicyStatus | None) -> tuple[DemandEvent, ...]:
    """The policy's own events, from the start of their ramp, as power has to be down when they begin.

    Those of a source (`prometheus`, `http`) are the operator's to ask for; it says in the status which one is answered.
    """
    if response.events is None:
        answered = None if status is None else status.demand_response
        if answered is None:
            return ()
        end = inf if answered.end is None else answered.end.timestamp()
        return (DemandEvent(answered.event, answered.since.timestamp(), end),)
    ramp_seconds = response.ramp_in.total_seconds()
    events = (
        DemandEvent(event.name, event.start.timestamp() - ramp_seconds, event.end.timestamp())
        for event in response.events
    )
    return tuple(sorted(events, key=lambda event: (event.start_unix_s, event.name)))


def _event_comparison(response: DemandResponse, usual: Comparison) -> Comparison | None:
    if response.objective is not None:
        return _comparison(response.objective)
    if response.weights is not None:
        return replace(usual, objective=Objective.WEIGHTED, weights=_weights(response.weights))
    return None


def _overridable(overrides: Overrides) -> Overridable:
    return Overridable(
        allowed=frozenset(Override(each.value.lower()) for each in overrides.allowed),
        shortest_ttft_seconds=overrides.shortest_ttft.total_seconds(),
        longest_ttft_seconds=overrides.longest_ttft.total_seconds(),
        shortest_tpot_seconds=overrides.shortest_tpot.total_seconds(),
        longest_tpot_seconds=overrides.longest_tpot.total_seconds(),
    )


def _model_rules(models: Models) -> ModelRules:
    groups = {}
    for group in models.groups:
        members = tuple(
            Member(
                model=each.model,
                served_by=each.served_by or each.model,
                quality=NAN if each.quality is None else each.quality,
                by_task={entry.task: entry.quality for entry in each.quality_by_task},
                levels=tuple(
                    Level(Effort[level.effort.name], level.output_tokens_percent / 100.0, level.quality_percent / 100.0)
                    for level in each.efforts
                ),
            )
            for each in group.members
        )
        groups[group.name] = Group(group.name, members)
    return ModelRules(
        groups=groups,
        floor=models.quality_floor,
        predictor=Predictor(models.predictor.value.lower()),
        classes=frozenset(models.classes),
        lower=Lower(models.reasoning.lower.value.lower()),
        lowest=Effort[models.reasoning.lowest.name],
    )


def engine_model(variant: WorkloadVariant, profiles: Mapping[str, EngineModel]) -> EngineModel | None:
    """The step model that a variant names or spells out; None where it says nothing.

    Args:
        variant: the variant.
        profiles: the shipped profiles by name.

    Raises:
        UnknownProfileError: if the named profile does not ship.
    """
    engine = variant.spec.engine
    if engine is None:
        return None
    model = _profile_or_coefficients(variant, engine, profiles)
    return replace(
        model,
        max_num_seqs=engine.max_num_seqs or model.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens or model.max_num_batched_tokens,
    )


def _profile_or_coefficients(
    variant: WorkloadVariant, engine: Engine, profiles: Mapping[str, EngineModel]
) -> EngineModel:
    spec = variant.spec
    if engine.profile is not None:
        model = profiles.get(engine.profile)
        if model is None:
            raise UnknownProfileError(
                "spec.engine.profile",
                f"no engine profile {engine.profile!r}; shipped are {', '.join(sorted(profiles))}",
            )
        return model
    assert engine.coefficients is not None, "the API type allows exactly one of profile and coefficients"
    return EngineModel.from_mapping(
        {
            "name": f"{variant.metadata.namespace or 'default'}/{variant.metadata.name}",
            "model": spec.model,
            "accelerator": spec.accelerator.type,
            "tensor_parallel": spec.accelerator.count,
            **engine.coefficients.model_dump(),
        }
    )


def embodied(variant: WorkloadVariant) -> Embodied | None:
    """The manufacturing emissions of one replica, None where the variant does not state them."""
    carbon = variant.spec.embodied_carbon
    if carbon is None:
        return None
    return Embodied(grams_co2e=float(carbon.grams_co2e), lifetime_seconds=carbon.lifetime.total_seconds())


def power_limit_watts(variant: WorkloadVariant) -> float | None:
    """What the accelerators of one replica may draw together; None where the variant does not state it.

    It is the limit chosen for them, unless it is mere advice, else the highest that may be set.
    """
    spec, status = variant.spec, variant.status
    chosen = () if status is None else status.chosen_power
    acting = (each.watts for each in chosen if each.enforcement is not Enforcement.ADVISE)
    watts = max((each for each in acting if each is not None), default=None)
    if watts is None and spec.watt_range is not None:
        watts = spec.watt_range.max_watts
    return None if watts is None else float(watts * spec.accelerator.count)


def hardware(variant: WorkloadVariant) -> Hardware:
    """What one replica of a variant runs on."""
    spec = variant.spec
    return Hardware(
        accelerator=spec.accelerator.type,
        accelerators=spec.accelerator.count,
        model=spec.model,
        role=spec.role.value,
    )


def _sessions(gate: SessionGate) -> SessionRules:
    return SessionRules(SessionMode(gate.mode.value), gate.forget_after.total_seconds())


def _kv_rules(actions: KvActions) -> KvRules:
    """`Retain` is no plan of a request: without it nothing is held between turns."""
    retains = ApiKvAction.RETAIN in actions.allowed
    return KvRules(
        allowed=frozenset(KvAction(action.value) for action in actions.allowed if action is not ApiKvAction.RETAIN),
        memory_pressure_joules=actions.memory_pressure_weight,
        longest_retention_seconds=actions.longest_retention.total_seconds() if retains else 0.0,
    )


def _tolerances(percent: Tolerances) -> Mapping[Term, float]:
    return {
        Term.CARBON: percent.carbon / 100.0,
        Term.ENERGY: percent.energy / 100.0,
        Term.COST: percent.cost / 100.0,
        Term.LATENCY: percent.latency / 100.0,
        Term.RISK: percent.risk / 100.0,
    }


def _weights(weights: Weights) -> Mapping[Term, float]:
    return {
        Term.CARBON: weights.carbon,
        Term.ENERGY: weights.energy,
        Term.COST: weights.cost,
        Term.LATENCY: weights.latency,
        Term.RISK: weights.risk,
    }
