"""The same learner on published measurements of real accelerators, with groups of them held out."""

from collections.abc import Callable, Sequence

import numpy as np

from heliotrope.decide.rows import describe
from heliotrope.predict.features import EndpointInputs, Matrix, RequestInputs, request_rows
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS, Target
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import Split, TrainingSet
from heliotrope_sim.evaluation.measured import Label, Point, load_points
from heliotrope_sim.evaluation.report import Cell, Section
from heliotrope_sim.evaluation.scores import Floats, Score, mape

TARGET_OF = {
    Label.TTFT: Target.TTFT,
    Label.TPOT: Target.TPOT,
    Label.GENERATION_PACE: Target.TPOT,
    Label.REQUEST_JOULES: Target.REQUEST_ENERGY,
}
FOLDS = 5
SMALL = TrainingConfig(min_train=15, min_calibrate=4)
"""These sets are smaller than what a picker would begin to train on."""
Group = Callable[[Point], str]

HELD_OUT: tuple[tuple[str, Group], ...] = (
    ("points", lambda p: f"{p.configuration}/{p.batch:.3g}/{p.prompt_tokens}/{p.output_tokens:.4g}"),
    ("configurations", lambda p: p.configuration),
    ("hardware", lambda p: p.hardware.accelerator),
)
"""What a fold leaves out whole: single points of known configurations, whole configurations (model, accelerator and
tensor parallelism), or everything of an accelerator."""


def measured_errors(seed: int, done: Callable[[], None]) -> Section:
    """Errors by source, label and what was held out; beside them what the training mean would give."""
    points = load_points()
    rows: list[tuple[Cell, ...]] = []
    for source in dict.fromkeys(p.source for p in points):
        of_source = [p for p in points if p.source == source]
        for label in dict.fromkeys(name for p in of_source for name in p.labels):
            labelled = [p for p in of_source if label in p.labels]
            scores: list[Cell] = []
            mean = None
            for name, group in HELD_OUT:
                score, constant = _cross_validated(labelled, label, group, seed)
                scores.append(score if score.n else None)
                mean = constant if name == "points" else mean
            rows.append((f"{source}: {label}", len(labelled), *scores, mean))
            done()
    return Section(
        "measured",
        "Published measurements of real accelerators, held out by group",
        ("source: label", "points n", *(name for name, _ in HELD_OUT), "mean alone"),
        tuple(rows),
        "No analytic estimates. Points: of configurations that training knows. Configurations: a model on "
        "accelerators in a number that it does not know. Hardware: an accelerator that it does not know.",
    )


def _cross_validated(points: Sequence[Point], label: Label, group: Group, seed: int) -> tuple[Score, Score]:
    names = sorted({group(p) for p in points})
    rng = np.random.default_rng([seed, len(points)])
    fold_of = dict(zip(names, rng.permutation(len(names)) % min(FOLDS, len(names)), strict=True))
    folds = np.array([fold_of[group(p)] for p in points])
    rows, labels = point_rows(points), np.array([p.labels[label] for p in points])
    predicted, constant = np.full(len(points), np.nan), np.full(len(points), np.nan)
    for fold in np.unique(folds):
        out = folds == fold
        if out.all():
            continue
        models = _models(rows[~out], labels[~out], label, seed)
        predicted[out] = models.predict(rows[out]).typical_of(TARGET_OF[label])
        constant[out] = np.exp(np.log(labels[~out]).mean())
    _, ids = np.unique([group(p) for p in points], return_inverse=True)
    return mape(labels, predicted, ids, seed), mape(labels, constant, ids, seed)


def _models(rows: Matrix, labels: Floats, label: Label, seed: int) -> LearnedModels:
    table = np.full((len(rows), len(REQUESTS.targets)), np.nan)
    table[:, REQUESTS.targets.index(TARGET_OF[label])] = labels
    splits = np.where(np.arange(len(rows)) % 5 == 0, Split.CALIBRATE, Split.TRAIN).astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(rows))
    samples = TrainingSet(REQUESTS, rows[order], table[order], np.zeros(len(rows)), splits)
    return LearnedModels(train([samples], seed, 0.0, SMALL))


def point_rows(points: Sequence[Point]) -> Matrix:
    """The points in the columns of a decision: what was measured as a steady batch is an endpoint with that batch."""
    rows = [
        request_rows(
            RequestInputs(p.prompt_tokens, p.output_tokens),
            EndpointInputs(
                hardware=describe(p.hardware, None).row()[np.newaxis, :],
                running=p.batch - 1.0,
                waiting=0.0,
                waiting_tokens=0.0,
                oldest_waiting_seconds=0.0,
                kv_tokens=p.batch * (p.prompt_tokens + p.output_tokens / 2.0),
                prefill_duty=0.0,
                cached_tokens=0.0,
            ),
        )
        for p in points
    ]
    return np.concatenate(rows)
