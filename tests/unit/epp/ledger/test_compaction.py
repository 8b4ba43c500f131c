import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.unit.epp.ledger.builders import NOW

from heliotrope.errors import InvalidInputError
from heliotrope_epp.ledger import compaction
from heliotrope_epp.ledger.compaction import Compacted, compact, parquet_of, retain
from heliotrope_epp.ledger.journal import Journal, segments
from heliotrope_epp.ledger.read import opened

ROW = {"slot_unix_s": int(NOW), "slot_seconds": 300, "line": "idle", "region": "es", "measured": True, "millijoules": 7}


def write(folder: Path, *batches: list[dict[str, Any]], at: float = NOW, writer: str = "w") -> Path:
    book = Journal(folder, writer, 10**9)
    for batch in batches:
        book.append(batch, at)
    book.close()
    return segments(folder)[-1]


def total(folder: Path) -> int:
    with opened(folder) as connection:
        return int(connection.sql("SELECT sum(millijoules) FROM ledger").fetchall()[0][0])


def test_a_segment_becomes_one_file_with_equal_keys_joined(tmp_path: Path) -> None:
    segment = write(tmp_path, [ROW, {**ROW, "region": "no"}], [ROW])
    assert compact(tmp_path) == Compacted(segments=1)
    assert segments(tmp_path) == []
    target = parquet_of(tmp_path, segment)
    assert target.parent.name == "2027-01-15"
    assert sorted(duckdb.sql(f"SELECT region, millijoules FROM '{target}'").fetchall()) == [("es", 14), ("no", 7)]
    assert not list(tmp_path.rglob("*.partial"))


def test_parquet_says_utc_and_leaves_unknown_null(tmp_path: Path) -> None:
    write(tmp_path, [ROW])
    compact(tmp_path)
    with opened(tmp_path) as connection:
        rows = connection.sql("SELECT slot_start, pue, grams_co2e, requests, signal_estimated FROM ledger").fetchall()
    ((start, *unknown),) = rows
    assert start.isoformat() == "2027-01-15T08:00:00"
    assert unknown == [None] * 4


def test_rows_and_files_without_a_column_are_read_beside_those_that_have_it(tmp_path: Path) -> None:
    segment = write(tmp_path, [{**ROW, "model": "m"}])
    compact(tmp_path)
    file = parquet_of(tmp_path, segment)
    whole = file.with_name("whole")
    file.rename(whole)
    duckdb.sql(f"COPY (SELECT * EXCLUDE asked_model FROM read_parquet('{whole}')) TO '{file}' (FORMAT parquet)")
    whole.unlink()
    write(tmp_path, [{**ROW, "model": "small", "asked_model": "m"}], writer="w2")
    with opened(tmp_path) as connection:
        rows = connection.sql("SELECT model, asked_model, millijoules FROM ledger ORDER BY model").fetchall()
    assert rows == [("m", None, 7), ("small", "m", 7)]


def test_a_segment_that_is_written_is_left_alone_and_read(tmp_path: Path) -> None:
    book = Journal(tmp_path, "w", 10**9)
    book.append([ROW], NOW)
    assert compact(tmp_path) == Compacted()
    assert total(tmp_path) == 7
    book.close()


@pytest.mark.parametrize("tail", [b'{"rows":[{"millijoules":1', b"\0" * 100, b'{"rows":[{"millijoules":1}]\n', b"]}\n"])
def test_what_is_no_whole_batch_is_left_out_and_counted(tmp_path: Path, tail: bytes) -> None:
    segment = write(tmp_path, [ROW], [ROW])
    with segment.open("ab") as file:
        file.write(tail)
    assert total(tmp_path) == 14
    assert compact(tmp_path) == Compacted(segments=1, torn_batches=1)
    assert total(tmp_path) == 14


def test_an_empty_segment_goes_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "journal" / "20270115T080000Z-w-000001.jsonl").touch()
    (tmp_path / "journal" / "20270115T080000Z-w-000002.new").touch()
    assert compact(tmp_path) == Compacted(segments=1)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


class Stopped(BaseException):
    """As if the process ended here."""


@pytest.mark.slow
@pytest.mark.parametrize("call", range(12))
def test_stopped_anywhere_everything_counts_once(tmp_path: Path, monkeypatch, call: int) -> None:
    """Ends at each call that changes the disk or makes it durable in turn; a later run completes it."""
    write(tmp_path, [ROW], [ROW])
    write(tmp_path, [ROW], at=NOW + 3_600.0)
    calls = 0

    def ending(real: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **keywords: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > call:
                raise Stopped
            return real(*arguments, **keywords)

        return wrapped

    for owner, name in ((Path, "rename"), (Path, "unlink"), (Path, "mkdir"), (os, "fsync")):
        monkeypatch.setattr(owner, name, ending(getattr(owner, name)))
    with pytest.raises(Stopped):
        compact(tmp_path)
    monkeypatch.undo()
    assert total(tmp_path) == 21
    compact(tmp_path)
    assert total(tmp_path) == 21
    assert segments(tmp_path) == []
    assert not list(tmp_path.rglob("*.partial"))


def test_a_disk_that_refuses_the_file_leaves_the_segment(tmp_path: Path) -> None:
    write(tmp_path, [ROW])
    (tmp_path / "parquet").write_text("in the way")
    with pytest.raises(OSError, match="parquet"):
        compact(tmp_path)
    (tmp_path / "parquet").unlink()
    assert total(tmp_path) == 7


def test_a_reader_survives_a_compaction_between_listing_and_reading(tmp_path: Path, monkeypatch) -> None:
    write(tmp_path, [ROW])
    real = compaction.connect
    listed = segments(tmp_path)
    compact(tmp_path)
    answers = [listed, listed, []]
    monkeypatch.setattr("heliotrope_epp.ledger.read.segments", lambda folder: answers.pop(0) if answers else [])
    monkeypatch.setattr(compaction, "connect", real)
    assert total(tmp_path) == 7


def test_the_oldest_files_go_when_it_is_too_much_or_too_old(tmp_path: Path) -> None:
    for hour in range(4):
        write(tmp_path, [ROW], at=NOW + 3_600.0 * hour)
    compact(tmp_path)
    files = sorted(tmp_path.rglob("*.parquet"))
    size = files[0].stat().st_size
    kept = retain(tmp_path, max_bytes=2 * size + size // 2, max_days=1.0, now_unix_s=files[0].stat().st_mtime)
    assert kept.deleted_files == 2
    assert sorted(tmp_path.rglob("*.parquet")) == files[2:]
    assert kept.bytes == sum(path.stat().st_size for path in files[2:])
    aged = retain(tmp_path, max_bytes=10**9, max_days=1.0, now_unix_s=files[2].stat().st_mtime + 2 * 86_400)
    assert aged.deleted_files == 2
    assert list((tmp_path / "parquet").iterdir()) == []


def test_a_folder_without_a_ledger_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="holds no ledger"), opened(tmp_path):
        pass


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, [ROW])
    compact(tmp_path)
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(b"garbage")
    with pytest.raises(InvalidInputError, match=file.name), opened(tmp_path):
        pass
