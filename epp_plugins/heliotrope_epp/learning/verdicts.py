"""What became of each training: kept on disk, shown at `/debug` and by the trainer."""

from collections.abc import Mapping

import msgspec

from heliotrope.predict.promotion import Verdict
from heliotrope.predict.targets import Target
from heliotrope.unknown import finite_or_none


class TargetVerdict(msgspec.Struct, frozen=True):
    """On one target; errors and coverage are fractions, None where unknown."""

    target: str
    promoted: bool
    reason: str
    answers: str
    """`candidate`, `incumbent` or `analytic`."""
    test_samples: int
    mape: float | None
    incumbent_mape: float | None
    analytic_mape: float | None
    coverage: float | None


class TrainingRecord(msgspec.Struct, frozen=True):
    """One training."""

    at_unix_s: float
    occasion: str
    result: str
    """`promoted`, `kept`, or why there was no result (`heliotrope_epp.learning.process.JobError.reason`)."""
    detail: str
    """Of a failure; else empty."""
    samples: int
    seconds: float
    targets: list[TargetVerdict] = []


def target_verdicts(verdicts: Mapping[Target, Verdict]) -> list[TargetVerdict]:
    """As they are written."""
    return [
        TargetVerdict(
            target=target.value,
            promoted=verdict.promoted,
            reason=verdict.reason.value,
            answers=verdict.answers,
            test_samples=verdict.candidate.samples,
            mape=finite_or_none(verdict.candidate.mape),
            incumbent_mape=finite_or_none(verdict.incumbent.mape),
            analytic_mape=finite_or_none(verdict.candidate.analytic_mape),
            coverage=finite_or_none(verdict.candidate.coverage),
        )
        for target, verdict in verdicts.items()
    ]
