"""SIGKILL at random moments: what is on disk afterwards is whole, and misses no more than was promised."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parents[3]
INTERVAL_S = 0.3
WRITE_S = 0.5
"""A write of this window may take as long on a busy machine; it adds to the interval."""

LEARNER = f"""
import asyncio, sys, time
from pathlib import Path
from random import Random
from heliotrope.predict.schedule import SchedulePolicy
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.learner import Learner
from heliotrope_epp.learning.settings import LearningSettings, TrainingSettings
from tests.contract.learning.processes import feed

async def main():
    training = TrainingSettings(SchedulePolicy(first_after=10**9), tick_s=0.02, snapshot_interval_s={INTERVAL_S})
    learner = Learner(LearningSettings(Path(sys.argv[1]), training=training), clock=Clock(), random=Random())
    await learner.prepare()
    task = asyncio.create_task(learner.run())
    for i in range(10**9):
        feed(learner, 1, seed=i + time.time_ns() % 10**9)
        print(time.time(), flush=True)
        await asyncio.sleep(0.004)

asyncio.run(main())
"""

SAVING = """
import sys
from pathlib import Path
from heliotrope.predict.bundle import Bundle
from heliotrope.predict.targets import REQUESTS
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.store import Store
from tests.unit.epp.learning.builders import samples

models = train([TrainingSet.of(REQUESTS, samples(200))], 1, 0.0, TrainingConfig(trees=3)).models
store = Store(StateFolder(Path(sys.argv[1])))
for created in range(10, 10**9):
    assert store.save_models(Bundle(float(created), models), Bundle(float(created - 1), models), ())
    print(created, flush=True)
"""


def run_and_kill(program: str, folder: Path, after_s: float) -> list[str]:
    """The lines that a program printed until it was killed this long after the first."""
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first, "it ended"
        time.sleep(after_s)
        process.kill()
        return [first.strip(), *process.stdout.read().splitlines()]


def test_a_killed_picker_loses_at_most_the_samples_of_one_interval(tmp_path: Path) -> None:
    rng = random.Random(1)
    before = 0
    for _ in range(4):
        times = [float(line) for line in run_and_kill(LEARNER, tmp_path, rng.uniform(0.8, 2.0))]
        old = sum(each < times[-1] - INTERVAL_S - WRITE_S for each in times)
        store = Store(StateFolder(tmp_path / "learning"))
        windows = {window.table.name: len(window) for window in store.load().windows}
        assert not store.refused
        kept = windows.get("requests", 0)
        assert before + old <= kept <= before + len(times)
        before = kept
    assert before > 0


def test_a_killed_write_leaves_the_old_models_or_the_new_ones(tmp_path: Path) -> None:
    rng = random.Random(2)
    for _ in range(4):
        lines = run_and_kill(SAVING, tmp_path, rng.uniform(0.05, 0.6))
        store = Store(StateFolder(tmp_path))
        learned = store.load()
        assert not store.refused
        assert learned.previous is not None
        assert learned.current.created_unix_s == learned.previous.created_unix_s + 1.0
        assert learned.current.created_unix_s - float(lines[-1]) in (0.0, 1.0)
