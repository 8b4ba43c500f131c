"""Segments of the journal: append-only files of which every line is one batch, whole or not there.

The writer holds an exclusive `flock` on its segment, which the kernel releases however it ends: a segment that can be
locked is nobody's any more and may be compacted. A segment gets its name only once it is locked. After a failed write
the segment is cut back to its last whole batch before anything is written again, so that nothing is ever in it twice.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from heliotrope.units import SECONDS_PER_HOUR

FOLDER = "journal"
SUFFIX = ".jsonl"
UNNAMED = ".new"


_ATTEMPTS = 5
"""At a file of its own, before a writer gives up for now."""


class Journal:
    """Appends batches; used by one thread."""

    def __init__(self, folder: Path, writer: str, segment_bytes: int) -> None:
        """`writer` names this process among those that write into the folder."""
        self._folder = folder / FOLDER
        self._writer = writer
        self._segment_bytes = segment_bytes
        self._encoder = msgspec.json.Encoder()
        self._descriptor: int | None = None
        self._length = 0
        self._number = 0
        self._hour = 0

    def append(self, rows: Iterable[dict[str, Any]], now_unix_s: float) -> None:
        """Write one batch and wait until it is on the disk.

        Raises:
            OSError: if it could not be written; the same batch may be tried again.
        """
        line = self._line(rows)
        if self._descriptor is None:
            self._open(now_unix_s)
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, self._length)
        view = memoryview(line)
        while view:
            view = view[os.write(self._descriptor, view) :]
        os.fdatasync(self._descriptor)
        self._length += len(line)

    def rotate_if_due(self, now_unix_s: float) -> bool:
        """Close the segment if it is large or its hour is over; True if one was closed."""
        if self._descriptor is None:
            return False
        if self._length < self._segment_bytes and self._hour == _hour(now_unix_s):
            return False
        self.close()
        return True

    def close(self) -> None:
        """Let the segment go, cut back to its last whole batch."""
        if self._descriptor is None:
            return
        with contextlib.suppress(OSError):  # what follows the last batch is no batch to any reader
            os.ftruncate(self._descriptor, self._length)
        os.close(self._descriptor)
        self._descriptor = None

    def _line(self, rows: Iterable[dict[str, Any]]) -> bytes:
        # Row by row: one long call into C would keep the event loop's thread waiting.
        return b'{"rows":[' + b",".join([self._encoder.encode(row) for row in rows]) + b"]}\n"

    def _open(self, now_unix_s: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS - 1):
            # Until it is locked, a compaction may take a new file for one that its writer left behind.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                self._open_next(now_unix_s)
                return
        self._open_next(now_unix_s)

    def _open_next(self, now_unix_s: float) -> None:
        self._number += 1
        stamp = datetime.fromtimestamp(now_unix_s, UTC).strftime("%Y%m%dT%H%M%SZ")
        path = self._folder / f"{stamp}-{self._writer}-{self._number:06d}{SUFFIX}"
        unnamed = path.with_suffix(UNNAMED)
        descriptor = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(path)
            sync_folder(self._folder)
        except OSError:
            os.close(descriptor)
            raise
        self._descriptor, self._length, self._hour = descriptor, 0, _hour(now_unix_s)


def segments(folder: Path) -> list[Path]:
    """The segments in a ledger's folder, oldest first."""
    return sorted((folder / FOLDER).glob(f"*{SUFFIX}"))


def unnamed_segments(folder: Path) -> list[Path]:
    """Segments without a batch, of writers that ended before they named them."""
    return sorted((folder / FOLDER).glob(f"*{UNNAMED}"))


@contextlib.contextmanager
def abandoned(segment: Path) -> Iterator[bool]:
    """Whether a segment is nobody's any more; while the context lasts nobody else can take it."""
    try:
        descriptor = os.open(segment, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        # Another process may have compacted and removed it between opening and locking.
        yield os.fstat(descriptor).st_nlink > 0
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hour(unix_s: float) -> int:
    return int(unix_s // SECONDS_PER_HOUR)
