"""Trainers and pickers' learners as the processes that they are, and what they are fed with."""

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.unit.epp.learning.builders import energy, finished, metered_steps, row, truth

from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.learner import Learner
from heliotrope_epp.learning.settings import LearningSettings
from heliotrope_epp.outcomes.finished import FinishedRequest

START_SECONDS = 60.0


class TrainerProcess:
    """`heliotrope trainer` on a port that stays the same over restarts."""

    def __init__(self, state_dir: Path, port: int = 0) -> None:
        self._state_dir = state_dir
        self.port = port
        self.metrics_port = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        with (self._state_dir.parent / "trainer.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "heliotrope_cli.main", "trainer", "--announce", "--host=127.0.0.1"),
                *(f"--port={self.port}", "--metrics-port=0", f"--state-dir={self._state_dir}"),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            ports = json.loads(await self._process.stdout.readline())
        self.port, self.metrics_port = ports["port"], ports["metrics_port"]

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait; returns the exit code."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        async with asyncio.timeout(30.0):
            return await self._process.wait()


@contextlib.asynccontextmanager
async def trainer(state_dir: Path) -> AsyncIterator[TrainerProcess]:
    process = TrainerProcess(state_dir)
    await process.start()
    try:
        yield process
    finally:
        await process.end(signal.SIGKILL)


@contextlib.asynccontextmanager
async def learner(**settings: Any) -> AsyncIterator[Learner]:
    """A picker's learner in this process."""
    found = Learner(LearningSettings(**settings), clock=Clock(), random=Random())
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def requests(count: int, seed: int) -> list[FinishedRequest]:
    """Requests that ended just now; latency as `builders.truth` says."""
    now_unix_s = Clock().unix()
    rng = np.random.default_rng(seed)
    found = []
    for i in range(count):
        values = row(rng)
        ttft, tpot, _ = (each * rng.normal(1.0, 0.02) for each in truth(values))
        end = ttft + 10.0 * tpot
        found.append(
            finished(
                values,
                request_id=f"{seed}-{i}",
                first_s=100.0 + ttft,
                last_s=100.0 + end,
                ended_s=100.0 + end,
                dispatched_unix_s=now_unix_s - end,
                ended_unix_s=now_unix_s,
            )
        )
    return found


def feed(to: Learner, count: int, seed: int) -> None:
    for request in requests(count, seed):
        to.measured(request, energy())


def feed_steps(to: Learner, count: int, seed: int) -> None:
    for interval in metered_steps(count, seed, Clock().unix(), endpoint=f"pod-{seed}"):
        to.metered(interval)


async def until(condition: Callable[[], Any], seconds: float = 180.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)
