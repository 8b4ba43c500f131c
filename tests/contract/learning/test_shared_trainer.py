"""Two pickers' learners and one trainer: real HTTP, real training processes, real kills."""

import asyncio
import os
import signal
from pathlib import Path

import aiohttp
import pytest
from tests.contract.learning.processes import TrainerProcess, feed, feed_steps, learner, trainer, until

from heliotrope.predict.targets import Target
from heliotrope_epp.learning.learner import Learner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


async def children(pid: int) -> list[int]:
    text = await asyncio.to_thread(Path(f"/proc/{pid}/task/{pid}/children").read_text)
    threads = await asyncio.to_thread(lambda: list(Path(f"/proc/{pid}/task").iterdir()))
    found = {int(each) for each in text.split()}
    for thread in threads:
        try:
            found |= {int(each) for each in (thread / "children").read_text().split()}
        except OSError:
            continue
    return sorted(found)


async def training_of(process: TrainerProcess) -> int:
    """Process id of the training that the trainer has started."""
    async with asyncio.timeout(60.0):
        while True:
            found = await children(process.pid)
            if found:
                return found[0]
            await asyncio.sleep(0.005)


async def said(process: TrainerProcess, path: str) -> dict[str, object]:
    async with aiohttp.ClientSession() as session, session.get(process.url + path) as answer:
        result: dict[str, object] = await answer.json()
        return result


def digest(of: Learner) -> str:
    return of.holder.current.current.digest


async def test_two_pickers_share_one_trainer_and_get_the_same_models(tmp_path: Path) -> None:
    async with (
        trainer(tmp_path / "state") as process,
        learner(trainer_url=process.url) as one,
        learner(trainer_url=process.url) as other,
    ):
        feed(one, 200, seed=1)
        assert not one.holder.current.targets
        feed(other, 200, seed=2)
        await until(lambda: one.holder.current.targets and other.holder.current.targets)
        info = await said(process, "/model/info")
        assert digest(one) == digest(other) == info["digest"]
        status = await said(process, "/data/status")
        assert status["accepted"] == 400
        assert await process.end() == 0, "SIGTERM is an orderly end"


async def test_steps_of_two_pickers_make_one_model(tmp_path: Path) -> None:
    async with (
        trainer(tmp_path / "state") as process,
        learner(trainer_url=process.url) as one,
        learner(trainer_url=process.url) as other,
    ):
        feed_steps(one, 200, seed=1)
        feed_steps(other, 200, seed=2)
        await until(lambda: Target.STEP_ENERGY in other.holder.current.targets)
        await until(lambda: digest(one) == digest(other))
        scores = one.holder.current.current.models[Target.STEP_ENERGY].scores
        assert scores.mape < 0.1 < scores.analytic_mape
        status = await said(process, "/data/status")
        assert status["windows"]["steps"]["samples"] == 400  # type: ignore[index]
        assert one.document()["samples"]["steps"] == 200
        assert (await said(process, "/debug/state"))["samples"]["steps"] == 400  # type: ignore[index]


async def test_a_training_that_is_killed_is_tried_again(tmp_path: Path) -> None:
    async with trainer(tmp_path / "state") as process, learner(trainer_url=process.url) as one:
        feed(one, 300, seed=1)
        child = await training_of(process)
        await until(lambda: os.getpriority(os.PRIO_PROCESS, child) == 19, 30.0)
        os.kill(child, signal.SIGKILL)
        await until(lambda: one.holder.current.targets)
        state = await said(process, "/debug/state")
        results = [each["result"] for each in state["trainings"]]  # type: ignore[attr-defined]
        assert results == ["killed", "promoted"]


async def test_a_trainer_killed_in_training_is_caught_up_with_when_it_is_back(tmp_path: Path) -> None:
    async with (
        trainer(tmp_path / "state") as process,
        learner(trainer_url=process.url, state_dir=tmp_path / "one") as one,
        learner(trainer_url=process.url, state_dir=tmp_path / "other") as other,
    ):
        feed(one, 300, seed=1)
        await until(lambda: one.holder.current.targets and other.holder.current.targets)
        before = digest(one)
        feed(one, 1_000, seed=2)
        child = await training_of(process)
        await process.end(signal.SIGKILL)
        await until(lambda: not Path(f"/proc/{child}").exists(), 10.0)
        feed(other, 1_100, seed=3)
        await asyncio.sleep(2.0)
        assert digest(one) == digest(other) == before, "they keep what they have"
        assert other.document()["trainer"]["waiting_samples"] == 1_100  # type: ignore[index]
        await process.start()
        await until(lambda: other.document()["trainer"]["waiting_samples"] == 0)  # type: ignore[index]
        await until(lambda: digest(one) == digest(other) != before)


async def test_a_picker_that_starts_while_the_trainer_is_away_has_its_last_models(tmp_path: Path) -> None:
    async with trainer(tmp_path / "state") as process:
        async with learner(trainer_url=process.url, state_dir=tmp_path / "one") as one:
            feed(one, 300, seed=1)
            await until(lambda: one.holder.current.targets)
            before = digest(one)
        await process.end(signal.SIGKILL)
        async with learner(trainer_url=process.url, state_dir=tmp_path / "one") as one:
            await until(lambda: one.holder.current.targets)
            assert digest(one) == before
