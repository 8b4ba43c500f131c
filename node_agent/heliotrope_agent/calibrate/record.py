"""What a calibration has measured so far: every window, as JSON for researchers and for a later run to go on from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from heliotrope.api.v1alpha1.workloadvariant import Phase
from heliotrope_agent.calibrate.errors import RecordError
from heliotrope_agent.calibrate.settings import Sweep
from heliotrope_agent.calibrate.window import Measured

MAX_BYTES = 256 * 1024 * 1024


class Kind(StrEnum):
    """Why a window was measured."""

    SWEEP = "sweep"
    REFINE = "refine"
    DRIFT = "drift"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the engine runs on."""

    uuid: str
    product: str


@dataclass(frozen=True, slots=True)
class Subject:
    """What was measured; a record goes on only with the same."""

    engine_url: str
    model: str
    engine_version: str | None
    max_model_len: int | None
    gpus: tuple[Gpu, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """How much work fills a window of one phase and batch, the same at all clocks."""

    phase: Phase
    batch: int
    amount: int
    """Tokens of an answer in decode, prompts in prefill."""
    tokens_per_second: float
    """That the pilot saw."""


@dataclass(frozen=True, slots=True)
class Idle:
    """Power of all GPUs of the engine with nothing in flight."""

    mhz: int
    watts: float
    seconds: float
    temperature_celsius: int | None


@dataclass(frozen=True, slots=True)
class Window:
    """One window and what was asked for."""

    phase: Phase
    batch: int
    mhz: int
    kind: Kind
    unix_s: float
    """When it began."""
    measured: Measured

    @property
    def clean(self) -> bool:
        """Whether it counts."""
        return self.measured.clean


@dataclass(frozen=True, slots=True)
class Record:
    """Everything so far."""

    sweep: Sweep
    subject: Subject
    started_unix_s: float
    sizes: tuple[Size, ...] = ()
    idle: tuple[Idle, ...] = ()
    windows: tuple[Window, ...] = ()
    notes: tuple[str, ...] = ()
    """What whoever reads the figures should know."""

    def size(self, phase: Phase, batch: int) -> Size | None:
        """The work of a window; None: unknown yet."""
        return next((each for each in self.sizes if each.phase is phase and each.batch == batch), None)

    def idle_at(self, mhz: int) -> Idle | None:
        """Idle power at a clock; None: not measured."""
        return next((each for each in self.idle if each.mhz == mhz), None)

    def windows_of(self, phase: Phase, batch: int, mhz: int) -> Sequence[Window]:
        """Windows of one point, clean or not, without those for drift."""
        return [
            each
            for each in self.windows
            if each.phase is phase and each.batch == batch and each.mhz == mhz and each.kind is not Kind.DRIFT
        ]

    def noted(self, text: str) -> "Record":
        """The same with a note, once."""
        return self if text in self.notes else replace(self, notes=(*self.notes, text))


class _File(BaseModel):
    """The file. Energies are of all GPUs of the engine in joules, times are engine seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    heliotrope_calibration: Literal[1] = 1
    """Version of the file's form."""
    complete: bool = False
    record: Record


def written(record: Record, *, complete: bool) -> str:
    """The file's text."""
    return _File(record=record, complete=complete).model_dump_json(indent=1) + "\n"


def read(text: str) -> Record:
    """The record of a file.

    Raises:
        RecordError: if it is none.
    """
    try:
        return _File.model_validate_json(text).record
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RecordError(
            f"is no record of a calibration that this version can read: {where}: {first['msg']}"
        ) from None


def load(path: Path) -> Record:
    """Read a file.

    Raises:
        RecordError: if it cannot be read or is none.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordError(f"{path} is longer than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error
    try:
        return read(text)
    except RecordError as error:
        raise RecordError(f"{path} {error}") from None


def going_on(record: Record, sweep: Sweep, subject: Subject) -> Record:
    """A record to go on from.

    Raises:
        RecordError: if it is of another engine, other GPUs or another load; names what differs.
    """
    old, new = record.subject, subject
    for name in ("model", "engine_version", "max_model_len", "gpus"):
        if getattr(old, name) != getattr(new, name):
            raise RecordError(
                f"the record is of another {name.replace('_', ' ')}: {getattr(old, name)}, now {getattr(new, name)}"
            )
    for name in ("prompt_tokens", "decode_prompt_tokens", "window_seconds"):
        if getattr(record.sweep, name) != getattr(sweep, name):
            raise RecordError(
                f"the record was made with another {name}: {getattr(record.sweep, name)}, now {getattr(sweep, name)}"
            )
    return replace(record, sweep=sweep, subject=subject)
