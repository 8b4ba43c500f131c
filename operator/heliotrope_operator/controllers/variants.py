"""WorkloadVariant: whether what it scales and where it runs exist, and how many replicas there are."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.common import ConditionStatus, ScaleTargetRef
from heliotrope.api.v1alpha1.workloadvariant import ScaleDirection, ScalingMemory, WorkloadVariantStatus
from heliotrope.scale.facts import ScalingState
from heliotrope_operator.actuation.outcome import Outcome, Reason
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.controllers.unreadable import report
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.kinds.targets import scale_target
from heliotrope_operator.lookup import Lookup
from heliotrope_operator.resources import SCALE_TARGETS, Key
from heliotrope_operator.scales import Scale, ScaleProblem, Scales
from heliotrope_operator.tables import Tables
from heliotrope_operator.writer import Writer

_WATCHED = {(each.api_version, each.kind) for each in SCALE_TARGETS}


@dataclass(frozen=True, slots=True)
class VariantFacts:
    """What a variant's status depends on beside the variant."""

    scale: Scale | None
    """None: the variant names no target."""
    owner: str | None
    """Name of the variant that may scale the target."""
    region_exists: bool
    looked: bool = False
    """Whether it is known what became of decisions about its replicas; not so in the first seconds after a start."""
    outcome: Outcome | None = None
    """That; None if no policy asks for any."""
    memory: ScalingState | None = None
    """What the last decision remembers for the next; None: nothing was decided since a start, and the status knows."""


