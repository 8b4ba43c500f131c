"""The solver's process as the loop sees it: one window at a time, a deadline for each, restarted when it dies."""

import asyncio
import contextlib
import logging
import os
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence

from heliotrope.errors import HeliotropeError
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.region.wire import (
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    READY,
    InvalidFrameError,
    Job,
    Solved,
    job_to_bytes,
    solved_from_bytes,
)

COMMAND = (sys.executable, "-m", "heliotrope_epp.region.worker")
STUCK_AFTER_S = 10.0
"""A solver that has not answered for so long after its deadline is killed: it holds up every window after."""
READY_AFTER_S = 300.0
"""To load and compile: seconds on a machine that has done it before, minutes on a busy one that has not."""
FIRST_RESTART_S = 0.1
LONGEST_RESTART_S = 10.0

_log = logging.getLogger(__name__)


class NoAssignmentError(HeliotropeError):
    """There is no assignment. `reason` is one of `starting`, `busy`, `deadline`, `died`, `failed`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class SolverProcess:
    """Owned by the loop's thread. `start` returns at once; until the process is ready, every job fails."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        command: Sequence[str] = COMMAND,
        rng: random.Random | None = None,
    ) -> None:
        self._clock = clock
        self._command = tuple(command)
        self._backoff = Backoff(FIRST_RESTART_S, LONGEST_RESTART_S, rng or random.Random())
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._answer: asyncio.Future[Solved] | None = None
        self._ready = False
        self._number = 0
        self._owed: int | None = None
        """The job that the process still works on, whoever waits for it or not."""
        self._owed_until_s = 0.0
        self.starts = 0
        self.ends: Counter[str] = Counter()
        """Processes that ended, by why: `died`, `stuck`, `garbage`, `start`."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    @property
    def ready(self) -> bool:
        """Whether it takes jobs: its code is compiled."""
        return self._ready

    def start(self) -> None:
        """Begin to keep a process running; once is enough."""
        if self._task is None:
            self._task = tasks.start(self._keep(), "solver")

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def next_number(self) -> int:
        """For the next job."""
        self._number += 1
        return self._number

    async def solve(self, job: Job, seconds: float) -> Solved:
        """The result of a job.

        Raises:
            NoAssignmentError: if there is none within so many seconds.
        """
        process = self._process
        if process is None or process.stdin is None or not self._ready:
            raise NoAssignmentError("starting", "the solver's process is not ready")
        if self._owed is not None:
            raise NoAssignmentError("busy", "the solver still works on an earlier window")
        self._owed, self._owed_until_s = job.number, self._clock() + seconds + STUCK_AFTER_S
        answer: asyncio.Future[Solved] = asyncio.get_running_loop().create_future()
        self._answer = answer
        try:
            async with asyncio.timeout(seconds):
                process.stdin.write(job_to_bytes(job))
                await process.stdin.drain()
                solved = await answer
        except TimeoutError:
            raise NoAssignmentError("deadline", f"no assignment within {seconds:.3f} s") from None
        except OSError as error:
            raise NoAssignmentError("died", f"its pipe broke: {error}") from error
        finally:
            self._answer = None
        if solved.assignment is None:
            raise NoAssignmentError("failed", solved.problem or "it gave no reason")
        return solved

    async def _keep(self) -> None:
        while True:
            reason = await self._run_one()
            self.ends[reason] += 1
            pause_s = self._backoff.failed()
            _log.warning("solver ended", extra={"fields": {"why": reason, "restart_seconds": round(pause_s, 3)}})
            await asyncio.sleep(pause_s)

    async def _run_one(self) -> str:
        """Start a process and take what it says until it ends; why it did."""
        try:
            process = await self._started()
        except OSError as error:
            _log.error("solver cannot start: %s", error)
            return "start"
        self.starts += 1
        self._owed, self._owed_until_s = READY, self._clock() + READY_AFTER_S
        self._process = process
        listening = asyncio.create_task(self._listen(process))
        try:
            while not listening.done():
                await asyncio.wait({listening}, timeout=1.0)
                if self._stuck():
                    return "stuck"
            return listening.result()
        finally:
            self._process = None
            self._owed, self._ready = None, False
            listening.cancel()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(NoAssignmentError("died", "the solver's process ended"))
            await _ended(process)

    def _stuck(self) -> bool:
        return self._owed is not None and self._clock() > self._owed_until_s

    async def _started(self) -> asyncio.subprocess.Process:
        """A new process; told to stop in the middle of it, it ends what it has begun."""
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *self._command,
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        )
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError):
                await _ended(await starting)
            raise

    async def _listen(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        while True:
            try:
                size = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES), "big")
                if size > MAX_FRAME_BYTES:
                    return "garbage"
                solved = solved_from_bytes(await process.stdout.readexactly(size))
            except asyncio.IncompleteReadError:
                return "died"
            except InvalidFrameError:
                return "garbage"
            if solved.number != self._owed:
                return "garbage"
            self._owed, self._ready = None, True
            if solved.number != READY:
                self._backoff.succeeded()
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(solved)


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Kill it and wait until it is gone, whoever stops waiting meanwhile."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    if process.stdin is not None:
        process.stdin.close()
    gone = asyncio.ensure_future(process.wait())
    try:
        await asyncio.shield(gone)
    except asyncio.CancelledError:
        await gone
        raise
