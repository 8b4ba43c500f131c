"""The one agent of a node: an `flock` in the state folder, which the kernel releases however its holder ends."""

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from heliotrope_agent.errors import AnotherAgentError, StateError

LOCK = "lock"
_MAX_BYTES = 4096


class Role(StrEnum):
    """Who holds the lock."""

    AGENT = "agent"
    WATCHDOG = "watchdog"
    RESTORE = "restore"
    """A human's `heliotrope agent --restore`."""
    CALIBRATE = "calibrate"
    """`heliotrope calibrate`, on a node that was given up for it."""


@dataclass(frozen=True, slots=True)
class LockHolder:
    """What the holder wrote into the file."""

    role: Role
    pid: int
    since_unix_s: float

    def __str__(self) -> str:
        since = datetime.fromtimestamp(self.since_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        return f"{self.role.value} with pid {self.pid}, since {since}"


class Lock:
    """The lock of a state folder."""

    def __init__(self, folder: Path, role: Role, wall_clock: Callable[[], float]) -> None:
        """`wall_clock` gives unix seconds."""
        self._path = folder / LOCK
        self._role = role
        self._wall_clock = wall_clock
        self._descriptor: int | None = None

    def take(self) -> None:
        """Take it, at once or not at all.

        Raises:
            AnotherAgentError: if somebody has it; the message says who.
            StateError: if the folder cannot be used.
        """
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateError(
                f"{self._path} cannot be opened: {error.strerror}; the state folder must be writable"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(descriptor)
            os.close(descriptor)
            raise AnotherAgentError(
                f"another process has the GPUs of this node: {holder or 'unknown'} holds {self._path}", holder
            ) from None
        self._descriptor = descriptor
        text = json.dumps({"role": self._role.value, "pid": os.getpid(), "since_unix_s": self._wall_clock()})
        with contextlib.suppress(
            OSError
        ):  # it says who, for messages alone; a full disk must not keep us from restoring
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, text.encode(), 0)

    def check(self) -> None:
        """See that it is still the one that others would take.

        Raises:
            StateError: if its file or folder was removed or replaced; then another agent may be at work.
        """
        if self._descriptor is None:
            return
        try:
            found = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            found = None
        except OSError:  # which says nothing of it
            return
        if found is not None and os.path.samestat(found, os.fstat(self._descriptor)):
            return
        raise StateError(
            f"{self._path} was removed or replaced while it was held, and with it what GPUs were before: nobody could "
            "put them back later, so they are put back now; leave the state folder alone while an agent runs"
        )

    def release(self) -> None:
        """Let it go."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Take it and let it go in the end.

        Raises:
            AnotherAgentError: as `take`.
            StateError: as `take`.
        """
        self.take()
        try:
            yield
        finally:
            self.release()


def _read(descriptor: int) -> LockHolder | None:
    try:
        found = json.loads(os.pread(descriptor, _MAX_BYTES, 0))
        return LockHolder(Role(found["role"]), int(found["pid"]), float(found["since_unix_s"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
