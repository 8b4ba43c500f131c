"""Builds kwok, which plays nodes and the life of pods on them, into the cache, once."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from e2e.controlplane.build import BUILD_SECONDS, ControlPlaneUnavailableError, Say, cache

VERSION = "v0.7.0"
MODULE = f"sigs.k8s.io/kwok/cmd/kwok@{VERSION}"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def ensure(say: Say = _say) -> Path:
    """The program; builds it if it is not there.

    Raises:
        ControlPlaneUnavailableError: if Go is missing or the build fails.
    """
    target = cache() / f"kwok-{VERSION}" / "kwok"
    if target.is_file():
        return target
    go = shutil.which("go")
    if go is None:
        raise ControlPlaneUnavailableError("kwok is built with Go, and `go` is not on PATH: install Go 1.24 or newer")
    say(f"building kwok {VERSION} into {target.parent}; about two minutes, once")
    partial = target.parent.with_suffix(f".building-{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        result = subprocess.run(
            [go, "install", "-ldflags", "-s -w", MODULE],
            env=os.environ | {"CGO_ENABLED": "0", "GOBIN": str(partial)},
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise ControlPlaneUnavailableError(f"building kwok failed:\n{result.stderr[-4_000:]}")
        if not target.parent.exists():  # else another process was faster
            partial.rename(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


if __name__ == "__main__":
    print(ensure())
