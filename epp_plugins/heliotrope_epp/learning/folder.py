"""A small folder of files that survive a restart: each is replaced whole or not at all.

Every method blocks on the disk: call it on a thread.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
import threading
from collections.abc import Iterable
from pathlib import Path

from heliotrope.errors import HeliotropeError

MAX_FILE_BYTES = 256 * 1024 * 1024
_HEADER = re.compile(rb"sha256 ([0-9a-f]{64})\n")
_LOCK = "lock"
_NEW = ".new"

_log = logging.getLogger(__name__)


class CorruptStateError(HeliotropeError):
    """A file is not what was once written; it is not used."""


def seal(data: bytes) -> bytes:
    """`data` behind a line with its digest."""
    return f"sha256 {hashlib.sha256(data).hexdigest()}\n".encode() + data


def unseal(text: bytes) -> bytes:
    """What `seal` was given.

    Raises:
        CorruptStateError: if it was cut off or changed.
    """
    header = _HEADER.match(text)
    if header is None:
        raise CorruptStateError("it does not begin with its digest")
    data = text[header.end() :]
    if hashlib.sha256(data).hexdigest() != header[1].decode():
        raise CorruptStateError("it was cut off or changed after it was written")
    return data


class StateFolder:
    """Files of one process. Without a path, or while the disk refuses, nothing is kept and everything else goes on.

    A second process on the same folder reads but does not write until the first has ended.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.problem: str | None = None
        """Why the last write did not succeed; None: it did, or nothing was written yet."""
        self.failed_writes = 0
        self._lock: int | None = None
        """File descriptor that holds the lock against other processes."""
        self._one_at_a_time = threading.Lock()
        self._closed = False

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none.

        Raises:
            CorruptStateError: if it is there and cannot be read; the message says why.
        """
        if self.path is None:
            return None
        try:
            with (self.path / name).open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CorruptStateError(f"it cannot be read: {error.strerror or error}") from error
        if len(text) > MAX_FILE_BYTES:
            raise CorruptStateError(f"it is larger than {MAX_FILE_BYTES} bytes")
        return text

    def write(self, name: str, data: bytes) -> bool:
        """Replace a file at once and for good; False, with `problem` set, if that is not possible now."""
        if self.path is None:
            return False
        with self._one_at_a_time:
            if self._closed:
                return False
            try:
                self._own(self.path)
                _replace(self.path, name, data)
            except OSError as error:
                self._failed(f"{name} cannot be written: {error.strerror or error}")
                return False
            self._succeeded()
            return True

    def keep_only(self, pattern: str, names: Iterable[str]) -> None:
        """Remove files of this pattern that are not named; what cannot be removed stays."""
        if self.path is None or self._closed:
            return
        kept = set(names)
        for path in self.path.glob(pattern):
            if path.name not in kept:
                with contextlib.suppress(OSError):
                    path.unlink()

    def close(self) -> None:
        """Let another process write; from now on this one does not."""
        with self._one_at_a_time:
            self._closed = True
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def _own(self, path: Path) -> None:
        if self._lock is not None:
            return
        path.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise OSError(error.errno, "another process keeps its state there") from error
        self._lock = descriptor

    def _failed(self, problem: str) -> None:
        self.failed_writes += 1
        if self.problem is None:
            _log.warning(
                "learned state is kept in memory only", extra={"fields": {"path": str(self.path), "problem": problem}}
            )
        self.problem = problem

    def _succeeded(self) -> None:
        if self.problem is not None:
            _log.info("learned state is on disk again", extra={"fields": {"path": str(self.path)}})
        self.problem = None


def _replace(folder: Path, name: str, text: bytes) -> None:
    """Through a second file, synced before it takes the name, and the folder after."""
    new = folder / f"{name}{_NEW}"
    try:
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(folder / name)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