class VariantController:
    """Reads the target's `/scale` and writes what it found."""

    def __init__(
        self,
        cluster: Cluster,
        lookup: Lookup,
        scales: Scales,
        writer: Writer,
        *,
        poll_s: float,
        unix_clock: Callable[[], float],
        tables: Tables | None = None,
    ) -> None:
        """Controller of the kind.

        Args:
            cluster: what is known.
            lookup: reads what seems to be missing.
            scales: reads `/scale`.
            writer: writes the status.
            poll_s: time between reads of targets whose kind is not watched, or is missing.
            unix_clock: wall clock in Unix seconds.
            tables: `scales` is written; `outcomes` and `scaling` say what became of decisions on replicas; None: none
                are made.
        """
        self._cluster = cluster
        self._lookup = lookup
        self._scales = scales
        self._writer = writer
        self._poll_s = poll_s
        self._unix_clock = unix_clock
        self._tables = tables

    async def reconcile(self, key: Key) -> float | None:
        """Bring the status up to date; see `RegionController.reconcile`."""
        variant = self._cluster.variants.get(key)
        if variant is None:
            unreadable = self._cluster.unreadable.get(key)
            if unreadable is not None:
                return await report(self._writer, key, unreadable, ConditionType.TARGET_RESOLVED, self._now())
            self._writer.forget(key)
            if self._tables is not None:
                self._tables.outcomes.pop(key, None)
                self._tables.scales.pop(key, None)
            return None
        ref = variant.spec.scale_target_ref
        scale = None if ref is None else await self._scales.read(key.namespace, ref)
        if self._tables is not None:
            self._tables.scales[key] = scale or Scale()
        if variant.spec.region_ref is not None:
            await self._lookup.confirm([region_key(variant.spec.region_ref.name)])
        variant = self._cluster.variants.get(key) or variant  # reading may have taken a while
        if variant.spec.scale_target_ref != ref:
            return 0.0
        status = variant_status(variant, self._facts(key, variant, scale), self._now())
        await self._writer.status(
            key,
            variant.metadata,
            variant.status,
            status,
            transitions(() if variant.status is None else variant.status.conditions, status.conditions),
        )
        if ref is None or scale is None:
            return None
        polled = (ref.api_version, ref.kind) not in _WATCHED or scale.problem in _ADMINISTRATORS
        return self._poll_s if polled else None

    def _facts(self, key: Key, variant: WorkloadVariant, scale: Scale | None) -> VariantFacts:
        target = scale_target(key, variant)
        owner = None if target is None else self._cluster.owner(target)
        region = variant.spec.region_ref
        scaled = self._tables is not None and owner is not None and owner.metadata.name == key.name
        outcomes = self._tables.outcomes if self._tables is not None and scaled else {key: None}
        return VariantFacts(
            scale=scale,
            owner=None if owner is None else owner.metadata.name,
            region_exists=region is not None and self._cluster.regions.get(region_key(region.name)) is not None,
            looked=key in outcomes,
            outcome=outcomes.get(key),
            memory=None if self._tables is None else self._tables.scaling.get(key),
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(int(self._unix_clock()), UTC)


_ADMINISTRATORS = frozenset({ScaleProblem.KIND_NOT_FOUND, ScaleProblem.NOT_SCALABLE, ScaleProblem.NOT_PERMITTED})
"""Problems that an administrator solves, of which no watch tells."""


def variant_status(variant: WorkloadVariant, facts: VariantFacts, now: datetime) -> WorkloadVariantStatus:
    """The status of a variant. What other controllers decided about it stays."""
    previous = variant.status or WorkloadVariantStatus()
    generation = variant.metadata.generation
    findings = []
    ref, region = variant.spec.scale_target_ref, variant.spec.region_ref
    if ref is not None and facts.scale is not None:
        findings.append(_target_resolved(variant, ref, facts.scale))
        findings.append(_conflicted(variant, ref, facts))
        findings += _scaled(previous, facts)
    if region is not None:
        findings.append(_region_resolved(region.name, exists=facts.region_exists))
    return previous.model_copy(
        update={
            "observed_generation": generation,
            "conditions": settle(previous.conditions, findings, generation, now),
            "current_replicas": None if facts.scale is None else facts.scale.replicas,
            "desired_replicas": _desired(previous, facts),
            "scaling": previous.scaling if facts.memory is None else _memory(facts.memory),
        }
    )


def _target_resolved(variant: WorkloadVariant, ref: ScaleTargetRef, scale: Scale) -> Finding:
    kind = ConditionType.TARGET_RESOLVED
    namespace = variant.metadata.namespace
    match scale.problem:
        case None:
            return Finding(kind, ConditionStatus.TRUE, "TargetResolved", f"{_named(ref)} can be scaled")
        case ScaleProblem.KIND_NOT_FOUND:
            message = f"this cluster has no {ref.kind} of {ref.api_version}"
        case ScaleProblem.NOT_SCALABLE:
            message = f"a {ref.kind} of {ref.api_version} cannot be scaled: it has no /scale"
        case ScaleProblem.TARGET_NOT_FOUND:
            message = f"there is no {_named(ref)} in namespace {namespace}"
        case ScaleProblem.NOT_PERMITTED:
            message = f"the operator may not read the /scale of {_named(ref)}: allow its service account `get` on it"
    return Finding(kind, ConditionStatus.FALSE, scale.problem.value, message)


def _conflicted(variant: WorkloadVariant, ref: ScaleTargetRef, facts: VariantFacts) -> Finding:
    kind = ConditionType.CONFLICTED
    if facts.owner not in (None, variant.metadata.name):
        message = f"the older WorkloadVariant {facts.owner} scales {_named(ref)} already"
        return Finding(kind, ConditionStatus.TRUE, "TargetTaken", message)
    conflict = None if facts.outcome is None else facts.outcome.conflict
    if conflict is not None:
        return Finding(kind, ConditionStatus.TRUE, conflict.reason.value, conflict.message)
    return Finding(kind, ConditionStatus.FALSE, "NoConflict", f"nothing else is known to decide on {_named(ref)}")


def _scaled(previous: WorkloadVariantStatus, facts: VariantFacts) -> list[Finding]:
    """What became of the newest decision; what was said before while that is not known."""
    kind, outcome = ConditionType.SCALED, facts.outcome
    if outcome is not None:
        return [Finding(kind, outcome.status, outcome.reason.value, outcome.message)]
    if facts.looked:
        return []
    before = (each for each in previous.conditions if each.type == kind.value)
    return [Finding(kind, each.status, each.reason, each.message) for each in before]


def _desired(previous: WorkloadVariantStatus, facts: VariantFacts) -> int | None:
    """The number that is wanted; the one before while nothing has been decided since a start."""
    outcome = facts.outcome
    if not facts.looked or (outcome is not None and outcome.reason is Reason.PENDING and outcome.desired is None):
        return previous.desired_replicas
    return None if outcome is None else outcome.desired


def _memory(state: ScalingState) -> ScalingMemory | None:
    if state == ScalingState():
        return None
    return ScalingMemory(
        last_change=_time(state.last_change_unix_s),
        last_direction=None if state.last_direction is None else ScaleDirection(state.last_direction.value),
        lower_since=_time(state.lower_since_unix_s),
        lower_peak=state.lower_peak,
    )


def _time(unix_s: float | None) -> datetime | None:
    return None if unix_s is None else datetime.fromtimestamp(int(unix_s), UTC)


def _region_resolved(name: str, *, exists: bool) -> Finding:
    kind = ConditionType.REGION_RESOLVED
    if exists:
        return Finding(kind, ConditionStatus.TRUE, "RegionResolved", f"RegionProfile {name} exists")
    return Finding(kind, ConditionStatus.FALSE, "RegionNotFound", f"there is no RegionProfile {name}")


def _named(ref: ScaleTargetRef) -> str:
    return f"{ref.kind} {ref.name}"
