"""What a policy saves, measured against its own holdout.

Requests were drawn into two arms, class by class (`heliotrope.decide.holdout`). Each class is compared by itself and
the classes are weighed by how many requests they hold (post-stratification), so that the mix of requests cannot pass
for a saving. The interval comes from the block bootstrap over time; both arms are drawn from the same blocks, because
load and grid move both.

The arms share engines. A steered request fills a batch that a held-out one decodes in, each joins the other's queue,
and idle energy is nobody's or is shared out by work: so what is compared is what a request draws in a fleet that is
mostly steered. It is not the difference between two fleets, of which one is steered and the other is not.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import ceil, floor, isfinite, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.bootstrap import (
    FloatMatrix,
    FloatVector,
    Interval,
    Statistic,
    block_bootstrap,
    block_length,
    difference_of_ratios,
    relative_change_of_ratios,
)
from heliotrope.units import SECONDS_PER_HOUR

MIN_REQUESTS = 100
"""Requests of either arm without which nothing is said."""
MIN_BLOCKS = 10
"""Blocks of time without which nothing is said."""
MIN_PER_CLASS = 30
"""Classes with fewer requests in either arm are compared together; their shares of held-out requests are the same."""
MAX_CLASSES = 24
"""The largest are compared by themselves, the others together."""
REST = "all other classes"
RESOLVED_CHANGE = 0.05
"""The change for which the requests needed are told."""
INTERFERENCE = (
    "Both arms share engines: they fill each other's batches, wait in each other's queues, and idle energy is shared "
    "out by work. So this compares requests within one mostly steered fleet, not a steered fleet with an unsteered "
    "one. Held-out requests meet engines that steering has emptied, where each draws more than in a full batch: the "
    "less they run beside steered ones, the more this overstates what a whole fleet saves."
)


class Metric(StrEnum):
    """What is compared: means over requests, of all of which less is better."""

    JOULES = "joules_per_request"
    """Energy of accelerators that was attributed to the request."""
    JOULES_WITH_IDLE = "joules_with_idle_per_request"
    """With the hosts' and with idle energy, both allocated by work."""
    GRAMS = "grams_co2e_per_request"
    TTFT = "ttft_seconds"
    TPOT = "tpot_seconds"
    SLO_VIOLATIONS = "slo_violation_share"


class Verdict(StrEnum):
    """What may be said of a metric."""

    SAVING = "saving"
    """The whole interval is below zero."""
    INCREASE = "increase"
    """The whole interval is above zero."""
    UNDECIDED = "undecided"
    """The interval holds zero: chance alone may explain the difference."""
    NOT_ENOUGH = "not enough"
    """Too few requests or too short a time for an interval."""


class Evidence(StrEnum):
    """How a saving is known: the only words for it."""

    MEASURED = "measured"
    """Against a randomly held-out share of the same requests at the same time."""
    MODELLED = "modelled"
    """Anything else."""


def evidence(*, holdout: bool) -> Evidence:
    """The word that a saving goes by."""
    return Evidence.MEASURED if holdout else Evidence.MODELLED


def wording(*, holdout: bool, because: str = "") -> str:
    """The word with its reason, as reports print it."""
    word = evidence(holdout=holdout).value
    if holdout:
        return f"{word} against the policy's holdout"
    return f"{word}: {because or 'no request was held out to compare with'}"


@dataclass(frozen=True, slots=True)
class ArmTotals:
    """What one arm did in one class in one slot of time, or a part of it."""

    slot_unix_s: float
    """Start of the slot."""
    request_class: str
    arm: Arm
    requests: int
    sums: Mapping[Metric, float]
    """Over the requests of which the metric is known."""
    counts: Mapping[Metric, int]
    """How many those are."""
    place: str = ""
    """Engine, variant or region that served them: where arms meet."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of the steered arm against the held-out one, classes weighed alike."""

    metric: Metric
    steered_requests: int
    """Of which the metric is known."""
    holdout_requests: int
    steered_mean: float
    """Post-stratified; NaN where unknown. So for the other arm."""
    holdout_mean: float
    difference: Interval
    """Steered less held-out, in the metric's unit."""
    change: Interval
    """Steered over held-out, less one: -0.2 is a saving of 20 %. Without a meaning where the held-out mean is 0."""
    verdict: Verdict
    requests_needed: int | None
    """Held-out requests with which a change of `RESOLVED_CHANGE` would be told from zero, at the spread seen here; with
    too few for an interval, those that are needed for one. None where it cannot be said, or enough are there."""


