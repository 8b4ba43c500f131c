"""The file of originals: two copies, each whole on the disk before a GPU is changed for the first time.

A copy is written beside the old one, fsynced and renamed, then the folder is fsynced; the second copy follows only when
the first is safe. So a crash at any moment leaves a whole copy, and a disk that loses one file loses nothing.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from heliotrope.errors import InvalidInputError
from heliotrope.sealed import sealed, unsealed
from heliotrope_agent.errors import CorruptStateError, NewerStateError, StateError
from heliotrope_agent.state.files import read_text, write_whole
from heliotrope_agent.state.records import SCHEMA, Ownership, decoded, encoded, schema_of

_logger = logging.getLogger(__name__)

COPIES = ("originals.a", "originals.b")
FORMAT = "heliotrope-originals"
MAX_BYTES = 256 * 1024
_Stamp = tuple[int, int, int]
"""Of a file: inode, size, time of its last change."""
_ASIDE_SUFFIX = ".corrupt"
_ASIDE_KEPT = 4
"""Corrupt files kept of each copy, for whoever wants to know what happened."""


class Store:
    """The records of this node's GPUs. One writer: whoever holds the lock of the state folder."""

    def __init__(self, folder: Path, may_write: Callable[[], None] = lambda: None) -> None:
        """`may_write` is called before each file is written and raises if this process has been fenced off."""
        self._folder = folder
        self._may_write = may_write
        self._records: Mapping[str, Ownership] = {}
        self._sequence = 0
        self._stale = False
        self.absent = False
        """Whether `load` has found no file: nothing was ever changed here, or the folder was removed."""
        self._stamps: tuple[_Stamp | None, ...] = ()

    @property
    def records(self) -> Mapping[str, Ownership]:
        """What is known, by UUID."""
        return self._records

    @property
    def stale(self) -> bool:
        """Whether the disk does not say what is known here.

        It may still hold GPUs that were forgotten, and putting those back twice is harmless; or somebody has removed or
        changed a file that GPUs depend on.
        """
        return self._stale or (bool(self._records) and self._stamps != self._stamped())

    @property
    def outdated(self) -> bool:
        """Whether the files are others than those that `load` has read, for who reads what another process writes."""
        return self._stamps != self._stamped()

    def load(self) -> Mapping[str, Ownership]:
        """Read the newest whole copy; without any file nothing was ever changed.

        Raises:
            CorruptStateError: if there are files and none is whole.
            NewerStateError: if a newer version of Heliotrope wrote them.
            StateError: if they cannot be read.
        """
        stamps = self._stamped()  # of before: a file that changes while it is read is another one
        whole: list[tuple[int, Mapping[str, Ownership]]] = []
        problems: list[str] = []
        for name in COPIES:
            try:
                found = self._read(self._folder / name)
            except CorruptStateError as error:
                problems.append(f"{name} {error}")
            else:
                if found is not None:
                    whole.append(found)
        if problems and not whole:
            raise CorruptStateError(
                f"no copy of the file of originals in {self._folder} is whole: " + "; ".join(problems)
            )
        if problems:
            _logger.warning("%s; the other copy is whole and used", problems[0])
        if whole:
            self._sequence, self._records = max(whole, key=lambda each: each[0])
        self._stale = bool(problems)
        self.absent = not whole and not problems
        self._stamps = stamps
        return self._records

    def save(self, records: Iterable[Ownership]) -> None:
        """Have these records, and no others, on the disk twice; returns when they are.

        Raises:
            StateError: if they are not; `records` is then what it was.
        """
        kept = {each.uuid: each for each in records}
        self._write(kept)
        self._records = kept
        self._stale = False

    def settle(self, records: Iterable[Ownership]) -> None:
        """Have these records after something was put back; where the disk refuses they hold here and it is `stale`."""
        self._records = {each.uuid: each for each in records}
        self._stale = True
        try:
            self.flush()
        except StateError as error:
            _logger.warning("what was put back is not forgotten on the disk yet: %s", error)

    def forget(self, uuids: Iterable[str]) -> None:
        """Drop GPUs that were put back; as `settle`."""
        gone = set(uuids)
        self.settle(each for each in self._records.values() if each.uuid not in gone)

    def flush(self) -> None:
        """Bring the disk up to date.

        Raises:
            StateError: if it refuses.
        """
        if self.stale:
            self._write(self._records)
            self._stale = False

    def set_aside(self) -> None:
        """Keep corrupt copies under other names and begin with an empty file.

        Raises:
            StateError: if the disk refuses.
        """
        self._may_write()
        try:
            for name in COPIES:
                self._set_aside(self._folder / name)
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        self.save(())

    def _set_aside(self, path: Path) -> None:
        if not path.exists():
            return
        for number in range(_ASIDE_KEPT - 1, 0, -1):
            older = path.with_name(f"{path.name}{_ASIDE_SUFFIX}.{number}")
            if older.exists():
                older.rename(path.with_name(f"{path.name}{_ASIDE_SUFFIX}.{number + 1}"))
        path.rename(path.with_name(f"{path.name}{_ASIDE_SUFFIX}.1"))

    def _write(self, records: Mapping[str, Ownership]) -> None:
        text = sealed(FORMAT, encoded(records.values(), self._sequence + 1))
        stamps = []
        try:
            for name in COPIES:
                self._may_write()
                stamps.append(_stamp_of(write_whole(self._folder / name, text, durable=True)))
        except OSError as error:
            raise _unwritable(self._folder, error) from error
        self._sequence += 1
        self._stamps = tuple(stamps)

    def _stamped(self) -> tuple[_Stamp | None, ...]:
        return tuple(_stamp(self._folder / name) for name in COPIES)

    def _read(self, path: Path) -> tuple[int, Mapping[str, Ownership]] | None:
        try:
            if not path.exists():
                return None
            text = read_text(path, MAX_BYTES)
        except OSError as error:
            raise StateError(f"{path} cannot be read: {error}") from error
        if text is None:
            raise CorruptStateError(f"is longer than {MAX_BYTES} bytes or no text")
        try:
            body = unsealed(text, FORMAT, name="file", max_characters=MAX_BYTES)
        except InvalidInputError as error:
            raise CorruptStateError(error.problem) from error
        schema = schema_of(body)
        if schema is not None and schema > SCHEMA:
            raise NewerStateError(
                f"{path} has schema {schema}, this version of Heliotrope knows up to {SCHEMA}: run the version that "
                "wrote it, or let that version put everything back (heliotrope agent --restore) first"
            )
        records, sequence = decoded(body)
        return sequence, records


def _stamp(path: Path) -> _Stamp | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return _stamp_of(found)


def _stamp_of(found: os.stat_result) -> _Stamp:
    return found.st_ino, found.st_size, found.st_mtime_ns


def _unwritable(folder: Path, error: OSError) -> StateError:
    return StateError(
        f"the file of originals in {folder} cannot be written ({error.strerror or error}); "
        "without it no GPU is changed: free or mount the disk"
    )
