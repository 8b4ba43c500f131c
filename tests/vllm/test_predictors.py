"""Learned TTFT and TPOT of a real vLLM, without an engine profile: better than knowing only what is usual there."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.vllm.engine import RealEngine
from tests.vllm.observed import CLIENTS, Observed, sweep

from heliotrope.predict.models import LearnedModels, Predictions
from heliotrope.predict.sample import Refusal, Sample
from heliotrope.predict.scoring import relative_errors
from heliotrope.predict.targets import REQUESTS, Target
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

SEED = 7
ROUNDS = 6
EACH = 24
TRAIN_ROUNDS = 4
HELD_BACK = 0.1
"""Of the usual TPOT: faster than any step can make them, pieces come only where most of an answer was held back on its
way and then came at once. The relative error of such a TPOT can be a thousand: one of them would be the score.
"""


@dataclass(frozen=True, slots=True)
class Score:
    """Of one target on requests that training did not see; errors are fractions."""

    n: int
    learned: float
    constant: float
    """Of the median of what was trained on."""
    coverage: float
    """Of the learned 0.9 quantile."""
    median_seconds: float


async def test_learned_latencies_of_a_real_engine(engine: RealEngine, say: Callable[[str], None]) -> None:
    observed = await sweep(engine, random.Random(SEED), ROUNDS, EACH)
    assert len(observed) == ROUNDS * EACH * len(CLIENTS)
    refused = [each.sample for each in observed if not isinstance(each.sample, Sample)]
    assert set(refused) <= {Refusal.ABSURD}, "only an answer that was held back and then came at once"
    assert len(refused) < 0.25 * len(observed)
    # Rounds end one after the other, so that this is a cut in time as well.
    cut = TRAIN_ROUNDS * EACH * len(CLIENTS)
    rest = [each for each in observed[cut:] if isinstance(each.sample, Sample)]
    seen = TrainingSet.in_time(REQUESTS, samples_of(observed[:cut]))
    unseen = TrainingSet.of(REQUESTS, samples_of(rest))
    models = LearnedModels(train([seen], SEED, created_unix_s=0.0))
    predictions = models.predict(np.array([each.row for each in rest]))
    everything = np.full(len(rest), True)
    steady = unseen.labels_of(Target.TPOT) > HELD_BACK * np.median(seen.labels_of(Target.TPOT))
    ttft = score(Target.TTFT, seen, unseen, predictions, everything)
    tpot = score(Target.TPOT, seen, unseen, predictions, steady)
    tpot_of_all = score(Target.TPOT, seen, unseen, predictions, everything)
    say(table(observed, {"TTFT": ttft, "TPOT": tpot, "TPOT, with those held back": tpot_of_all}))
    assert steady.mean() > 0.75
    assert ttft.learned < 0.9 * ttft.constant
    assert tpot.learned < 1.1 * tpot.constant


def samples_of(observed: Sequence[Observed]) -> list[Sample]:
    """Those that may be learned from."""
    return [each.sample for each in observed if isinstance(each.sample, Sample)]


def score(
    target: Target, seen: TrainingSet, unseen: TrainingSet, predictions: Predictions, counts: NDArray[np.bool_]
) -> Score:
    """Errors on those of the unseen that count."""
    true = unseen.labels_of(target)[counts]
    usual = np.full(len(true), np.median(seen.labels_of(target)))
    return Score(
        n=len(true),
        learned=float(relative_errors(predictions.typical_of(target)[counts], true).mean()),
        constant=float(relative_errors(usual, true).mean()),
        coverage=float(np.mean(true <= predictions.q90_of(target)[counts])),
        median_seconds=float(np.median(true)),
    )


def table(observed: list[Observed], scores: dict[str, Score]) -> str:
    """For the terminal."""
    lines = [f"{len(observed)} requests", f"{'':26}{'n':>6}{'learned':>10}{'constant':>10}{'q90':>8}{'median':>11}"]
    lines += [
        f"{name:26}{s.n:6}{s.learned:10.1%}{s.constant:10.1%}{s.coverage:8.1%}{s.median_seconds * 1e3:8.1f} ms"
        for name, s in scores.items()
    ]
    return "\n".join(lines)
