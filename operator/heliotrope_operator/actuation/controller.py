"""Makes the replicas of one scale target what is wanted of them, or gives back what was taken."""

import asyncio
import logging
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope_operator.actuation.authority import UNGOVERNED, authority
from heliotrope_operator.actuation.decide import Scaler, conflicted, decide
from heliotrope_operator.actuation.fields import MAX_REPLICA_COUNT, MAX_REPLICAS, REPLICAS, Field, Fields, Found
from heliotrope_operator.actuation.held import HeldTargets
from heliotrope_operator.actuation.metrics import ActuationMetrics
from heliotrope_operator.actuation.outcome import Conflict, ConflictReason, Outcome, Reason
from heliotrope_operator.actuation.refusals import forbidden, refused
from heliotrope_operator.actuation.reversals import LIMIT, Reversals
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import Transition
from heliotrope_operator.errors import ApiError, ConflictError, ForbiddenError, NotFoundError, UnavailableError
from heliotrope_operator.kinds.autoscalers import KEDA_DEFAULT_MOST, Autoscaler
from heliotrope_operator.kinds.targets import (
    ALL_ACTUATIONS,
    ScaleTarget,
    actuated_target,
    actuation_key,
)
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import RESOURCES, Key, Kind, ResourceType
from heliotrope_operator.scales import Scales
from heliotrope_operator.tables import Tables

_log = logging.getLogger(__name__)

SWEEP_S = 600.0
"""Time between looks at every target, whether anything has changed or not."""
RETRY_S = 60.0
"""Time before something is tried again that a person has to allow first."""
LLMD_MANAGERS = frozenset({"workload-variant-autoscaler", "llm-d-workload-variant-autoscaler", "llm-d-autoscaler"})
"""Field managers under which llm-d's autoscaler sets `/scale`."""

_CEILINGS = {Kind.HORIZONTAL_POD_AUTOSCALER: MAX_REPLICAS, Kind.SCALED_OBJECT: MAX_REPLICA_COUNT}
_SCALERS = (*_CEILINGS, Kind.VARIANT_AUTOSCALING)


@dataclass(frozen=True, slots=True)
class _Confirmed:
    """A field that was found, or made, as it should be."""

    because: Hashable
    field: Field
    value: int


