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


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("task %r failed", task.get_name(), exc_info=error)
