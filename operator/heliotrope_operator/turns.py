"""When clocks of a variant last changed, and what waits for that: clock and replica changes take turns."""

from heliotrope.api.v1alpha1 import WorkloadVariant
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.api.v1alpha1.workloadvariant import ChosenPower
from heliotrope.power.turns import NEVER, SETTLE_SECONDS, Recent, Turn, may_remove_replicas


def chosen_power(variant: WorkloadVariant) -> ChosenPower | None:
    """What was chosen last for a variant; None if nothing was."""
    chosen = () if variant.status is None else variant.status.chosen_power
    return next((each for each in chosen if each.role is variant.spec.role), None)


def clocks_settle(variant: WorkloadVariant, now_unix_s: float, settles_s: float = SETTLE_SECONDS) -> bool:
    """Whether clocks of a variant changed so lately that none of its replicas should be taken away.

    Advice changes no clock. Adding replicas never asks. `settles_s` is as `heliotrope.power.turns.settle_seconds` says.
    """
    chosen = chosen_power(variant)
    acts = chosen is not None and chosen.enforcement is not Enforcement.ADVISE
    changed = chosen.since.timestamp() if acts and chosen is not None and chosen.since is not None else NEVER
    turn = may_remove_replicas(Recent(changed), now_unix_s, dwell_seconds=0.0, settle_seconds=settles_s)
    return turn is Turn.OTHERS_TURN
