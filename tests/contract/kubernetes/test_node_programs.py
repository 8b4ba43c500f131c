"""A node's programs: where none can run the reason is told, and a failed download leaves nothing."""

import os
import sys
from pathlib import Path

import pytest
from e2e.controlplane import build
from e2e.node import programs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a node needs Linux")


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH of its own, an empty cache, and root as far as anybody asks."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("HELIOTROPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return folder


def tool(folder: Path, name: str, script: str = "exit 0") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def test_who_is_not_root_is_told_so(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert "needs root" in programs.missing()


def test_missing_tools_are_named(tools: Path) -> None:
    for name in programs.SYSTEM_PROGRAMS:
        if name != "setpriv":
            tool(tools, name)

    assert programs.missing() == "a node needs setpriv on PATH"


def test_without_debian_packages_the_reason_says_what_they_are_for(tools: Path) -> None:
    for name in programs.SYSTEM_PROGRAMS:
        tool(tools, name)

    assert "apt-get is not here" in programs.missing()


def test_refused_namespaces_are_told_in_the_kernels_words(tools: Path) -> None:
    for name in (*programs.SYSTEM_PROGRAMS, "apt-get", "dpkg-deb"):
        tool(tools, name)
    assert programs.missing() == ""

    tool(tools, "unshare", "echo 'unshare failed: Operation not permitted' >&2; exit 1")

    assert "Operation not permitted" in programs.missing()


def test_a_failed_download_leaves_nothing_and_tells_why(tools: Path, tmp_path: Path) -> None:
    for name in programs.SYSTEM_PROGRAMS:
        tool(tools, name)
    tool(tools, "dpkg-deb")
    tool(tools, "apt-get", "echo 'E: no network' >&2; exit 100")

    with pytest.raises(programs.NodeUnavailableError, match=r"apt-get download .* failed.*\nE: no network"):
        programs._ensure_containers(lambda line: None)

    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]
    assert programs.needed()


def test_without_go_the_error_says_what_to_do(tools: Path) -> None:
    with pytest.raises(build.ControlPlaneUnavailableError, match=r"The Kubernetes node is built with Go.*Install Go"):
        programs.KUBERNETES.ensure(lambda line: None)
