"""What models learn from: a row, its labels, and every reason not to believe them."""

import math
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from heliotrope.predict.features import FEATURE_COUNT, STEP_FEATURE_COUNT, FloatColumn, with_output_tokens
from heliotrope.predict.targets import BOUNDS, REQUESTS, STEPS, Table, Target

CLOCK_JUMP_SECONDS = 1.0
"""By which two clocks may disagree on one request's time; and how far ahead of now a sample may lie."""
MAX_TOKENS = 10_000_000
"""Longer answers do not exist."""
MIN_ENERGY_COVERAGE = 0.98
"""Below this share of its time metered, the energy of a request is not known well enough to learn from."""


class Refusal(StrEnum):
    """Why something observed was not learned from. Callers count by reason."""

    INCOMPLETE = "incomplete"
    """The client left, the engine failed, or the status was not 200."""
    USAGE_MISSING = "usage-missing"
    """The engine did not say how long the answer was."""
    NO_FEATURES = "no-features"
    """No row was kept when the endpoint was chosen."""
    MALFORMED = "malformed"
    """The row has another number of columns, or an infinite value."""
    NO_LABEL = "no-label"
    NOT_FINITE = "not-finite"
    NEGATIVE = "negative"
    """A label of 0 or less."""
    ABSURD = "absurd"
    """A label outside `heliotrope.predict.targets.BOUNDS`, or an impossible number of tokens."""
    CLOCK_JUMP = "clock-jump"
    """Times run backwards, lie in the future, or wall clock and monotonic clock disagree."""


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One believable observation."""

    table: Table
    key: str
    """Decides whether it is trained on or held out."""
    at_unix_s: float
    row: FloatColumn = field(repr=False)
    labels: FloatColumn
    """In the order of `table.targets`; NaN: not observed. At least one is."""


@dataclass(frozen=True, slots=True)
class RequestObservation:
    """A finished request, as somebody saw it. None: not observed or does not apply."""

    key: str
    row: FloatColumn | None
    """Of `heliotrope.predict.features.request_rows`, for the endpoint that was used."""
    complete: bool
    """The whole answer arrived with status 200."""
    output_tokens: int | None
    dispatched_s: float
    """Monotonic."""
    ended_s: float
    dispatched_unix_s: float
    ended_unix_s: float
    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    request_joules: float | None = None
    energy_coverage: float = 1.0
    """Share of its time for which a counter was believable."""


def request_sample(observed: RequestObservation, now_unix_s: float) -> Sample | Refusal:
    """The sample of a request, at its true length; or why it must not be learned from.

    One label that cannot be true refuses the whole sample: whoever measured it is not to be believed on the others.
    """
    refusal = _refused_request(observed, now_unix_s)
    if refusal is not None:
        return refusal
    assert observed.row is not None
    assert observed.output_tokens is not None
    joules = observed.request_joules if observed.energy_coverage >= MIN_ENERGY_COVERAGE else None
    labels = (observed.ttft_seconds, observed.tpot_seconds, joules)
    row = with_output_tokens(observed.row[np.newaxis, :], float(observed.output_tokens))[0]
    return _labelled(REQUESTS, observed.key, observed.ended_unix_s, row, labels)


def step_sample(
    key: str, at_unix_s: float, row: FloatColumn, step_joules: float, now_unix_s: float
) -> Sample | Refusal:
    """The sample of a step's measured energy, or why not."""
    if len(row) != STEP_FEATURE_COUNT or np.isinf(row).any():
        return Refusal.MALFORMED
    if not _in_the_past(at_unix_s, now_unix_s):
        return Refusal.CLOCK_JUMP
    return _labelled(STEPS, key, at_unix_s, row, (step_joules,))


def _refused_request(observed: RequestObservation, now_unix_s: float) -> Refusal | None:
    if not observed.complete:
        return Refusal.INCOMPLETE
    if observed.output_tokens is None:
        return Refusal.USAGE_MISSING
    if observed.output_tokens < 0:
        return Refusal.NEGATIVE
    if observed.output_tokens > MAX_TOKENS:
        return Refusal.ABSURD
    if observed.row is None:
        return Refusal.NO_FEATURES
    if observed.row.shape != (FEATURE_COUNT,) or np.isinf(observed.row).any():
        return Refusal.MALFORMED
    seconds = observed.ended_s - observed.dispatched_s
    wall_seconds = observed.ended_unix_s - observed.dispatched_unix_s
    agree = seconds >= 0.0 and abs(wall_seconds - seconds) <= CLOCK_JUMP_SECONDS
    if not agree or not _in_the_past(observed.ended_unix_s, now_unix_s):
        return Refusal.CLOCK_JUMP
    return None


def _in_the_past(at_unix_s: float, now_unix_s: float) -> bool:
    return 0.0 <= at_unix_s <= now_unix_s + CLOCK_JUMP_SECONDS


def _labelled(
    table: Table, key: str, at_unix_s: float, row: FloatColumn, labels: tuple[float | None, ...]
) -> Sample | Refusal:
    if all(label is None for label in labels):
        return Refusal.NO_LABEL
    for target, label in zip(table.targets, labels, strict=True):
        refusal = None if label is None else refused_label(target, label)
        if refusal is not None:
            return refusal
    values = np.array([math.nan if label is None else label for label in labels], dtype=np.float64)
    return Sample(table, key, at_unix_s, row, values)


def refused_label(target: Target, label: float) -> Refusal | None:
    """Why a label of this target cannot be true; None if it can."""
    if not math.isfinite(label):
        return Refusal.NOT_FINITE
    if label <= 0.0:
        return Refusal.NEGATIVE
    low, high = BOUNDS[target]
    return None if low <= label <= high else Refusal.ABSURD
