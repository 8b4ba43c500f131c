"""A ledger's folder as one DuckDB view named `ledger`: Parquet, and the journal that is not Parquet yet."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import duckdb

from heliotrope.errors import InvalidInputError
from heliotrope_epp.ledger import compaction, journal
from heliotrope_epp.ledger.columns import KEYS, OLDEST, SLOT_START, SUMS, batches, joined_rows, journal_rows
from heliotrope_epp.ledger.journal import segments

TABLE = "ledger"
_ATTEMPTS = 5


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection in which the view `ledger` is what the folder holds at this moment. It may be written meanwhile.

    Raises:
        InvalidInputError: if the folder holds no ledger, or a file of it cannot be read.
    """
    if not (folder / compaction.FOLDER).is_dir() and not (folder / journal.FOLDER).is_dir():
        raise InvalidInputError(
            str(folder), "holds no ledger; give the folder that `heliotrope epp --ledger-dir` wrote"
        )
    with contextlib.closing(compaction.connect(memory="50%")) as connection:
        for attempt in range(_ATTEMPTS):
            try:
                _load(connection, folder)
                break
            except (duckdb.IOException, FileNotFoundError) as error:
                # A segment became Parquet after it was listed.
                if attempt == _ATTEMPTS - 1:
                    raise InvalidInputError(str(folder), f"cannot be read: {error}") from error
            except duckdb.Error as error:
                raise InvalidInputError(str(folder), f"cannot be read: {error}") from error
        yield connection


def _load(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    # Segments first: one that is compacted in between is then found twice, never not at all, and left out here.
    open_segments = segments(folder)
    files = sorted((folder / compaction.FOLDER).glob(f"*/*{compaction.SUFFIX}"))
    compacted = {path.stem for path in files}
    live = [str(path) for path in open_segments if path.stem not in compacted and path.stat().st_size]
    columns = ", ".join(f'"{name}" {kind}' for name, kind in {SLOT_START: "TIMESTAMP", **KEYS, **SUMS}.items())
    connection.execute(f'CREATE OR REPLACE TABLE journal ({columns}, "{OLDEST}" DOUBLE)')
    if live:
        connection.execute(f"INSERT INTO journal BY NAME {joined_rows(journal_rows(batches()))}", [live])
    stored = ""
    if files:
        names = ", ".join("'" + str(path).replace("'", "''") + "'" for path in files)
        stored = f" UNION ALL BY NAME SELECT * FROM read_parquet([{names}], union_by_name = true)"  # noqa: S608
    connection.execute(f"CREATE OR REPLACE VIEW {TABLE} AS SELECT * FROM journal{stored}")  # noqa: S608


def between(since_unix_s: float | None, until_unix_s: float | None) -> tuple[str, list[float]]:
    """SQL that keeps the slots that begin in [since, until), with its parameters; None leaves an end open."""
    conditions, times = ["true"], []
    if since_unix_s is not None:
        conditions.append("epoch(slot_start) >= ?")
        times.append(since_unix_s)
    if until_unix_s is not None:
        conditions.append("epoch(slot_start) < ?")
        times.append(until_unix_s)
    return " AND ".join(conditions), times
