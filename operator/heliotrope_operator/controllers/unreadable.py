"""An object of ours that this program cannot read: its status says so, and nothing else is done about it."""

from datetime import datetime

from pydantic import ConfigDict, ValidationError

from heliotrope.api.struct import Struct
from heliotrope.api.v1alpha1.common import Conditions, ConditionStatus, ObservedGeneration
from heliotrope_operator.conditions import ConditionType, Finding, settle, transitions
from heliotrope_operator.kinds.spec import Unreadable
from heliotrope_operator.resources import Key
from heliotrope_operator.writer import Writer


class CommonStatus(Struct):
    """What the statuses of all kinds begin with."""

    model_config = ConfigDict(extra="ignore")

    observed_generation: ObservedGeneration | None = None
    conditions: Conditions = ()


async def report(writer: Writer, key: Key, unreadable: Unreadable, kind: ConditionType, now: datetime) -> float | None:
    """Write one condition with what is wrong; see `Writer.status`."""
    try:
        previous = CommonStatus.model_validate(unreadable.status)
    except ValidationError:
        previous = CommonStatus()
    generation = unreadable.metadata.generation
    finding = Finding(kind, ConditionStatus.FALSE, "Invalid", unreadable.problem)
    status = CommonStatus(
        observed_generation=generation, conditions=settle(previous.conditions, [finding], generation, now)
    )
    changes = transitions(previous.conditions, status.conditions)
    return await writer.status(key, unreadable.metadata, previous, status, changes)
