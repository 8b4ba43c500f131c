"""What the file of originals holds: for each GPU that Heliotrope changed, what it was before."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heliotrope_agent.errors import CorruptStateError

SCHEMA = 1
"""Newest form of the file that this version knows, and the one that it writes."""
MAX_GPUS = 64
"""Of one node; as many as a NodePower's status has room for."""


class Knob(StrEnum):
    """One setting of a GPU."""

    SM_CLOCK = "smClock"
    MEMORY_CLOCK = "memoryClock"
    POWER_LIMIT = "powerLimit"


@dataclass(frozen=True, slots=True)
class Levels:
    """Where the knobs of one GPU stand; None: not locked, or not ours to say."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    power_limit_milliwatts: int | None = None

    def of(self, knob: Knob) -> int | None:
        """The level of one knob, in MHz or mW."""
        match knob:
            case Knob.SM_CLOCK:
                return self.sm_clock_mhz
            case Knob.MEMORY_CLOCK:
                return self.memory_clock_mhz
            case Knob.POWER_LIMIT:
                return self.power_limit_milliwatts

    def with_level(self, knob: Knob, level: int | None) -> "Levels":
        """The same with another level of one knob."""
        match knob:
            case Knob.SM_CLOCK:
                return replace(self, sm_clock_mhz=level)
            case Knob.MEMORY_CLOCK:
                return replace(self, memory_clock_mhz=level)
            case Knob.POWER_LIMIT:
                return replace(self, power_limit_milliwatts=level)

    def knobs(self) -> frozenset[Knob]:
        """The knobs that have a level."""
        return frozenset(knob for knob in Knob if self.of(knob) is not None)


@dataclass(frozen=True, slots=True)
class Ownership:
    """A GPU whose settings Heliotrope has changed, or is about to."""

    uuid: str
    original: Levels
    """Put back in the end. A power limit as it was read; a clock is None (not locked) unless the node's administrator
    configured a lock that GPUs have at rest, for the driver cannot tell."""
    set: Levels
    """Asked of the driver last."""
    touched: frozenset[Knob]
    """Every knob that was ever changed since; only these are put back."""
    namespace: str
    pod: str
    pod_uid: str
    since_unix_s: float
    boot_id: str
    """A reboot takes settings away by itself."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Level = Annotated[int, Field(ge=1, le=100_000_000)]
_Name = Annotated[str, Field(max_length=253)]


class _Levels(_Model):
    sm: _Level | None = None
    memory: _Level | None = None
    power: _Level | None = None

    @classmethod
    def of(cls, levels: Levels) -> "_Levels":
        return cls(sm=levels.sm_clock_mhz, memory=levels.memory_clock_mhz, power=levels.power_limit_milliwatts)

    def levels(self) -> Levels:
        return Levels(self.sm, self.memory, self.power)


class _Record(_Model):
    uuid: Annotated[str, Field(min_length=1, max_length=64)]
    original: _Levels
    set: _Levels
    touched: Annotated[tuple[Literal["smClock", "memoryClock", "powerLimit"], ...], Field(max_length=3)]
    namespace: _Name
    pod: _Name
    pod_uid: _Name
    since_unix_s: float
    boot_id: _Name


class _File(_Model):
    schema_version: Literal[1]
    sequence: Annotated[int, Field(ge=0)]
    gpus: Annotated[tuple[_Record, ...], Field(max_length=MAX_GPUS)]


def encoded(records: Iterable[Ownership], sequence: int) -> str:
    """The body of the file, GPUs by UUID."""
    gpus = tuple(
        _Record(
            uuid=each.uuid,
            original=_Levels.of(each.original),
            set=_Levels.of(each.set),
            touched=tuple(knob.value for knob in Knob if knob in each.touched),
            namespace=each.namespace,
            pod=each.pod,
            pod_uid=each.pod_uid,
            since_unix_s=each.since_unix_s,
            boot_id=each.boot_id,
        )
        for each in sorted(records, key=lambda each: each.uuid)
    )
    return _File(schema_version=1, sequence=sequence, gpus=gpus).model_dump_json(indent=1, exclude_none=True) + "\n"


def schema_of(body: str) -> int | None:
    """The schema that a whole body says it has; None: it says none."""
    try:
        found = json.loads(body)["schema_version"]
    except (ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def decoded(body: str) -> tuple[Mapping[str, Ownership], int]:
    """The records by UUID, and the file's sequence number.

    Raises:
        CorruptStateError: if it is not what `encoded` writes.
    """
    try:
        file = _File.model_validate_json(body)
    except ValidationError as error:
        raise CorruptStateError(str(error.errors(include_url=False)[0]["msg"])) from error
    records = {
        each.uuid: Ownership(
            uuid=each.uuid,
            original=each.original.levels(),
            set=each.set.levels(),
            touched=frozenset(Knob(knob) for knob in each.touched),
            namespace=each.namespace,
            pod=each.pod,
            pod_uid=each.pod_uid,
            since_unix_s=each.since_unix_s,
            boot_id=each.boot_id,
        )
        for each in file.gpus
    }
    if len(records) != len(file.gpus):
        raise CorruptStateError("names a GPU twice")
    return records, file.sequence
