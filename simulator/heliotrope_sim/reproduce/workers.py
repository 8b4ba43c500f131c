"""Runs the independent parts of a study on several processes or machines, with a bar of progress.

Results come in the order of the tasks, whoever finishes first, so that where they ran changes nothing. With a store,
parts that are done already are not run again.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from heliotrope_sim.reproduce.store import PartStore

Task = TypeVar("Task")
Result = TypeVar("Result")


class Workers:
    """Maps functions over tasks; without a pool in this process."""

    def __init__(self, pool: Executor | None, progress: Progress, store: PartStore | None = None) -> None:
        self._pool = pool
        self._progress = progress
        self._store = store

    def map(self, name: str, function: Callable[[Task], Result], tasks: Sequence[Task]) -> list[Result]:
        """The results in the order of the tasks. Where there is no terminal for a bar, a line tells of each call.

        Args:
            name: on the bar.
            function: of a module, so that another process finds it. With a store its result may depend on nothing but
                the task, the code and the data that ship.
            tasks: picklable.
        """
        names, found = self._known(function, tasks)
        if not self._progress.console.is_terminal:
            known = f", {len(found)} of them done before" if found else ""
            self._progress.console.print(f"{name}: {len(tasks)} parts{known}", highlight=False)
        bar = self._progress.add_task(name, total=len(tasks), completed=len(found))
        missing = [i for i in range(len(tasks)) if i not in found]
        if self._pool is None:
            for i in missing:
                found[i] = self._kept(names[i], function(tasks[i]))
                self._progress.advance(bar)
            return [found[i] for i in range(len(tasks))]
        futures: dict[Future[Result], int] = {self._pool.submit(function, tasks[i]): i for i in missing}
        for future in as_completed(futures):
            i = futures[future]
            found[i] = self._kept(names[i], future.result())
            self._progress.advance(bar)
        return [found[i] for i in range(len(tasks))]

    def _known(
        self, function: Callable[[Task], Result], tasks: Sequence[Task]
    ) -> tuple[list[str | None], dict[int, Result]]:
        """The names of all parts, and the results of those that are done already by position."""
        if self._store is None:
            return [None] * len(tasks), {}
        names = [self._store.name(function, task) for task in tasks]
        found = {}
        for i, name in enumerate(names):
            known, result = self._store.find(name)
            if known:
                found[i] = result
        return names, found

    def _kept(self, name: str | None, result: Result) -> Result:
        if self._store is not None:
            self._store.keep(name, result)
        return result


@contextmanager
def workers(
    jobs: int,
    console: Console,
    *,
    store: PartStore | None = None,
    cluster: AbstractContextManager[Executor] | None = None,
) -> Iterator[Workers]:
    """Processes for the time of a block. When it is left early, by Ctrl-C or an error, they are stopped at once.

    Args:
        jobs: processes; 1: everything runs in this one.
        console: gets the bars.
        store: of parts that are done; None: every part is run.
        cluster: runs the parts in place of processes here (`heliotrope_sim.reproduce.cluster.connected`).
    """
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        if cluster is not None:
            with cluster as machines:
                yield Workers(machines, progress, store)
            return
        if jobs <= 1:
            yield Workers(None, progress, store)
            return
        # Spawned, because threads of the bar do not survive a fork.
        context = multiprocessing.get_context("spawn")
        before = set(multiprocessing.active_children())
        pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_ignore_interrupts)
        try:
            yield Workers(pool, progress, store)
            pool.shutdown()
        except BaseException:
            for child in set(multiprocessing.active_children()) - before:
                child.terminate()
            # Waits for the pool's own thread, which reaps these processes: one that still does so while the interpreter
            # ends trips over closed pipes.
            pool.shutdown(cancel_futures=True)
            raise


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _ignore_interrupts() -> None:
    """Ctrl-C reaches the whole group; the parent ends its children."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
