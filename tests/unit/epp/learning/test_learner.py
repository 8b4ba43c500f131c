import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from tests.unit.epp.learning.builders import NOW_UNIX, energy, finished, metered, metered_steps, row, samples

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.models import LearnedModels, Level
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import REQUESTS, STEPS, Target
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.client import etag_of
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.learner import SUBFOLDER, Learner
from heliotrope_epp.learning.settings import LearningSettings
from heliotrope_epp.learning.store import Store
from heliotrope_epp.outcomes.energy import NoSteps
from heliotrope_epp.transport.interface import Cause

CLOCK = Clock(unix=lambda: NOW_UNIX + 1.0)


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return train([TrainingSet.of(REQUESTS, samples(200))], 1, NOW_UNIX - 50.0, TrainingConfig(trees=3))


@contextlib.asynccontextmanager
async def running(**settings: Any) -> AsyncIterator[Learner]:
    learner = Learner(LearningSettings(**settings), clock=CLOCK, random=Random(1))
    task = asyncio.create_task(learner.run())
    await asyncio.sleep(0)
    try:
        yield learner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition: Any, seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def value(learner: Learner, name: str, labels: dict[str, str] | None = None) -> float | None:
    registry = CollectorRegistry()
    registry.register(learner.collector())
    return registry.get_sample_value(f"heliotrope_learning_{name}", labels or {})


def feed(learner: Learner, count: int) -> None:
    rng = np.random.default_rng(5)
    for i in range(count):
        learner.measured(finished(row(rng), request_id=f"r{i}"), energy())


async def test_requests_go_into_the_window_and_the_rest_is_counted_by_reason(tmp_path: Path) -> None:
    async with running(state_dir=tmp_path) as learner:
        feed(learner, 5)
        learner.measured(finished(None), energy())
        learner.measured(finished(row(np.random.default_rng(1)), cause=Cause.DISCONNECTED), None)
        await until(lambda: value(learner, "window_samples", {"table": "requests"}) == 5)
        assert value(learner, "samples_total") == 5
        assert value(learner, "dropped_samples_total", {"reason": "no-features"}) == 1
        assert value(learner, "dropped_samples_total", {"reason": "incomplete"}) == 1
        assert value(learner, "source", {"target": "ttft_seconds", "source": "analytic"}) == 1
        assert value(learner, "model_age_seconds") is None
        document = learner.document()
        assert document["samples"]["accepted"] == 5
        assert document["samples"]["refused"] == {"no-features": 1, "incomplete": 1}
        assert document["models"] is None
        assert document["windows"]["requests"]["samples"] == 5
    (window, *_) = Store(StateFolder(tmp_path / SUBFOLDER)).load().windows
    assert len(window) == 5


async def test_without_a_folder_it_says_that_nothing_is_kept() -> None:
    async with running() as learner:
        assert value(learner, "state_kept") == 0
        assert learner.document()["state"]["path"] is None


async def test_metrics_tell_age_error_coverage_and_who_answers(bundle: Bundle) -> None:
    async with running() as learner:
        hardware = 7
        levels = {(Target.TTFT, hardware): Level.PREVIOUS, (Target.TPOT, hardware): Level.ANALYTIC}
        learner.holder.current = LearnedModels(bundle, bundle, levels)
        scores = bundle.models[Target.TTFT].scores
        ttft = {"target": "ttft_seconds"}
        assert value(learner, "model_age_seconds") == 51.0
        assert value(learner, "held_out_error_ratio", ttft) == scores.mape
        assert value(learner, "analytic_error_ratio", ttft) == scores.analytic_mape
        assert value(learner, "coverage_ratio", ttft) == scores.coverage
        assert value(learner, "drifted_hardware", ttft) == 1
        for target, answers in (
            ("ttft_seconds", "previous"),
            ("tpot_seconds", "analytic"),
            ("request_joules", "learned"),
            ("step_joules", "analytic"),
        ):
            for source in ("learned", "previous", "analytic"):
                expected = float(source == answers)
                assert value(learner, "source", {"target": target, "source": source}) == expected
        assert {"target": "tpot_seconds", "hardware": 7, "answers": "analytic"} in learner.document()["drifted"]


