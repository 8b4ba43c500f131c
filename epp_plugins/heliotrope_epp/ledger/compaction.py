"""From journal segments to Parquet, each exactly once, and the oldest Parquet away when it is too much.

A segment becomes one Parquet file of the same name: written beside it, synced, renamed, and only then is the segment
removed. Readers leave out a segment whose Parquet file is there. So whenever this stops, every batch counts once.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

import duckdb

from heliotrope.units import SECONDS_PER_DAY
from heliotrope_epp.ledger.columns import SLOT_START, batches, joined_rows, journal_rows
from heliotrope_epp.ledger.journal import abandoned, segments, sync_folder, unnamed_segments

FOLDER = "parquet"
SUFFIX = ".parquet"
_PARTIAL = ".partial"
_CHUNK = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Compacted:
    """What one call did."""

    segments: int = 0
    torn_batches: int = 0
    """Lines that are no whole batch: the end of a segment whose writer was killed while it wrote."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What retention left."""

    bytes: int
    deleted_files: int


def connect(memory: str = "384MB") -> duckdb.DuckDBPyConnection:
    """A DuckDB of its own in memory, on one thread, that writes no temporary files and never looks for extensions."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": 1,
        "memory_limit": memory,
        "temp_directory": "",
        "autoinstall_known_extensions": False,
    }
    connection = duckdb.connect(config=config)
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def parquet_of(folder: Path, segment: Path) -> Path:
    """The Parquet file that a segment becomes; its folder is the day on which the segment was begun."""
    stamp = segment.stem
    return folder / FOLDER / f"{stamp[:4]}-{stamp[4:6]}-{stamp[6:8]}" / f"{stamp}{SUFFIX}"


def compact(folder: Path) -> Compacted:
    """Compact every segment that no living process writes into.

    Raises:
        OSError: if a file cannot be written or removed.
        duckdb.Error: if a segment cannot be read or its Parquet cannot be written.
    """
    done = torn = 0
    for segment in segments(folder):
        with abandoned(segment) as ours:
            if ours:
                torn += _compact(folder, segment)
                done += 1
    for segment in unnamed_segments(folder):
        with abandoned(segment) as ours:
            if ours:
                segment.unlink()
    return Compacted(done, torn)


def _compact(folder: Path, segment: Path) -> int:
    target, torn = parquet_of(folder, segment), 0
    if not target.exists() and (lines := _lines(segment)):
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(_PARTIAL)
        with contextlib.closing(connect()) as connection:
            name = str(partial).replace("'", "''")
            connection.execute(f"CREATE TEMP TABLE batch AS {batches()}", [str(segment)])
            connection.execute(
                f"COPY ({joined_rows(journal_rows('FROM batch'))} ORDER BY {SLOT_START}) TO '{name}' "
                "(FORMAT parquet, COMPRESSION zstd)"
            )
            counted = connection.execute("SELECT count(rows) FROM batch").fetchone()
            torn = lines - (0 if counted is None else int(counted[0]))
        _sync(partial)
        partial.rename(target)
        for parent in (target.parent, target.parent.parent, folder):
            sync_folder(parent)
    segment.unlink()
    sync_folder(segment.parent)
    return torn


def _lines(segment: Path) -> int:
    """Lines of a segment, one without an end included."""
    count, last = 0, b"\n"
    with segment.open("rb") as file:
        while chunk := file.read(_CHUNK):
            count += chunk.count(b"\n")
            last = chunk[-1:]
    return count + (last != b"\n")


def retain(folder: Path, max_bytes: int, max_days: float, now_unix_s: float) -> Kept:
    """Delete the oldest Parquet files until the ledger fits, and those that are too old.

    Raises:
        OSError: if a file cannot be removed.
    """
    files = sorted((folder / FOLDER).glob(f"*/*{SUFFIX}"), key=lambda path: path.name)
    sizes = {path: size for path in files if (size := _size(path)) is not None}
    total = sum(sizes.values()) + sum(_size(segment) or 0 for segment in segments(folder))
    deleted = 0
    for path, size in sizes.items():
        too_old = now_unix_s - path.stat().st_mtime > max_days * SECONDS_PER_DAY
        if total <= max_bytes and not too_old:
            break
        path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other hours of that day are still there
            path.parent.rmdir()
        total -= size
        deleted += 1
    return Kept(total, deleted)


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
