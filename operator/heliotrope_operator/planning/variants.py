"""What is known of a WorkloadVariant and its pods, as allocation takes it."""

from collections.abc import Mapping, Sequence

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.common import ConditionStatus
from heliotrope.scale.facts import (
    Direction,
    Load,
    ReplicaCounts,
    ScalingState,
    VariantFacts,
)
from heliotrope.units import hours_from_seconds
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.places import region_of
from heliotrope_operator.planning.observed import EngineRates
from heliotrope_operator.resources import Key

DRAIN_SECONDS = 60.0


def variant_facts(
    cluster: Cluster,
    key: Key,
    variant: WorkloadVariant,
    *,
    group: str,
    wanted: int | None,
    pods: Sequence[tuple[Key, Pod]],
    engines: Mapping[str, EngineRates],
    start_seconds: float,
    granted: bool,
    state: ScalingState | None,
    now_unix_s: float,
) -> VariantFacts:
    """One variant, its capacity and a hub's ceiling left open.

    Args:
        cluster: where its nodes and rivals are known.
        key: the variant's.
        variant: itself.
        group: whose demand it carries.
        wanted: `spec.replicas` of its target; None: unknown.
        pods: that it selects.
        engines: what pickers say of them, by pod.
        start_seconds: how long a replica takes to serve.
        granted: whether its namespace may be scaled; advice counts as granted, it changes nothing.
        state: what the last decision remembers; None: its status knows.
        now_unix_s: this moment.
    """
    spec = variant.spec
    leaders = [(pod_key.name, pod) for pod_key, pod in pods if pod.leads]
    return VariantFacts(
        name=f"{key.namespace}/{key.name}",
        group=group,
        region=region_of(cluster, variant, [pod for _, pod in leaders]),
        role=spec.role,
        accelerator_type=spec.accelerator.type,
        accelerators_per_replica=spec.accelerator.count,
        min_replicas=spec.min_replicas,
        max_replicas=spec.max_replicas,
        replicas=_counts(wanted, leaders, engines, start_seconds, now_unix_s),
        capacity=None,
        load=_load([engines.get(name) for name, pod in leaders if _awake(pod, engines.get(name))]),
        price_per_hour=spec.price_per_hour,
        currency=spec.currency,
        embodied_grams_per_hour=_embodied(variant),
        quality=spec.quality,
        start_seconds=start_seconds,
        drain_seconds=DRAIN_SECONDS,
        managed=granted and spec.scale_target_ref is not None and not _conflicted(variant),
        state=scaling_state(variant) if state is None else state,
    )


def scaling_state(variant: WorkloadVariant) -> ScalingState:
    """What the status remembers of earlier decisions."""
    known = None if variant.status is None else variant.status.scaling
    if known is None:
        return ScalingState()
    return ScalingState(
        last_change_unix_s=None if known.last_change is None else known.last_change.timestamp(),
        last_direction=None if known.last_direction is None else Direction(known.last_direction.value),
        lower_since_unix_s=None if known.lower_since is None else known.lower_since.timestamp(),
        lower_peak=known.lower_peak,
    )


def _counts(
    wanted: int | None,
    leaders: Sequence[tuple[str, Pod]],
    engines: Mapping[str, EngineRates],
    start_seconds: float,
    now_unix_s: float,
) -> ReplicaCounts | None:
    if wanted is None:
        return None
    serving = sum(_awake(pod, engines.get(name)) for name, pod in leaders)
    present = [pod for _, pod in leaders if not pod.terminating]
    starting = [pod for pod in present if pod.starts]
    ready_in = sorted(max(pod.created_unix_s + start_seconds - now_unix_s, 0.0) for pod in starting)
    return ReplicaCounts(
        wanted=wanted,
        serving=min(serving, wanted),
        starting=max(wanted - sum(pod.serves for pod in present), 0),
        draining=sum(pod.terminating for _, pod in leaders) + max(len(present) - wanted, 0),
        starting_ready_seconds=tuple(ready_in[: max(wanted - serving, 0)]),
    )


def _awake(pod: Pod, engine: EngineRates | None) -> bool:
    return pod.serves and not (engine is not None and engine.asleep is True)


def _load(engines: Sequence[EngineRates | None]) -> Load:
    """Of the engines that serve; None as soon as one of them is unknown."""
    known = [each for each in engines if each is not None]
    if len(known) < len(engines) or not engines:
        return Load()
    kv = [each.kv_usage for each in known]
    return Load(
        requests_per_second=_sum([each.requests_per_second for each in known]),
        waiting_requests=_sum([each.waiting for each in known]),
        running_requests=_sum([each.running for each in known]),
        kv_usage=None if (total := _sum(kv)) is None else total / len(known),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _embodied(variant: WorkloadVariant) -> float | None:
    carbon = variant.spec.embodied_carbon
    return None if carbon is None else carbon.grams_co2e / hours_from_seconds(carbon.lifetime.total_seconds())


def _conflicted(variant: WorkloadVariant) -> bool:
    conditions = () if variant.status is None else variant.status.conditions
    return any(
        each.type == ConditionType.CONFLICTED.value and each.status is ConditionStatus.TRUE for each in conditions
    )