async def test_a_shared_model_answers_survives_the_trainer_and_a_poisoned_one_changes_nothing(
    tmp_path: Path, bundle: Bundle
) -> None:
    served = [bundle.to_text().encode()]

    async def download(request: web.Request) -> web.Response:
        return web.Response(body=served[0], headers={"ETag": etag_of(served[0])})

    app = web.Application()
    app.router.add_get("/model/download", download)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    async with running(state_dir=tmp_path, trainer_url=url) as learner:
        await until(lambda: learner.holder.current.targets)
        assert learner.holder.current.current.digest == bundle.digest
        assert value(learner, "trainer_up") == 1
        await until(lambda: Store(StateFolder(tmp_path / SUBFOLDER)).load().current.digest == bundle.digest)
        await until(lambda: value(learner, "model_polls_total", {"result": "new"}) == 1)
    served[0] = served[0].replace(b"leaf_value=", b"leaf_valve=")
    async with running(state_dir=tmp_path, trainer_url=url) as learner:
        await until(lambda: value(learner, "model_polls_total", {"result": "refused"}) == 1)
        assert learner.holder.current.current.digest == bundle.digest
    await runner.cleanup()
    async with running(state_dir=tmp_path, trainer_url=url) as learner:
        feed(learner, 3)
        await until(lambda: value(learner, "trainer_up") == 0)
        assert learner.holder.current.current.digest == bundle.digest
        assert value(learner, "queued_samples") == 3
        assert set(learner.document()["trainer"]["problems"]) <= {"model", "samples"}


async def test_a_defect_ends_learning_visibly_and_the_models_stay(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defect(*_: object) -> None:
        raise ZeroDivisionError

    learner = Learner(LearningSettings(), clock=CLOCK, random=Random(1))
    task = asyncio.create_task(learner.run())
    await until(lambda: value(learner, "running") == 1)
    learner.holder.current = LearnedModels(bundle)
    monkeypatch.setattr("heliotrope_epp.learning.trainer.TrainingSchedule.due", defect)
    with pytest.raises(ExceptionGroup):
        await asyncio.wait_for(task, 20.0)
    assert value(learner, "running") == 0
    assert learner.holder.current.targets
    feed(learner, 2_000)


async def test_intervals_go_into_the_window_of_steps_and_the_rest_is_counted_by_reason(tmp_path: Path) -> None:
    async with running(state_dir=tmp_path) as learner:
        for interval in metered_steps(4):
            learner.metered(interval)
        learner.metered(metered(steps=NoSteps.UNCOUNTED))
        learner.metered(metered(steps=NoSteps.IDLE))
        learner.metered(metered(end_unix_s=NOW_UNIX + 900.0))
        await until(lambda: value(learner, "window_samples", {"table": "steps"}) == 4)
        assert value(learner, "step_samples_total") == value(learner, "samples_total") == 4
        for reason in ("uncounted", "idle", "clock-jump"):
            assert value(learner, "dropped_intervals_total", {"reason": reason}) == 1
        found = learner.document()["samples"]
        assert found["steps"] == 4
        assert found["refused_intervals"] == {"uncounted": 1, "idle": 1, "clock-jump": 1}
    windows = {window.table: len(window) for window in Store(StateFolder(tmp_path / SUBFOLDER)).load().windows}
    assert windows[STEPS] == 4, "they survive a restart"


async def test_only_intervals_that_teach_count_among_an_endpoints_neighbours() -> None:
    learner = Learner(LearningSettings(trainer_url="http://127.0.0.1:1"), clock=CLOCK, random=Random(1))
    sent: list[Sample] = []
    learner._teacher.add = sent.extend  # type: ignore[method-assign]
    for i, interval in enumerate(metered_steps(30)):
        learner.metered(interval if i % 3 == 0 else metered(steps=NoSteps.IDLE))
    assert [sample.key for sample in sent] == ["pod-1 0"] * 10
