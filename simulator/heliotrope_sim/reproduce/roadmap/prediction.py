"""RQ1: is energy predicted from what latency is predicted from?

Models as the picker trains them learn from requests of some loads and shares of prefixes and are scored on other
requests at others, once with the features of latency predictors (the request, the endpoint's state), once with hardware
and power beside them, and once with the analytic model's estimates too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.features import Group, with_output_tokens
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS, Target
from heliotrope.predict.training import DEFAULT, train
from heliotrope.predict.trainingset import TrainingSet, block_key, split_of
from heliotrope_sim.evaluation.scores import Score, mape
from heliotrope_sim.reproduce.roadmap.measures import Measured
from heliotrope_sim.reproduce.roadmap.studies import Found, matrix_runs
from heliotrope_sim.reproduce.row import PERCENT, Row

Floats = NDArray[np.float64]

FEATURE_SETS: Mapping[str, frozenset[Group]] = {
    "latency features": frozenset({Group.HARDWARE, Group.POWER, Group.ANALYTIC}),
    "with hardware and power": frozenset({Group.ANALYTIC}),
    "with the analytic model too": frozenset(),
}
"""What is hidden from the models."""
ANALYTIC = "analytic model alone"


@dataclass(frozen=True, slots=True)
class Predicted:
    """Errors on held-out runs by feature set and target, and a sample for a plot."""

    scores: Mapping[str, Mapping[Target, Score]]
    true_joules: Floats
    predicted_joules: Floats
    requests: int
    """That were trained on."""


def predict(found: Found) -> Predicted:
    """Train on the requests of every other cell of the matrix, and score on those of the cells between."""
    sizes = found.sizes
    sides: tuple[list[Measured], list[Measured]] = ([], [])
    for task in matrix_runs(sizes, found.seed):
        measured = found.measured[task]
        if len(measured.features):
            side = (sizes.loads.index(task.load) + sizes.sharings.index(task.sharing)) % 2
            sides[side].append(measured)
    training, held_out = (_samples(side) for side in sides)
    scores: dict[str, dict[Target, Score]] = {}
    predicted = np.zeros(0)
    for name, hidden in FEATURE_SETS.items():
        config = replace(DEFAULT, without=hidden)
        rows = with_output_tokens(training.rows, training.labels[:, 3])
        samples = TrainingSet(
            REQUESTS, rows, training.labels[:, :3], np.arange(len(rows), dtype=np.float64), _splits(training.run)
        )
        models = LearnedModels(train([samples], found.seed, 0.0, config))
        answers = models.predict(with_output_tokens(held_out.rows, held_out.labels[:, 3]))
        scores[name] = {
            target: mape(held_out.labels[:, i], answers.typical_of(target), held_out.run, found.seed)
            for i, target in enumerate(REQUESTS.targets)
        }
        predicted = answers.typical_of(Target.REQUEST_ENERGY)
    scores[ANALYTIC] = {
        Target.TTFT: mape(held_out.labels[:, 0], held_out.believed[:, 0], held_out.run, found.seed),
        Target.REQUEST_ENERGY: mape(held_out.labels[:, 2], held_out.believed[:, 1], held_out.run, found.seed),
    }
    return Predicted(scores, held_out.labels[:, 2], predicted, len(training.rows))


def rows(predicted: Predicted) -> list[Row]:
    """RQ1, and its parts."""
    energy = {name: by_target.get(Target.REQUEST_ENERGY) for name, by_target in predicted.scores.items()}
    best, bare = energy["with hardware and power"], energy["latency features"]
    ttft = predicted.scores["latency features"][Target.TTFT]
    assert best is not None
    assert bare is not None
    limit = (
        "Simulated engines: their energy follows the step model of the profile, whose own error against measurements "
        "is not in this figure."
    )
    found = [
        Row(
            "rq1",
            "RQ1: error of a request's energy, features of latency predictors with hardware and power",
            None,
            best.value * PERCENT,
            "%",
            best.value <= ttft.value,
            "Hypothesis: these features are sufficient. Judged: energy is predicted at least as well as TTFT is from "
            f"the features of latency alone ({ttft.value:.1%}). {limit}",
            best.low * PERCENT,
            best.high * PERCENT,
        )
    ]
    for name, by_target in predicted.scores.items():
        for target, score in by_target.items():
            if target is Target.REQUEST_ENERGY and name == "with hardware and power":
                continue
            word = {Target.REQUEST_ENERGY: "energy", Target.TTFT: "TTFT", Target.TPOT: "TPOT"}[target]
            key = name.replace(" ", "-")
            note = "At the decision: the answer's length is expected, not known." if name == ANALYTIC else ""
            found.append(
                Row(
                    f"rq1/{key}-{word.lower()}",
                    f"Error of {word}, {name}",
                    None,
                    score.value * PERCENT,
                    "%",
                    None,
                    note,
                    score.low * PERCENT,
                    score.high * PERCENT,
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class _Samples:
    rows: Floats
    labels: Floats
    believed: Floats
    run: NDArray[np.int64]


def _samples(side: Sequence[Measured]) -> _Samples:
    return _Samples(
        rows=np.concatenate([m.features for m in side]),
        labels=np.concatenate([m.labels for m in side]),
        believed=np.concatenate([m.believed for m in side]),
        run=np.repeat(np.arange(len(side)), [len(m.features) for m in side]),
    )


def _splits(run: NDArray[np.int64]) -> NDArray[np.uint8]:
    """To train and to calibrate, as the picker splits: stretches of each run."""
    first = np.searchsorted(run, np.arange(run.max() + 1))
    return np.array([split_of(block_key(f"run-{r}", i - int(first[r]))) for i, r in enumerate(run.tolist())], np.uint8)
