"""Which field of which object has to become what, or why none: a pure function of what is known of one target."""

from collections.abc import Iterable
from dataclasses import dataclass

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.authority import Authority, Verdict
from heliotrope_operator.actuation.outcome import Conflict, ConflictReason, Outcome, Reason
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.kinds.autoscalers import LLMD_MANAGED, Autoscaler
from heliotrope_operator.kinds.targets import ScaleTarget
from heliotrope_operator.resources import Key, Kind

Scaler = tuple[Key, Autoscaler]

_RESOLVE = "see docs/scaling.md"


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with the fields of one target."""

    hold: Key | None = None
    """Object whose field is ours to move: an autoscaler's, or the variant itself for its target's `/scale`.

    The field is left as it is where `replicas` is None. Whatever else of the target is held is given back."""
    replicas: int | None = None
    """What the field should be."""
    keep_all: bool = False
    """Nothing at all is changed, and nothing given back."""
    outcome: Outcome | None = None
    """What the variant's status says; None where that depends on the write, and where nobody asked for anything."""


def decide(
    variant: Key,
    target: ScaleTarget,
    allowed: Authority,
    wanted: Wanted | None,
    scalers: Iterable[Scaler],
) -> Decision:
    """What to do.

    Args:
        variant: key of the variant that may scale the target.
        target: what it scales.
        allowed: whether it may, now.
        wanted: the newest decision; None if nothing was decided.
        scalers: every autoscaler whose scaleTargetRef is the target.
    """
    desired = None if wanted is None else wanted.replicas
    if allowed.verdict is Verdict.RETURN:
        return Decision(outcome=_unchanged(allowed, desired, wanted))
    if allowed.verdict is Verdict.HOLD:
        return Decision(keep_all=True, outcome=_unchanged(allowed, desired, wanted))
    if allowed.mode is Actuation.CEILING:
        return _ceiling(target, desired, wanted, sorted(scalers))
    return _scale(variant, target, desired, wanted, sorted(scalers))


def _scale(
    variant: Key, target: ScaleTarget, desired: int | None, wanted: Wanted | None, scalers: list[Scaler]
) -> Decision:
    foreign = _foreign(target, scalers)
    if foreign is not None:
        return Decision(hold=variant, outcome=conflicted(foreign, desired))
    return _moved(variant, desired, wanted)


def _ceiling(target: ScaleTarget, desired: int | None, wanted: Wanted | None, scalers: list[Scaler]) -> Decision:
    own = [each for each in scalers if each[0].kind is not Kind.VARIANT_AUTOSCALING and each[1].keda is None]
    if len(own) > 1:
        names = " and ".join(_named(key) for key, _ in own)
        message = f"{names} scale {target}: leave one of them, or neither will do what it says"
        several = Conflict(ConflictReason.SEVERAL_AUTOSCALERS, message)
        return Decision(keep_all=True, outcome=conflicted(several, desired))
    if not own:
        of_keda = next((key for key, each in scalers if each.keda is not None), None)
        message = f"actuation is Ceiling and no HorizontalPodAutoscaler or ScaledObject scales {target}"
        if of_keda is not None:
            message = f"{_named(of_keda)} is made by KEDA from a ScaledObject that the operator does not find"
        return Decision(outcome=Outcome(Reason.NO_AUTOSCALER, message, desired))
    key, scaler = own[0]
    if scaler.llmd:
        message = f"llm-d's autoscaler moves {_named(key)}: remove its annotation {LLMD_MANAGED}, or use MetricsOnly"
        return Decision(hold=key, outcome=conflicted(Conflict(ConflictReason.LLMD_AUTOSCALER, message), desired))
    if scaler.paused is not None:
        message = f"{_named(key)} carries {scaler.paused}: its ceiling stays until that annotation goes"
        return Decision(hold=key, outcome=Outcome(Reason.AUTOSCALER_PAUSED, message, desired))
    return _moved(key, desired, wanted)


def _foreign(target: ScaleTarget, scalers: list[Scaler]) -> Conflict | None:
    """Who else writes the target's replicas: what a user made is named before what that made."""
    by_kind = {kind: [each for each in scalers if each[0].kind is kind] for kind in _FOREIGN}
    for kind, reason in _FOREIGN.items():
        for key, scaler in sorted(by_kind[kind], key=lambda each: each[1].keda is not None):
            message = (
                f"{_named(key)} scales {target}: delete it, or let the policy's actuation be Ceiling or MetricsOnly; "
                + _RESOLVE
            )
            return Conflict(ConflictReason.LLMD_AUTOSCALER if scaler.llmd else reason, message)
    return None


_FOREIGN = {
    Kind.SCALED_OBJECT: ConflictReason.SCALED_OBJECT,
    Kind.HORIZONTAL_POD_AUTOSCALER: ConflictReason.HPA,
    Kind.VARIANT_AUTOSCALING: ConflictReason.LLMD_AUTOSCALER,
}


def _moved(held: Key, desired: int | None, wanted: Wanted | None) -> Decision:
    if wanted is None:
        return Decision(hold=held, outcome=Outcome(Reason.PENDING, "nothing was decided since the operator started"))
    if desired is None:
        return Decision(hold=held, outcome=Outcome(Reason.PENDING, wanted.message))
    if not wanted.act:
        message = f"what is wanted was decided before it was allowed to act: {wanted.message}"
        return Decision(hold=held, outcome=Outcome(Reason.PENDING, message, desired))
    return Decision(hold=held, replicas=desired)


def conflicted(conflict: Conflict, desired: int | None) -> Outcome:
    """What a variant's status says while somebody else decides."""
    return Outcome(Reason.CONFLICTED, conflict.message, desired, conflict)


def _unchanged(allowed: Authority, desired: int | None, wanted: Wanted | None) -> Outcome | None:
    if allowed.reason is None:
        return None
    why = "" if wanted is None or not wanted.message else f"; {wanted.message}"
    return Outcome(allowed.reason, allowed.message + why, desired)


def _named(key: Key) -> str:
    return f"{key.kind.value} {key.name}"
