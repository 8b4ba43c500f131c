import threading
import time
from pathlib import Path

import pytest
from tests.unit.epp.ledger.builders import clock, drew, finished, metered, settings, store

from heliotrope_epp.clock import Clock
from heliotrope_epp.ledger.compaction import Compacted, compact
from heliotrope_epp.ledger.journal import Journal, segments
from heliotrope_epp.ledger.ledger import Ledger
from heliotrope_epp.ledger.places import Places
from heliotrope_epp.ledger.read import opened
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.ledger.writer import LedgerWriter


def parts(where: LedgerSettings, with_clock: Clock | None = None) -> tuple[Ledger, LedgerWriter]:
    book = Ledger(Places(store()), where, with_clock or clock())
    return book, LedgerWriter(book, where, with_clock or clock())


def total(folder: Path) -> int:
    with opened(folder) as connection:
        return int(connection.sql("SELECT coalesce(sum(millijoules), 0) FROM ledger").fetchall()[0][0])


def eventually(condition, seconds: float = 10.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_what_is_booked_is_soon_on_the_disk_and_all_of_it_after_the_end(tmp_path: Path) -> None:
    book, writer = parts(settings(tmp_path / "new" / "folder"))
    writer.start()
    book.metered(metered())
    eventually(lambda: writer.health.rows_written > 0)
    assert writer.unwritten_seconds == 0.0
    assert total(tmp_path / "new" / "folder") == 5_000_000
    book.measured(finished(), drew())
    book.metered(metered())
    writer.stop()
    assert total(tmp_path / "new" / "folder") == 10_000_000
    assert segments(tmp_path / "new" / "folder") == []
    assert (writer.health.write_failures, writer.health.lost_rows) == (0, 0)
    assert writer.health.bytes > 0


def test_a_ledger_without_an_entry_is_an_empty_one(tmp_path: Path) -> None:
    _, writer = parts(settings(tmp_path))
    writer.start()
    assert total(tmp_path) == 0
    writer.stop()
    assert total(tmp_path) == 0


def test_segments_of_writers_that_died_are_compacted_at_start(tmp_path: Path) -> None:
    dead = Journal(tmp_path, "dead", 10**9)
    dead.append([{"slot_unix_s": 0, "slot_seconds": 300, "line": "idle", "millijoules": 3}], 0.0)
    dead.close()
    _, writer = parts(settings(tmp_path))
    writer.start()
    eventually(lambda: writer.health.segments_compacted == 1)
    writer.stop()
    assert total(tmp_path) == 3


def test_a_folder_that_cannot_be_written_is_an_error_at_start(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    _, writer = parts(settings(tmp_path / "file" / "ledger"))
    with pytest.raises(OSError, match="ledger"):
        writer.start()


def test_while_the_disk_refuses_everything_is_kept_and_then_written_once(tmp_path: Path, monkeypatch) -> None:
    book, writer = parts(settings(tmp_path))
    refused = threading.Event()
    real = Journal.append

    def refuse(self: Journal, rows: object, now_unix_s: float) -> None:
        refused.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", refuse)
    writer.start()
    book.metered(metered())
    assert refused.wait(10.0)
    book.metered(metered())
    eventually(lambda: writer.health.write_failures > 0)
    monkeypatch.setattr(Journal, "append", real)
    eventually(lambda: writer.health.rows_written > 0)
    writer.stop()
    assert total(tmp_path) == 10_000_000


def test_what_could_never_be_written_is_counted(tmp_path: Path, monkeypatch) -> None:
    def refuse(self: Journal, rows: object, now_unix_s: float) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Journal, "append", refuse)
    book, writer = parts(settings(tmp_path))
    writer.start()
    book.metered(metered())
    writer.stop()
    assert writer.health.lost_rows == 5
    assert writer.health.write_failures > 0


def test_a_failing_compaction_is_counted_and_loses_nothing(tmp_path: Path) -> None:
    book, writer = parts(settings(tmp_path))
    (tmp_path / "parquet").write_text("in the way")
    writer.start()
    book.metered(metered())
    writer.stop()
    assert writer.health.compaction_failures > 0
    (tmp_path / "parquet").unlink()
    assert total(tmp_path) == 5_000_000


def test_a_batch_with_a_defect_is_counted_and_those_after_it_are_written(tmp_path: Path) -> None:
    book, writer = parts(settings(tmp_path))
    writer.start()
    book.metered(metered(region="a\ud800"))
    eventually(lambda: writer.health.lost_rows == 5)
    book.metered(metered())
    writer.stop()
    assert total(tmp_path) == 5_000_000
    assert writer.health.lost_rows == 5


def test_a_segment_that_is_closed_while_others_are_compacted_is_compacted_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, may_go_on = threading.Event(), threading.Event()

    def slow(folder: Path) -> Compacted:
        done = compact(folder)
        entered.set()
        assert may_go_on.wait(10.0)
        return done

    monkeypatch.setattr("heliotrope_epp.ledger.writer.compact", slow)
    book, writer = parts(settings(tmp_path))
    writer.start()
    assert entered.wait(10.0)
    book.metered(metered())
    stopping = threading.Thread(target=writer.stop)
    stopping.start()
    eventually(lambda: writer.health.rows_written > 0 and not writer.writing)
    may_go_on.set()
    stopping.join(10.0)
    assert segments(tmp_path) == []
    assert total(tmp_path) == 5_000_000
