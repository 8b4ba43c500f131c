"""Whether a candidate has earned its place: better than what answers now, on samples that neither has seen."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.predict.bundle import Bundle, Scores
from heliotrope.predict.conformal import QUANTILE
from heliotrope.predict.features import FloatColumn
from heliotrope.predict.models import LearnedModels, Level
from heliotrope.predict.scoring import analytic_estimates, held_out, relative_errors, scores_of
from heliotrope.predict.targets import Target
from heliotrope.predict.trainingset import TrainingSet

MIN_TEST = 20
MIN_IMPROVEMENT = 0.01
"""Relative, over the incumbent: less is noise, and not worth a swap."""
MAX_MAPE = 0.5
"""A model that errs more is worse than no estimate, where no analytic model can be compared with."""
COVERAGE_TOLERANCE = 0.02
COVERAGE_SIGMAS = 2.6
"""Standard deviations by which the coverage of few samples may miss."""


class Reason(StrEnum):
    """Why a target's model is what it is after a training."""

    BETTER = "better"
    """Promoted: smaller error than the incumbent's and the analytic model's."""
    BETTER_COVERAGE = "better-coverage"
    """Promoted: the incumbent's quantile holds no longer, and the error is not larger."""
    NO_CANDIDATE = "no-candidate"
    """Too few samples to train on."""
    TOO_FEW_TEST_SAMPLES = "too-few-test-samples"
    WORSE_THAN_ANALYTIC = "worse-than-analytic"
    WORSE_THAN_INCUMBENT = "worse-than-incumbent"
    COVERAGE = "coverage"
    """The quantile covers too much or too little."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """On one target, with the numbers that decided."""

    target: Target
    promoted: bool
    reason: Reason
    candidate: Scores
    incumbent: Scores
    """On the same samples; NaN where there is no incumbent."""
    candidate_where_analytic: float
    """The candidate's error on the samples of `candidate.analytic_mape`."""
    answers: str
    """Who answers now: "candidate", "incumbent" or "analytic"."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """The models that answer from now on, target by target."""

    bundle: Bundle
    """The incumbent itself if nothing changed."""
    verdicts: Mapping[Target, Verdict]
    changed: bool
    """Some target has another model than before, or none any more."""


def promote(incumbent: Bundle, candidate: Bundle, sets: Sequence[TrainingSet]) -> Promotion:
    """Judge each target of the candidate on the test split of `sets`.

    A target whose candidate fails keeps its incumbent, unless that is worse than the analytic model by now: then it
    stays without a model.
    """
    verdicts: dict[Target, Verdict] = {}
    for samples in sets:
        for target in samples.table.targets:
            verdicts[target] = _judge(incumbent, candidate, target, held_out(samples, target))
    models = {}
    for target in Target:
        verdict = verdicts.get(target)
        answers = "incumbent" if verdict is None else verdict.answers
        source = candidate if answers == "candidate" else incumbent
        if answers != "analytic" and target in source.models:
            models[target] = source.models[target]
    changed = any(models.get(t) is not incumbent.models.get(t) for t in Target)
    created = candidate.created_unix_s if changed else incumbent.created_unix_s
    return Promotion(Bundle(created, models) if changed else incumbent, verdicts, changed)


def _judge(incumbent: Bundle, candidate: Bundle, target: Target, samples: TrainingSet) -> Verdict:
    new, old = scores_of(candidate, target, samples), scores_of(incumbent, target, samples)
    new_there, old_there = (_mape_where_analytic(bundle, target, samples) for bundle in (candidate, incumbent))
    reason = _reason(new, old, new_there, candidate, target, samples)
    promoted = reason in (Reason.BETTER, Reason.BETTER_COVERAGE)
    if promoted:
        answers = "candidate"
    elif target in incumbent.models and not (len(samples) >= MIN_TEST and _unworthy(old, old_there)):
        answers = "incumbent"
    else:
        answers = "analytic"
    return Verdict(target, promoted, reason, new, old, new_there, answers)


def _reason(
    new: Scores, old: Scores, new_there: float, candidate: Bundle, target: Target, samples: TrainingSet
) -> Reason:
    if target not in candidate.models:
        return Reason.NO_CANDIDATE
    if len(samples) < MIN_TEST:
        return Reason.TOO_FEW_TEST_SAMPLES
    if _unworthy(new, new_there):
        return Reason.WORSE_THAN_ANALYTIC
    calibrated = sum(candidate.models[target].calibration.residuals)
    if not _covers(new, calibrated):
        return Reason.COVERAGE
    if math.isnan(old.mape) or new.mape < old.mape * (1.0 - MIN_IMPROVEMENT):
        return Reason.BETTER
    if not _covers(old, calibrated) and new.mape <= old.mape * (1.0 + MIN_IMPROVEMENT):
        return Reason.BETTER_COVERAGE
    return Reason.WORSE_THAN_INCUMBENT


def _unworthy(scores: Scores, where_analytic: float) -> bool:
    """Worse than the analytic model where there is one; worse than nothing where there is none."""
    if math.isnan(scores.analytic_mape):
        return not scores.mape <= MAX_MAPE
    return not where_analytic < scores.analytic_mape


def _covers(scores: Scores, calibrated: int) -> bool:
    variance = QUANTILE * (1.0 - QUANTILE) * (1.0 / scores.samples + 1.0 / max(calibrated, 1))
    tolerance = max(COVERAGE_TOLERANCE, COVERAGE_SIGMAS * math.sqrt(variance))
    return abs(scores.coverage - QUANTILE) <= tolerance


def _mape_where_analytic(bundle: Bundle, target: Target, samples: TrainingSet) -> float:
    analytic: FloatColumn = analytic_estimates(samples, target)
    there = samples.where(analytic == analytic)
    if not len(there) or target not in bundle.models:
        return math.nan
    predictions = LearnedModels(bundle).predict_at(Level.CURRENT, there.table, there.rows)
    return float(relative_errors(predictions.typical_of(target), there.labels_of(target)).mean())