@dataclass(frozen=True, slots=True)
class ClassSavings:
    """One stratum."""

    name: str
    share: float
    """Of the requests of both arms."""
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True, slots=True)
class Savings:
    """Both arms side by side."""

    evidence: Evidence
    start_unix_s: float
    end_unix_s: float
    slot_seconds: float
    block_seconds: float
    requests: Mapping[Arm, int]
    overall: tuple[Comparison, ...]
    classes: tuple[ClassSavings, ...]
    shared_share: float
    """Share of held-out requests that ended in a place and slot in which steered ones did too; NaN without any."""
    places_known: bool
    """Whether places are engines' or others' names rather than unknown."""
    interference: str = field(default=INTERFERENCE)


def compare(
    totals: Iterable[ArmTotals],
    *,
    slot_seconds: float,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Savings:
    """Compare the arms, per class and overall. Requests that no enforced policy decided on are left out.

    Args:
        totals: in any order; rows of the same slot, class and arm add up.
        slot_seconds: length of a slot.
        confidence: of the intervals.
        resamples: of the bootstrap.
        seed: equal seeds give equal intervals.
    """
    rows = list(totals)
    judged = [row for row in rows if row.arm in (Arm.STEERED, Arm.HOLDOUT)]
    requests = {arm: sum(row.requests for row in rows if row.arm is arm) for arm in Arm}
    held = requests[Arm.HOLDOUT] > 0
    row_seconds = _row_seconds(judged, slot_seconds)
    slots = [floor(row.slot_unix_s / row_seconds) for row in judged]
    first, last = (min(slots), max(slots)) if slots else (0, -1)
    length = block_length(last - first + 1, row_seconds)
    draws = _Draws(length, confidence, resamples, seed)
    shared, known = _shared_share(judged)
    tables = {metric: _table(judged, slots, metric, first, last) for metric in Metric}
    return Savings(
        evidence=evidence(holdout=held),
        start_unix_s=first * row_seconds if slots else float("nan"),
        end_unix_s=(last + 1) * row_seconds if slots else float("nan"),
        slot_seconds=slot_seconds,
        block_seconds=length * row_seconds,
        requests=requests,
        overall=tuple(_comparison(metric, list(table.values()), draws) for metric, table in tables.items())
        if held
        else (),
        classes=_classes(judged, tables, draws) if held else (),
        shared_share=shared,
        places_known=known,
    )


@dataclass(frozen=True, slots=True)
class _Draws:
    block_length: int
    confidence: float
    resamples: int
    seed: int


_Slots = NDArray[np.float64]
"""(slots, 4): sum and count of the steered arm, then of the held-out one."""
_COLUMN = {Arm.STEERED: 0, Arm.HOLDOUT: 2}


def _table(
    rows: Sequence[ArmTotals], slots: Sequence[int], metric: Metric, first: int, last: int
) -> Mapping[str, _Slots]:
    """By stratum. Small classes are one, those beyond the limit too."""
    classes: dict[str, _Slots] = defaultdict(lambda: np.zeros((last - first + 1, 4)))
    by_class: dict[str, list[tuple[int, ArmTotals]]] = defaultdict(list)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row, slot in zip(rows, slots, strict=True):
        count, total = row.counts.get(metric, 0), row.sums.get(metric, 0.0)
        if (count > 0 or total > 0.0) and isfinite(total):
            by_class[row.request_class].append((slot, row))
            counts[row.request_class][_COLUMN[row.arm] // 2] += count
    large = sorted((name for name in counts if min(counts[name]) >= MIN_PER_CLASS), key=lambda n: -sum(counts[n]))
    alone = set(large if len(large) == len(counts) <= MAX_CLASSES else large[: MAX_CLASSES - 1])
    for name, members in by_class.items():
        stratum = classes[name if name in alone else REST]
        for slot, row in members:
            stratum[slot - first, _COLUMN[row.arm]] += row.sums.get(metric, 0.0)
            stratum[slot - first, _COLUMN[row.arm] + 1] += row.counts.get(metric, 0)
    return classes


def _comparison(metric: Metric, strata: Sequence[_Slots], draws: _Draws) -> Comparison:
    values = np.concatenate(strata, axis=1) if strata else np.zeros((1, 4))
    totals = values.sum(axis=0, keepdims=True)
    steered, held = int(totals[0, 1::4].sum()), int(totals[0, 3::4].sum())
    means = _post_stratified(totals)
    difference = _interval(values, _difference, draws)
    change = _interval(values, _change, draws)
    enough = min(steered, held) >= MIN_REQUESTS and difference.known and difference.blocks >= MIN_BLOCKS
    verdict = _verdict(difference) if enough else Verdict.NOT_ENOUGH
    return Comparison(
        metric=metric,
        steered_requests=steered,
        holdout_requests=held,
        steered_mean=float(means[0, 0] / means[0, 1]) if means[0, 1] > 0 else float("nan"),
        holdout_mean=float(means[0, 2] / means[0, 3]) if means[0, 3] > 0 else float("nan"),
        difference=difference,
        change=change,
        verdict=verdict,
        requests_needed=_needed(verdict, held, change),
    )


def _interval(values: FloatMatrix, statistic: Statistic, draws: _Draws) -> Interval:
    found = block_bootstrap(
        values,
        statistic,
        block_length=draws.block_length,
        resamples=draws.resamples,
        seed=draws.seed,
        confidence=draws.confidence,
    )
    if not found.known:
        return found
    factor = small_sample_factor(found.blocks, draws.confidence)
    low, high = (found.estimate + factor * (end - found.estimate) for end in (found.low, found.high))
    return replace(found, low=low, high=high)


def small_sample_factor(blocks: int, confidence: float) -> float:
    """How much wider an interval of few blocks must be than the percentile interval, which takes them for all there is.

    Student's t over the normal quantile (expansion of Fisher and Cornish, 1960, within 0.2 % from 10 blocks on), and
    the root of n / (n - 1) by which resampling understates a variance.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2.0)
    freedom = blocks - 1
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return t / z * sqrt(blocks / freedom)


def _post_stratified(totals: FloatMatrix) -> FloatMatrix:
    """(samples, 4): weighted sum of class means and sum of weights, of each arm. A class without one arm counts not."""
    strata = totals.reshape(len(totals), -1, 4)
    steered_n, held_n = strata[:, :, 1], strata[:, :, 3]
    weight = np.where((steered_n > 0) & (held_n > 0), steered_n + held_n, 0.0)
    steered = weight * strata[:, :, 0] / np.maximum(steered_n, 1.0)
    held = weight * strata[:, :, 2] / np.maximum(held_n, 1.0)
    total = weight.sum(axis=1)
    return np.stack([steered.sum(axis=1), total, held.sum(axis=1), total], axis=1)


def _difference(totals: FloatMatrix) -> FloatVector:
    return difference_of_ratios(_post_stratified(totals))


def _change(totals: FloatMatrix) -> FloatVector:
    return relative_change_of_ratios(_post_stratified(totals))


def _verdict(difference: Interval) -> Verdict:
    if difference.high < 0.0:
        return Verdict.SAVING
    return Verdict.INCREASE if difference.low > 0.0 else Verdict.UNDECIDED


def _needed(verdict: Verdict, held: int, change: Interval) -> int | None:
    """The width of an interval falls with the root of the number of requests."""
    if verdict is Verdict.NOT_ENOUGH:
        return MIN_REQUESTS if held < MIN_REQUESTS else None
    if verdict is not Verdict.UNDECIDED or not change.known or change.high <= change.low:
        return None
    half = (change.high - change.low) / 2.0
    needed = ceil(held * (half / RESOLVED_CHANGE) ** 2)
    return needed if needed > held else None


def _classes(
    rows: Sequence[ArmTotals], tables: Mapping[Metric, Mapping[str, _Slots]], draws: _Draws
) -> tuple[ClassSavings, ...]:
    sizes: dict[str, int] = defaultdict(int)
    for row in rows:
        sizes[row.request_class] += row.requests
    total = sum(sizes.values())
    names = {name for table in tables.values() for name in table}
    alone = names - {REST}
    share = {name: sizes[name] / total for name in alone} | {REST: 1.0 - sum(sizes[name] for name in alone) / total}
    return tuple(
        ClassSavings(
            name=name,
            share=share[name],
            comparisons=tuple(
                _comparison(metric, [table[name]], draws) for metric, table in tables.items() if name in table
            ),
        )
        for name in sorted(names, key=lambda n: (n == REST, -share[n], n))
    )


def _row_seconds(rows: Sequence[ArmTotals], slot_seconds: float) -> float:
    """An hour where blocks are no shorter than that anyway: a year of short slots takes no more room than it must."""
    times = [row.slot_unix_s for row in rows]
    span = max(times) - min(times) if times else 0.0
    return max(slot_seconds, SECONDS_PER_HOUR) if span >= MIN_BLOCKS * SECONDS_PER_HOUR else slot_seconds


def _shared_share(rows: Sequence[ArmTotals]) -> tuple[float, bool]:
    steered = {(row.slot_unix_s, row.place) for row in rows if row.arm is Arm.STEERED and row.requests}
    held = [row for row in rows if row.arm is Arm.HOLDOUT and row.requests]
    count = sum(row.requests for row in held)
    if count == 0:
        return float("nan"), False
    shared = sum(row.requests for row in held if (row.slot_unix_s, row.place) in steered)
    return shared / count, all(row.place for row in held)


def blocks_needed(savings: Savings) -> int:
    """Blocks of time that are missing before anything is said; 0 if enough are there."""
    have = max((c.difference.blocks for c in savings.overall), default=0)
    return max(MIN_BLOCKS - have, 0)
