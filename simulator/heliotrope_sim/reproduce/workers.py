"""Runs the independent parts of a reproduction on several processes, with a bar of progress.

Results come in the order of the tasks, whoever finishes first, so that the number of processes changes nothing.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers:
    """Maps functions over tasks; without a pool in this process."""

    def __init__(self, pool: ProcessPoolExecutor | None, progress: Progress) -> None:
        self._pool = pool
        self._progress = progress

    def map(self, name: str, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results in the order of the tasks. Where there is no terminal for a bar, a line tells of each call.

        Args:
            name: on the bar.
            function: of a module, so that another process finds it.
            tasks: picklable.
        """
        if not self._progress.console.is_terminal:
            self._progress.console.print(f"{name}: {len(tasks)} parts", highlight=False)
        bar = self._progress.add_task(name, total=len(tasks))
        if self._pool is None:
            results = []
            for task in tasks:
                results.append(function(task))
                self._progress.advance(bar)
            return results
        futures: list[Future[Result]] = [self._pool.submit(function, task) for task in tasks]
        for future in as_completed(futures):
            future.result()
            self._progress.advance(bar)
        return [future.result() for future in futures]


@contextmanager
def workers(jobs: int, console: Console) -> Iterator[Workers]:
    """Processes for the time of a block. When it is left early, by Ctrl-C or an error, they are stopped at once.

    Args:
        jobs: processes; 1: everything runs in this one.
        console: gets the bars.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        if jobs <= 1:
            yield Workers(None, progress)
            return
        # Spawned, because threads of the bar do not survive a fork.
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_ignore_interrupts)
        try:
            yield Workers(pool, progress)
            pool.shutdown()
        except BaseException:
            children = set(multiprocessing.active_children()) - before
            pool.shutdown(wait=False, cancel_futures=True)
            for child in children:
                child.terminate()
            for child in children:
                child.join()
            raise


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group; the parent ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
