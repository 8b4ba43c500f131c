"""Background tasks whose failure is seen."""

import asyncio
import logging
from collections.abc import Coroutine

_log = logging.getLogger(__name__)


def start(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
    """A task of the running loop; should it fail, the log has the traceback at once, whoever awaits it or not."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_report)
    return task


class KeyedTasks:
    """One task per key, for what is followed from when it comes until it goes."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    def start(self, key: str, work: Coroutine[object, object, None], name: str) -> None:
        """Begin the work of a key that has none."""
        self._tasks[key] = start(work, name)

    def stop(self, key: str) -> None:
        """Cancel the work of a key; nothing, where it has none."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all and wait for their ends."""
        running = list(self._tasks.values())
        self._tasks.clear()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task %r failed", task.get_name(), exc_info=error)
