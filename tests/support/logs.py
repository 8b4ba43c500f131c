"""The process' logging, left as it was found."""

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def logging_kept() -> Iterator[None]:
    """What is done within to the root logger's handlers and to loggers' levels is undone.

    A command that a test calls sends the logs of its process to stderr. There that is what pytest captures for one
    test: whatever logs later in the same process, for another test, would write to a closed stream.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {log: log.level for log in root.manager.loggerDict.values() if isinstance(log, logging.Logger)}
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for log, before in levels.items():
            log.setLevel(before)
