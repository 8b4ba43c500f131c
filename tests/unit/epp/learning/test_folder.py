import errno
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.learning.folder import CorruptStateError, StateFolder, seal, unseal


@given(st.binary(max_size=200), st.data())
def test_any_changed_byte_and_any_cut_is_noticed(data: bytes, draw: st.DataObject) -> None:
    text = seal(data)
    assert unseal(text) == data
    cut = draw.draw(st.integers(0, len(text) - 1))
    with pytest.raises(CorruptStateError):
        unseal(text[:cut])
    place = draw.draw(st.integers(0, len(text) - 1))
    changed = bytearray(text)
    changed[place] ^= draw.draw(st.integers(1, 255))
    with pytest.raises(CorruptStateError):
        unseal(bytes(changed))


def test_what_was_written_is_read_by_the_next_process(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "new" / "state")
    assert folder.read("window") is None
    assert folder.write("window", b"first")
    assert folder.write("window", b"second")
    folder.close()
    assert StateFolder(folder.path).read("window") == b"second"
    assert [path.name for path in sorted((tmp_path / "new" / "state").iterdir())] == ["lock", "window"]


def test_what_cannot_be_read_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = StateFolder(tmp_path)
    (tmp_path / "y").mkdir()
    with pytest.raises(CorruptStateError, match="cannot be read: Is a directory"):
        folder.read("y")
    folder.write("x", b"text")
    monkeypatch.setattr("heliotrope_epp.learning.folder.MAX_FILE_BYTES", 3)
    with pytest.raises(CorruptStateError, match="larger than 3 bytes"):
        folder.read("x")


def test_without_a_path_nothing_is_kept() -> None:
    folder = StateFolder(None)
    assert not folder.write("window", b"x")
    assert folder.read("window") is None
    assert folder.problem is None


def test_a_disk_that_refuses_is_told_once_and_keeps_the_old_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = StateFolder(tmp_path)
    folder.write("window", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with caplog.at_level(logging.INFO), monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert not folder.write("window", b"new")
        assert not folder.write("window", b"new")
        assert folder.problem == "window cannot be written: No space left on device"
        assert folder.failed_writes == 2
    assert folder.read("window") == b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "window"]
    with caplog.at_level(logging.INFO):
        assert folder.write("window", b"new")
    assert folder.problem is None
    assert [record.message for record in caplog.records] == [
        "learned state is kept in memory only",
        "learned state is on disk again",
    ]


def test_a_folder_that_cannot_exist(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = StateFolder(tmp_path / "file" / "state")
    assert not folder.write("window", b"x")
    assert folder.problem is not None


def test_a_read_only_file_system() -> None:
    folder = StateFolder(Path("/proc/heliotrope"))
    assert not folder.write("window", b"x")
    assert folder.read("window") is None


def test_a_second_process_reads_and_takes_over_when_the_first_has_ended(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from heliotrope_epp.learning.folder import StateFolder\n"
        "f = StateFolder(Path(sys.argv[1])); assert f.write('window', b'first'); print('ok', flush=True)\n"
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"ok\n"
        folder = StateFolder(tmp_path)
        assert folder.read("window") == b"first"
        assert not folder.write("window", b"second")
        assert folder.problem is not None
        assert "another process" in folder.problem
        first.kill()
    assert folder.write("window", b"second")


def test_only_files_that_are_named_stay(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.keep_only("model-*", [])
    for name in ("model-a", "model-b", "window"):
        folder.write(name, b"x")
    folder.keep_only("model-*", ["model-b"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "model-b", "window"]
