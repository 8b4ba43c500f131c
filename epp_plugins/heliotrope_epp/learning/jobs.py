"""One training as bytes in and bytes out, and the training itself: the only code that runs in the training process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from heliotrope.errors import HeliotropeError
from heliotrope.predict.bundle import Bundle, parse_bundle
from heliotrope.predict.forest import InvalidModelError
from heliotrope.predict.models import HardwareKey
from heliotrope.predict.promotion import promote
from heliotrope.predict.trainingset import InvalidSamplesError, TrainingSet
from heliotrope_epp.learning.verdicts import TargetVerdict, target_verdicts

SEED = 1


class InvalidJobError(HeliotropeError):
    """Bytes that are no job, or no outcome of one."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to train on, and what the result must beat."""

    sets: Sequence[TrainingSet]
    incumbent: Bundle
    cuts: Mapping[HardwareKey, float]
    """Samples of these hardwares from before these Unix seconds are left out."""
    now_unix_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it. `bundle` is None where the incumbent stays as it is."""

    bundle: Bundle | None
    targets: list[TargetVerdict]


class _JobBytes(msgspec.Struct):
    sets: list[bytes]
    incumbent: str
    cuts: dict[int, float]
    now_unix_s: float


class _OutcomeBytes(msgspec.Struct):
    bundle: str | None
    targets: list[TargetVerdict]


def job_to_bytes(job: Job) -> bytes:
    """For the training process."""
    sets = [each.to_bytes() for each in job.sets]
    return msgspec.msgpack.encode(_JobBytes(sets, job.incumbent.to_text(), dict(job.cuts), job.now_unix_s))


def outcome_from_bytes(data: bytes) -> Outcome:
    """What the training process printed.

    Raises:
        InvalidJobError: if it is cut off, or its models cannot be used.
    """
    try:
        outcome = msgspec.msgpack.decode(data, type=_OutcomeBytes)
        return Outcome(None if outcome.bundle is None else parse_bundle(outcome.bundle), outcome.targets)
    except (msgspec.DecodeError, InvalidModelError) as error:
        raise InvalidJobError(str(error)) from error


def run(data: bytes) -> bytes:
    """Train candidates, judge them, and say which models answer from now on.

    Raises:
        InvalidJobError: if `data` is no job.
    """
    from heliotrope.predict.training import train  # LightGBM is loaded by the process that trains, and by no other

    try:
        job = msgspec.msgpack.decode(data, type=_JobBytes)
        sets = [TrainingSet.from_bytes(each).without_before(job.cuts) for each in job.sets]
        incumbent = parse_bundle(job.incumbent)
    except (msgspec.DecodeError, InvalidSamplesError, InvalidModelError) as error:
        raise InvalidJobError(str(error)) from error
    promotion = promote(incumbent, train(sets, SEED, job.now_unix_s), sets)
    changed = promotion.bundle is not incumbent
    return msgspec.msgpack.encode(
        _OutcomeBytes(promotion.bundle.to_text() if changed else None, target_verdicts(promotion.verdicts))
    )
