"""Custom resources as decisions use them: checked, frozen, in SI units."""

from collections.abc import Mapping
from dataclasses import replace

from heliotrope.api.v1alpha1 import CarbonPolicy, WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.engine import Engine
from heliotrope.api.v1alpha1.objective import Tolerances, Weights
from heliotrope.decide.candidates import Embodied, Hardware
from heliotrope.decide.policy import DecisionPolicy, Objective, Term
from heliotrope.engine.model import EngineModel
from heliotrope.errors import UnknownProfileError


def decision_policy(policy: CarbonPolicy) -> DecisionPolicy:
    """The settings of a CarbonPolicy that a single decision follows; its name is `namespace/name`.

    The weight of risk has no counterpart: no estimate of risk exists.
    """
    spec, objective = policy.spec, policy.spec.objective
    regions = spec.placement.allowed_regions
    return DecisionPolicy(
        name=f"{policy.metadata.namespace or 'default'}/{policy.metadata.name}",
        objective=Objective(objective.mode.value),
        order=tuple(Term(term.value) for term in objective.order),
        tolerances=_tolerances(objective.tolerances_percent),
        weights=_weights(objective.weights),
        soft_weight=objective.soft_multiplier_weight,
        ttft_slo_seconds=spec.slo.ttft.total_seconds(),
        tpot_slo_seconds=spec.slo.tpot.total_seconds(),
        quality_floor=spec.quality_floor,
        allowed_regions=None if regions is None else frozenset(regions),
        include_embodied=spec.accounting_boundary.embodied,
        include_water=spec.accounting_boundary.water,
        enforce=spec.enforcement is Enforcement.ENFORCE,
        holdout_percent=spec.holdout_percent,
        holdout_seed=spec.holdout_seed,
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


def hardware(variant: WorkloadVariant) -> Hardware:
    """What one replica of a variant runs on."""
    spec = variant.spec
    return Hardware(
        accelerator=spec.accelerator.type,
        accelerators=spec.accelerator.count,
        model=spec.model,
        role=spec.role.value,
    )


def _tolerances(percent: Tolerances) -> Mapping[Term, float]:
    return {
        Term.CARBON: percent.carbon / 100.0,
        Term.ENERGY: percent.energy / 100.0,
        Term.COST: percent.cost / 100.0,
        Term.LATENCY: percent.latency / 100.0,
    }


def _weights(weights: Weights) -> Mapping[Term, float]:
    return {
        Term.CARBON: weights.carbon,
        Term.ENERGY: weights.energy,
        Term.COST: weights.cost,
        Term.LATENCY: weights.latency,
    }
