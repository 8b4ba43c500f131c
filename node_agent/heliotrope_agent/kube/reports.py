"""When a status is written: on transitions at once, whatever else changes at most once a minute."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from heliotrope.api.v1alpha1.common import Condition
from heliotrope.api.v1alpha1.nodepower import NodePowerStatus

REFRESH_S = 60.0
BURST = 10
"""Transitions that are written at once; more wait for `REFILL_S` each."""
REFILL_S = 10.0

Document = dict[str, Any]


def settled(status: NodePowerStatus, before: NodePowerStatus | None) -> NodePowerStatus:
    """The status with the time of the last transition of each condition, which a restart must not move."""
    earlier = {} if before is None else {each.type: each for each in before.conditions}

    def kept(condition: Condition) -> Condition:
        same = earlier.get(condition.type)
        if same is None or same.status != condition.status:
            return condition.model_copy(
                update={"last_transition_time": condition.last_transition_time.replace(microsecond=0)}
            )
        return condition.model_copy(update={"last_transition_time": same.last_transition_time})

    return status.model_copy(update={"conditions": tuple(kept(each) for each in status.conditions)})


def patch(status: NodePowerStatus, uid: str | None) -> Document:
    """The JSON merge patch that makes the whole status so.

    It names the UID, so that it cannot tell of a NodePower of the same name that was made meanwhile.
    """
    written = status.model_dump(by_alias=True, exclude_none=True, mode="json")
    fields = (field.alias or name for name, field in NodePowerStatus.model_fields.items())
    whole: Document = {"status": {name: written.get(name) for name in fields}}
    return whole if uid is None else {"metadata": {"uid": uid}} | whole


def transition(before: NodePowerStatus | None, after: NodePowerStatus) -> bool:
    """Whether a person, or the operator, should see the difference at once.

    What is read back moves by itself, where GPUs throttle, and words alone are no news.
    """
    return before is None or _weighty(before) != _weighty(after)


@dataclass(slots=True)
class Pace:
    """Whether a status may be written now."""

    written_s: float = -math.inf
    tokens: float = float(BURST)
    filled_s: float = -math.inf

    def due_s(self, before: NodePowerStatus | None, after: NodePowerStatus, now_s: float) -> float | None:
        """Seconds until `after` may take the place of `before`, 0 for now; None: there is nothing to write."""
        if before == after:
            return None
        self.tokens = min(self.tokens + (now_s - self.filled_s) / REFILL_S, float(BURST))
        self.filled_s = now_s
        if transition(before, after):
            return 0.0 if self.tokens >= 1.0 else (1.0 - self.tokens) * REFILL_S
        return max(self.written_s + REFRESH_S - now_s, 0.0)

    def wrote(self, now_s: float) -> None:
        """It was written, or tried to be."""
        self.written_s = now_s
        self.tokens = max(self.tokens - 1.0, 0.0)


def _weighty(status: NodePowerStatus) -> tuple[object, ...]:
    conditions = {each.type: (each.status, each.reason) for each in status.conditions}
    gpus: Mapping[str, object] = {
        gpu.uuid: (gpu.owner, gpu.requested, gpu.original, frozenset(gpu.reasons)) for gpu in status.gpus
    }
    return status.observed_generation, status.gpu_count, status.managed_gpus, conditions, gpus