class ActuationController:
    """One target at a time; whichever variants want it, and whatever else scales it."""

    def __init__(
        self,
        cluster: Cluster,
        fields: Fields,
        scales: Scales,
        tables: Tables,
        held: HeldTargets,
        recorder: Recorder,
        metrics: ActuationMetrics,
        *,
        operator: str,
        enqueue: Callable[[Iterable[Key]], None],
    ) -> None:
        """`operator` is the namespace of this operator: what another one holds is left alone."""
        self._cluster = cluster
        self._fields = fields
        self._scales = scales
        self._tables = tables
        self._held = held
        self._recorder = recorder
        self._metrics = metrics
        self._operator = operator
        self._enqueue = enqueue
        self._reversals = Reversals()
        self._annotations: dict[Field, str] = {}
        """Originals of what is held, should somebody remove the annotation."""
        self._confirmed: dict[ScaleTarget, _Confirmed] = {}

    def on_target(self, resource: ResourceType, change: str | None, document: Mapping[str, Any]) -> set[Key]:
        """Take in an event of a kind that variants scale; returns what has to look again."""
        metadata = document["metadata"]
        target = ScaleTarget(metadata["namespace"], resource.group, resource.kind, metadata["name"])
        wanted = bool(self._cluster.variants.by("target", target))
        there = None if change == "DELETED" else document
        return {actuation_key(target)} if self._held.observe(target, resource, there, wanted=wanted) else set()

    async def reconcile(self, key: Key) -> float | None:
        """Do what has to be done for one target; see `Controller`."""
        if key == ALL_ACTUATIONS:
            self._confirmed.clear()
            self._enqueue(self._all())
            return SWEEP_S
        target = actuated_target(key)
        owner = self._cluster.owner(target)
        if owner is None:
            self._confirmed.pop(target, None)
            if self._unreadable_owner(target) or await self._give_back_all(target, keep=None):
                return None
            return RETRY_S
        variant = Key(Kind.WORKLOAD_VARIANT, target.namespace, owner.metadata.name)
        outcome, again_s = await self._actuate(variant, owner, target)
        self._tell(variant, outcome)
        return again_s

    def _all(self) -> set[Key]:
        targets = {*self._held, *cast("list[ScaleTarget]", self._cluster.variants.distinct("target"))}
        for kind in _CEILINGS:
            targets |= {each.target for each in self._cluster.table(kind).values() if each.original is not None}
        return {actuation_key(target) for target in targets}

    def _unreadable_owner(self, target: ScaleTarget) -> bool:
        """Whether a variant that this version cannot read may be the one that scales the target."""
        return any(
            key.kind is Kind.WORKLOAD_VARIANT and key.namespace == target.namespace for key in self._cluster.unreadable
        )

    def _tell(self, variant: Key, outcome: Outcome | None) -> None:
        outcomes = self._tables.outcomes
        if variant not in outcomes or outcomes[variant] != outcome:
            outcomes[variant] = outcome
            if outcome is not None and outcome.conflict is not None:
                self._metrics.conflicts.labels(outcome.conflict.reason.value).inc()
            self._enqueue([variant])

    async def _actuate(
        self, variant: Key, owner: WorkloadVariant, target: ScaleTarget
    ) -> tuple[Outcome | None, float | None]:
        """What became of the newest decision, and the seconds after which to look again."""
        allowed = authority(self._cluster, variant)
        wanted = None if allowed is UNGOVERNED else self._tables.wanted.get(variant)
        decision = decide(variant, target, allowed, wanted, self._scalers(target))
        given_back = decision.keep_all or await self._give_back_all(target, keep=decision.hold)
        if decision.hold is None or decision.replicas is None or wanted is None:
            return decision.outcome, None if given_back else RETRY_S
        because = self._because(decision.hold, decision.replicas, owner, target)
        known = self._confirmed.get(target)
        if known is not None and known.because == because:
            return _done(known.field, known.value, decision.replicas, wanted.message), None
        field = await self._field(decision.hold, owner, target)
        if field is None:
            message = f"{target} cannot be scaled: TargetResolved says why"
            return Outcome(Reason.TARGET_NOT_FOUND, message, decision.replicas), RETRY_S
        try:
            outcome, again_s, value = await self._move(variant, owner, field, decision.replicas, wanted.message)
        except (ConflictError, UnavailableError, NotFoundError):
            raise
        except ForbiddenError as error:
            self._metrics.actions.labels(field.action, "forbidden").inc()
            return forbidden(field, error, decision.replicas), RETRY_S
        except ApiError as error:
            self._metrics.actions.labels(field.action, "refused").inc()
            return refused(field, error, decision.replicas), RETRY_S
        if value is not None and because is not None:
            self._confirmed[target] = _Confirmed(because, field, value)
        return outcome, again_s

    def _because(self, held: Key, replicas: int, owner: WorkloadVariant, target: ScaleTarget) -> Hashable | None:
        """Everything that what was found depends on, as watches tell; None where they tell nothing.

        While it is the same, looking again would find the same.
        """
        watched = self._cluster.table(held.kind).get(held) if held.kind in _CEILINGS else self._held.seen(target)
        return None if watched is None else (held, replicas, owner.metadata.uid, owner.metadata.generation, watched)

    async def _move(
        self, variant: Key, owner: WorkloadVariant, field: Field, desired: int, why: str
    ) -> tuple[Outcome, float | None, int | None]:
        """Make a field so, unless it is so or somebody else decides on it.

        Returns:
            What became of it, the seconds after which to look again, and the value if the field has it now.
        """
        found = await self._fields.find(field)
        if found is None:
            return Outcome(Reason.TARGET_NOT_FOUND, f"{field.resource.kind} {field.name} is gone", desired), None, None
        if (conflict := self._conflict(field, found)) is not None:
            return conflicted(conflict, desired), RETRY_S, None
        value = desired if field.scaled else _ceiling(desired, found)
        now_s = asyncio.get_running_loop().time()
        blocked_s = self._reversals.blocked_s(
            field, since=(owner.metadata.uid, owner.metadata.generation), in_force=found.ours, now_s=now_s
        )
        if found.value != value and blocked_s > 0:
            return conflicted(self._reverted(field, found, value), desired), blocked_s, None
        if found.value != value or (found.ours and found.annotation is None):
            await self._write(variant, owner, field, found, value, why)
        return _done(field, value, desired, why), None, value

    async def _write(
        self, variant: Key, owner: WorkloadVariant, field: Field, found: Found, value: int, why: str
    ) -> None:
        remembered = self._annotations.get(field)
        taken = await self._fields.take(field, found, value, variant=variant.name, remembered=remembered)
        self._reversals.written(field)
        if taken.annotation is not None:
            self._annotations[field] = taken.annotation
        if field.scaled:
            self._held.put(field.target, field.resource)
        self._metrics.actions.labels(field.action, "success").inc()
        message = f"{field} from {_shown(found.value)} to {value}" + (f": {why}" if why else "")
        _log.info("%s: %s", variant, message)
        reason = "Rescaled" if field.scaled else "CeilingMoved"
        await self._recorder.record(variant, owner.metadata, Transition(False, reason, message[:1_000]))

    def _conflict(self, field: Field, found: Found) -> Conflict | None:
        original = found.original
        if original is not None and original.operator != self._operator:
            message = (
                f"the operator of namespace {original.operator} holds {field}: remove one of the two; if it is gone, "
                f"`heliotrope restore --operator-namespace {original.operator}` gives the field back"
            )
            return Conflict(ConflictReason.OTHER_INSTALLATION, message)
        llmd = next((each.manager for each in found.others if each.manager in LLMD_MANAGERS), None)
        if llmd is not None and not found.ours:
            message = f"{llmd} sets {field}: remove the target from llm-d's autoscaler, or use MetricsOnly"
            return Conflict(ConflictReason.LLMD_AUTOSCALER, message)
        return None

    def _reverted(self, field: Field, found: Found, value: int) -> Conflict:
        names = ", ".join(sorted({each.manager for each in found.others})) or "somebody"
        message = (
            f"{names} has set {field} from {value} back to {_shown(found.value)} {self._reversals.count(field)} times "
            f"(limit {LIMIT}): have it leave the field alone; it is tried every 10 min, and when the variant changes"
        )
        return Conflict(ConflictReason.VALUE_REVERTED, message)

    async def _give_back_all(self, target: ScaleTarget, *, keep: Key | None) -> bool:
        """Give back every field of a target that is held, but for one; False if a right is missing for one of them."""
        fields = [
            Field(RESOURCES[key.kind], key.namespace, key.name, _CEILINGS[key.kind])
            for key, scaler in self._scalers(target)
            if scaler.original is not None and key != keep
        ]
        resource = self._held.get(target)
        if resource is not None and (keep is None or keep.kind is not Kind.WORKLOAD_VARIANT):
            fields.append(Field(resource, target.namespace, target.name, REPLICAS))
        allowed = True
        for field in fields:
            try:
                await self._give_back(field, target)
            except ForbiddenError as error:
                allowed = False
                self._metrics.actions.labels("restore", "forbidden").inc()
                _log.warning("%s is not given back: %s", field, forbidden(field, error, None).message)
        return allowed

    async def _give_back(self, field: Field, target: ScaleTarget) -> None:
        found = await self._fields.find(field)
        if found is not None and found.original is not None and found.original.operator != self._operator:
            return
        if found is not None and await self._fields.give_back(field, found):
            original = found.original
            self._metrics.actions.labels("restore", "success").inc()
            message = f"{field} is given back" + ("" if original is None else f" at {_shown(original.value)}")
            _log.info("%s", message)
            if original is not None:
                variant = Key(Kind.WORKLOAD_VARIANT, field.namespace, original.variant)
                if (known := self._cluster.variants.get(variant)) is not None:
                    await self._recorder.record(variant, known.metadata, Transition(False, "Restored", message))
        self._annotations.pop(field, None)
        self._confirmed.pop(target, None)
        self._reversals.forget(field)
        if field.scaled:
            self._held.drop(target)

    def _scalers(self, target: ScaleTarget) -> list[Scaler]:
        found: list[Scaler] = []
        for kind in _SCALERS:
            table = self._cluster.table(kind)
            for key in sorted(table.by("target", target)):
                scaler: Autoscaler | None = table.get(key)
                if scaler is not None:
                    found.append((key, scaler))
        return found

    async def _field(self, held: Key, owner: WorkloadVariant, target: ScaleTarget) -> Field | None:
        """Where the field is; None if the target's kind is not served or has no `/scale`."""
        if held.kind in _CEILINGS:
            return Field(RESOURCES[held.kind], held.namespace, held.name, _CEILINGS[held.kind])
        ref = owner.spec.scale_target_ref
        resource = None if ref is None else (await self._scales.find(ref)).resource
        return None if resource is None else Field(resource, target.namespace, target.name, REPLICAS)


def _ceiling(desired: int, found: Found) -> int:
    """The ceiling for a number of replicas: not below the autoscaler's own least, not above what its user allows."""
    original = found.original
    allowed = original.value if found.ours and original is not None else found.value
    return max(min(desired, KEDA_DEFAULT_MOST if allowed is None else allowed), found.least)


def _done(field: Field, value: int, desired: int, why: str) -> Outcome:
    tail = f": {why}" if why else ""
    if field.scaled:
        return Outcome(Reason.SCALED, f"{field} is {value}{tail}", desired)
    bound = "" if value == desired else f" (wanted {desired}; its own bounds hold)"
    return Outcome(Reason.CEILING_SET, f"{field} is {value}{bound}{tail}", desired)


def _shown(value: int | None) -> str:
    return "unset" if value is None else str(value)
