import logging

import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, samples

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.models import LearnedModels, Level
from heliotrope.predict.targets import REQUESTS, Target
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.learning.drift import MAX_WAITING, DriftWatch, worst_levels
from heliotrope_epp.learning.holder import ModelHolder


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return train([TrainingSet.of(REQUESTS, samples(400))], 1, NOW_UNIX)


def watching(bundle: Bundle, previous: Bundle | None = None) -> tuple[ModelHolder, DriftWatch]:
    holder = ModelHolder(LearnedModels(bundle, previous))
    return holder, DriftWatch(holder)


def observe(watch: DriftWatch, slower: float, rounds: int = 4) -> int:
    drifts = 0
    for seed in range(rounds):
        for each in samples(MAX_WAITING, seed=100 + seed, slower=slower):
            watch.add(each)
        drifts += len(watch.observe())
    return drifts


def test_a_model_that_holds_keeps_answering(bundle: Bundle) -> None:
    holder, watch = watching(bundle)
    assert observe(watch, slower=1.0) == 0
    assert holder.current.levels == {}
    assert worst_levels(holder) == dict.fromkeys((t.value for t in holder.current.targets), Level.CURRENT)


def test_a_model_that_no_longer_holds_gives_way_until_a_training_is_judged(
    bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    holder, watch = watching(bundle)
    before = holder.current
    with caplog.at_level(logging.WARNING):
        assert observe(watch, slower=3.0) == 3, "each target once"
    assert len(caplog.records) == 3, "told on transitions only"
    assert set(holder.current.levels.values()) == {Level.ANALYTIC}
    assert watch.drifts["ttft_seconds", "analytic"] == 1
    assert worst_levels(holder)[Target.TTFT.value] is Level.ANALYTIC
    assert before.levels == {}, "who has read the old ones keeps them"
    watch.judged()
    assert holder.current.levels == {}
    assert observe(watch, slower=3.0) == 3, "and it is watched again"


def test_the_previous_model_answers_if_it_errs_less(bundle: Bundle) -> None:
    slow = train([TrainingSet.of(REQUESTS, samples(400, slower=3.0))], 1, NOW_UNIX)
    holder, watch = watching(bundle, previous=slow)
    observe(watch, slower=3.0)
    assert set(holder.current.levels.values()) == {Level.PREVIOUS}


def test_a_flood_of_samples_is_looked_at_in_part(bundle: Bundle) -> None:
    _, watch = watching(bundle)
    for each in samples(10 * MAX_WAITING, slower=3.0):
        watch.add(each)
    watch.observe()
    assert watch.observe() == []
    assert len(watch._waiting) == 0


def test_without_models_there_is_nothing_to_watch() -> None:
    holder = ModelHolder()
    watch = DriftWatch(holder)
    assert observe(watch, slower=3.0) == 0
    assert worst_levels(holder) == {}
