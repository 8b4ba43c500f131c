import errno
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.epp.ledger.builders import NOW

from heliotrope_epp.ledger.journal import Journal, abandoned, segments, unnamed_segments

ROW = {"slot_unix_s": int(NOW), "line": "idle", "millijoules": 7}


def journal(folder: Path, segment_bytes: int = 10_000) -> Journal:
    return Journal(folder, "w", segment_bytes)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for path in segments(folder) for line in path.read_text().splitlines()]


def test_a_batch_is_one_line(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.append([ROW, ROW], NOW)
    book.append([ROW], NOW)
    assert lines(tmp_path) == [{"rows": [ROW, ROW]}, {"rows": [ROW]}]


def test_nothing_is_there_before_the_first_batch(tmp_path: Path) -> None:
    journal(tmp_path).close()
    assert segments(tmp_path) == []


def test_a_segment_ends_with_its_hour_and_at_its_size(tmp_path: Path) -> None:
    book = journal(tmp_path, segment_bytes=200)
    book.append([ROW], NOW)
    assert not book.rotate_if_due(NOW + 10.0)
    assert book.rotate_if_due(NOW + 3_600.0)
    book.append([ROW] * 10, NOW + 3_600.0)
    assert book.rotate_if_due(NOW + 3_600.0)
    book.append([ROW], NOW + 3_600.0)
    assert len(segments(tmp_path)) == 3
    assert len(lines(tmp_path)) == 3


def test_a_segment_is_abandoned_only_once_its_writer_lets_go(tmp_path: Path) -> None:
    book = journal(tmp_path)
    book.append([ROW], NOW)
    (segment,) = segments(tmp_path)
    with abandoned(segment) as ours:
        assert not ours
    book.close()
    with abandoned(segment) as ours, abandoned(segment) as again:
        assert ours
        assert not again
    with abandoned(tmp_path / "gone.jsonl") as ours:
        assert not ours


def test_a_segment_that_went_away_before_it_was_locked_is_not_ours(tmp_path: Path, monkeypatch) -> None:
    book = journal(tmp_path)
    book.append([ROW], NOW)
    book.close()
    (segment,) = segments(tmp_path)
    real = os.open

    def open_then_lose(path: object, *arguments: object, **keywords: object) -> int:
        descriptor = real(path, *arguments, **keywords)
        segment.unlink()
        return descriptor

    monkeypatch.setattr(os, "open", open_then_lose)
    with abandoned(segment) as ours:
        assert not ours


DISK_FULL = """
import resource, sys
from pathlib import Path
from heliotrope_epp.ledger.journal import Journal
book = Journal(Path(sys.argv[1]), "w", 10**9)
row = {"line": "idle", "tenant": "x" * 100, "millijoules": 1}
book.append([row], 0.0)
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
failed = 0
for _ in range(3):
    try:
        book.append([row] * 20, 0.0)
    except OSError:
        failed += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
book.append([row] * 20, 0.0)
print(failed)
"""


def test_a_disk_that_is_full_for_a_while_leaves_no_half_and_no_double_batch(tmp_path: Path) -> None:
    """The kernel takes part of the batch and then refuses, as on a full disk; the same batch is tried again."""
    done = subprocess.run([sys.executable, "-c", DISK_FULL, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"
    assert [len(line["rows"]) for line in lines(tmp_path)] == [1, 20]


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_nothing_named(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        journal(tmp_path).append([ROW], NOW)


def test_a_segment_that_lost_its_name_is_begun_anew(tmp_path: Path, monkeypatch) -> None:
    """Compaction clears unnamed segments away; a writer that is about to name one tries again."""
    book = journal(tmp_path)
    real = Path.rename

    def lost(self: Path, target: Path) -> Path:
        self.unlink()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", lost)
    with pytest.raises(FileNotFoundError):
        book.append([ROW], NOW)
    monkeypatch.undo()
    book.append([ROW], NOW)
    assert len(lines(tmp_path)) == 1
    assert unnamed_segments(tmp_path) == []


@pytest.mark.parametrize("deleted", [False, True])
def test_a_new_file_that_a_compaction_took_for_abandoned_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    original, met = fcntl.flock, []

    def contended(descriptor: int, operation: int) -> None:
        if not met:
            met.append(descriptor)
            if not deleted:
                raise BlockingIOError(errno.EAGAIN, "held by a compaction")
            for path in unnamed_segments(tmp_path):
                path.unlink()
        original(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", contended)
    book = journal(tmp_path)
    book.append([ROW], NOW)
    book.close()
    assert met
    assert lines(tmp_path) == [{"rows": [ROW]}]
