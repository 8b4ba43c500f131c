"""The solver's process: real ones, that answer, die, stall, lie and fail."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import fields

import numpy as np
import pytest
from tests.unit.epp.region.builders import job

from heliotrope.place.assignment import Assignment, Outcome
from heliotrope_epp.region.solver import COMMAND, NoAssignmentError, SolverProcess
from heliotrope_epp.region.wire import (
    LENGTH_BYTES,
    InvalidFrameError,
    Solved,
    job_from_bytes,
    job_to_bytes,
    solved_from_bytes,
    solved_to_bytes,
)

COMPILED_SECONDS = 240.0
"""On a busy machine that has never compiled the solvers."""
READY_FRAME = solved_to_bytes(Solved(0, 0.0, None))
SILENT = (
    sys.executable,
    "-c",
    f"import sys, time; sys.stdout.buffer.write({READY_FRAME!r}); sys.stdout.flush(); time.sleep(600)",
)
LIAR = (sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\0\\0\\0\\3abc'); sys.stdout.flush(); input()")


@asynccontextmanager
async def running(command: tuple[str, ...] = COMMAND) -> AsyncIterator[SolverProcess]:
    solver = SolverProcess(clock=time.monotonic, command=command)
    solver.start()
    try:
        yield solver
    finally:
        await solver.close()


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def test_windows_and_assignments_survive_the_wire() -> None:
    before = job()
    after = job_from_bytes(job_to_bytes(before)[LENGTH_BYTES:])
    assert (after.number, after.scheduler, after.policy, after.now_unix_s) == (
        before.number,
        before.scheduler,
        before.policy,
        before.now_unix_s,
    )
    for columns in ("window", "regions"):
        one, other = getattr(before, columns), getattr(after, columns)
        for field in fields(one):
            np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))
    found = Assignment(np.array([1, -1]), np.array([0, 4]), Outcome.OPTIMAL, float("nan"), 0.0, 7, True, object())
    solved = solved_from_bytes(solved_to_bytes(Solved(3, 0.5, found))[LENGTH_BYTES:])
    assert solved.assignment is not None
    assert solved.assignment.regions.tolist() == [1, -1]
    assert (solved.assignment.outcome, solved.assignment.work) == (Outcome.OPTIMAL, 7)
    assert np.isnan(solved.assignment.objective)
    assert solved.assignment.memory is None


@pytest.mark.parametrize("body", [b"", b"\x80", b"\xc1", b"\x93\x01\x02\x03"])
def test_garbage_is_no_message(body: bytes) -> None:
    with pytest.raises(InvalidFrameError):
        job_from_bytes(body)
    with pytest.raises(InvalidFrameError):
        solved_from_bytes(body)


@pytest.mark.slow
@pytest.mark.timeout(2 * COMPILED_SECONDS)
async def test_it_assigns_and_a_failure_in_it_costs_that_window_only() -> None:
    async with running() as solver:
        await until(lambda: solver.ready, COMPILED_SECONDS)
        solved = await solver.solve(job(solver.next_number()), 60.0)
        assert solved.assignment is not None
        assert solved.assignment.regions.tolist() == [1, 1, 1]
        with pytest.raises(NoAssignmentError, match="KeyError") as caught:
            await solver.solve(job(solver.next_number(), scheduler="Unheard"), 60.0)
        assert caught.value.reason == "failed"
        assert (await solver.solve(job(solver.next_number()), 60.0)).assignment is not None
        assert solver.starts == 1


@pytest.mark.slow
@pytest.mark.timeout(2 * COMPILED_SECONDS)
async def test_one_that_is_killed_comes_back() -> None:
    async with running() as solver:
        await until(lambda: solver.ready, COMPILED_SECONDS)
        await solver.solve(job(solver.next_number()), 60.0)
        assert solver.pid is not None
        os.kill(solver.pid, signal.SIGKILL)
        await until(lambda: solver.starts == 2 and solver.ready, COMPILED_SECONDS)
        solved = await solver.solve(job(solver.next_number()), 60.0)
        assert solved.assignment is not None
        assert solver.ends["died"] == 1


async def test_without_a_process_nothing_is_waited_for() -> None:
    async with running((sys.executable + "-of-nowhere",)) as solver:
        with pytest.raises(NoAssignmentError) as caught:
            await solver.solve(job(), 60.0)
        assert caught.value.reason == "starting"
        await until(lambda: solver.ends["start"] >= 1)


async def test_a_silent_one_is_late_then_busy_and_one_that_dies_says_so_at_once() -> None:
    async with running(SILENT) as solver:
        await until(lambda: solver.ready)
        with pytest.raises(NoAssignmentError) as late:
            await solver.solve(job(1), 0.05)
        with pytest.raises(NoAssignmentError) as busy:
            await solver.solve(job(2), 60.0)
        assert (late.value.reason, busy.value.reason) == ("deadline", "busy")
    async with running(SILENT) as solver:
        await until(lambda: solver.ready)
        waiting = asyncio.create_task(solver.solve(job(1), 60.0))
        await asyncio.sleep(0)
        assert solver.pid is not None
        os.kill(solver.pid, signal.SIGKILL)
        with pytest.raises(NoAssignmentError) as died:
            await waiting
        assert died.value.reason == "died"


async def test_one_that_talks_nonsense_is_replaced() -> None:
    async with running(LIAR) as solver:
        await until(lambda: solver.ends["garbage"] >= 1)
