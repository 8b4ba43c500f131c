"""Building the control plane: once, whole or not at all, and with an error that says what to do."""

import subprocess
import sys
from pathlib import Path

import pytest
from e2e.controlplane import build

FAKE_GO = """#!/bin/sh
echo "$@" >> {log}
case " $* " in *{fails}*) echo "compile error" >&2; exit 1;; esac
sleep 0.2
while [ $# -gt 0 ]; do
  [ "$1" = -o ] && output=$2
  shift
done
touch "${{output:-$GOBIN/helm}}"
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(build.KUBECONFIG_VARIABLE, raising=False)
    return tmp_path / "cache"


def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: str = "nothing") -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "go.log"
    log.touch()
    (folder / "go").write_text(FAKE_GO.format(log=log, fails=fails))
    (folder / "go").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return log


def test_without_go_the_error_says_what_to_do(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert build.main() == 1
    message = capsys.readouterr().err
    assert "Install Go 1.24 or newer" in message
    assert build.KUBECONFIG_VARIABLE in message


def test_two_processes_build_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_go(tmp_path, monkeypatch)
    command = [sys.executable, build.__file__]

    runs = [subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [run.communicate(timeout=60)[1] for run in runs]

    assert [run.returncode for run in runs] == [0, 0], errors
    assert len(log.read_text().splitlines()) == len(build.CONTROL_PLANE.names)
    assert sorted(path.name for path in build.CONTROL_PLANE.folder.iterdir()) == sorted(build.CONTROL_PLANE.names)
    assert any("[4/4] helm built in" in text for text in errors)
    assert not build.needed()


def test_a_failed_build_leaves_nothing_and_tells_the_compilers_words(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(tmp_path, monkeypatch, fails="kubectl")

    with pytest.raises(build.ControlPlaneUnavailableError, match=r"building kubectl failed:\ncompile error"):
        build.ensure(say=lambda line: None)

    assert [path.name for path in cache.iterdir()] == [f"{build.CONTROL_PLANE.folder.name}.lock"]
    assert build.needed()


def test_a_cluster_of_the_users_own_needs_clients_only(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(build.KUBECONFIG_VARIABLE, "/some/kubeconfig")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.needed()

    for name in ("kubectl", "helm"):
        (tmp_path / name).touch(mode=0o755)

    assert not build.needed()
