"""The stand-in is built once, by whoever needs it first, and says what is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.nvml import build

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_several_processes_build_once(tmp_path: Path) -> None:
    environment = os.environ | {"HELIOTROPE_CACHE": str(tmp_path), "PYTHONPATH": str(ROOT)}
    builders = [
        subprocess.Popen([sys.executable, build.__file__], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = {builder.communicate(timeout=100)[0].strip() for builder in builders}
    assert all(builder.returncode == 0 for builder in builders)
    (folder,) = (Path(each) for each in said)
    assert folder.parent == tmp_path
    assert folder.name.startswith("fake-nvml-")
    assert [path.name for path in folder.iterdir()] == ["libnvidia-ml.so.1"]


def test_without_a_compiler_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(build.FakeDriverUnavailableError, match="apt-get install gcc"):
        build.ensure()
    assert not (build.folder() / build.LIBRARY).exists()


def test_a_compiler_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "mycc"
    compiler.write_text("#!/bin/sh\necho 'no such header: nvml.h'\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CC", str(compiler))
    with pytest.raises(build.FakeDriverUnavailableError, match="no such header"):
        build.ensure()
    assert not (build.folder() / build.LIBRARY).exists()
