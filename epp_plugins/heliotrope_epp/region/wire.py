"""Windows on their way to the solver's process and assignments on their way back: msgpack, columns as raw bytes."""

from dataclasses import dataclass, fields
from typing import Any, TypeVar

import msgspec
import numpy as np

from heliotrope.errors import HeliotropeError
from heliotrope.place.assignment import Assignment, Outcome
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import Window

LENGTH_BYTES = 4
MAX_FRAME_BYTES = 64 * 1024 * 1024

READY = 0
"""Number of the message that a solver begins with, once all its code is compiled. Jobs count from 1."""

Columns = TypeVar("Columns", Window, Regions)


class InvalidFrameError(HeliotropeError):
    """Bytes between the scheduler and its solver that are no message."""


@dataclass(frozen=True, slots=True)
class Job:
    """One window to assign."""

    number: int
    scheduler: str
    window: Window
    regions: Regions
    policy: PlacementPolicy
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class Solved:
    """What came of a job."""

    number: int
    seconds: float
    assignment: Assignment | None
    """None: it failed."""
    problem: str | None = None


def job_to_bytes(job: Job) -> bytes:
    """For the solver."""
    return _frame(
        {
            "number": job.number,
            "scheduler": job.scheduler,
            "window": _packed(job.window),
            "regions": _packed(job.regions),
            "policy": msgspec.to_builtins(job.policy),
            "now": job.now_unix_s,
        }
    )


def job_from_bytes(body: bytes) -> Job:
    """What the scheduler sent.

    Raises:
        InvalidFrameError: if it is none.
    """
    try:
        data = msgspec.msgpack.decode(body)
        return Job(
            number=data["number"],
            scheduler=data["scheduler"],
            window=_unpacked(Window, data["window"]),
            regions=_unpacked(Regions, data["regions"]),
            policy=msgspec.convert(data["policy"], PlacementPolicy, strict=False),
            now_unix_s=data["now"],
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise InvalidFrameError(f"no job: {type(error).__name__}") from error


def solved_to_bytes(solved: Solved) -> bytes:
    """For the scheduler. The memory of an assignment stays where it was made."""
    found = solved.assignment
    return _frame(
        {
            "number": solved.number,
            "seconds": solved.seconds,
            "problem": solved.problem,
            "assignment": None
            if found is None
            else {
                "regions": _array(found.regions),
                "reasons": _array(found.reasons),
                "outcome": found.outcome.value,
                "objective": found.objective,
                "gap": found.gap,
                "work": int(found.work),
                "carbon_counts": bool(found.carbon_counts),
            },
        }
    )


def solved_from_bytes(body: bytes) -> Solved:
    """What the solver sent.

    Raises:
        InvalidFrameError: if it is none.
    """
    try:
        data = msgspec.msgpack.decode(body)
        found = data["assignment"]
        return Solved(
            number=data["number"],
            seconds=data["seconds"],
            problem=data["problem"],
            assignment=None
            if found is None
            else Assignment(
                regions=_from_array(found["regions"]),
                reasons=_from_array(found["reasons"]),
                outcome=Outcome(found["outcome"]),
                objective=float(found["objective"]),
                gap=float(found["gap"]),
                work=found["work"],
                carbon_counts=found["carbon_counts"],
            ),
        )
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
        raise InvalidFrameError(f"no result: {type(error).__name__}") from error


def _frame(data: dict[str, Any]) -> bytes:
    body = msgspec.msgpack.encode(data)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def _packed(columns: Window | Regions) -> dict[str, Any]:
    """Names stay a list; everything else is an array."""
    values = {field.name: getattr(columns, field.name) for field in fields(columns)}
    return {name: _array(value) if isinstance(value, np.ndarray) else list(value) for name, value in values.items()}


def _unpacked(kind: type[Columns], data: dict[str, Any]) -> Columns:
    columns: dict[str, Any] = {
        name: tuple(value) if name == "names" else _from_array(value) for name, value in data.items()
    }
    return kind(**columns)


def _array(value: Any) -> list[Any]:
    array = np.ascontiguousarray(value)
    return [array.dtype.str, array.shape, array.tobytes()]


def _from_array(value: Any) -> Any:
    kind, shape, data = value
    return np.frombuffer(data, dtype=np.dtype(kind)).reshape(shape).copy()
