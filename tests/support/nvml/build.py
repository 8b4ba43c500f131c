"""Compiles the stand-in for the NVIDIA driver's library into a cache, once per version of its source.

    python tests/support/nvml/build.py     # builds if needed and prints the folder

A program finds it like the real one where LD_LIBRARY_PATH names that folder; HELIOTROPE_FAKE_NVML names the state file.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).parent / "src"
LIBRARY = "libnvidia-ml.so.1"
FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread")
COMPILE_SECONDS = 120


class FakeDriverUnavailableError(RuntimeError):
    """The library cannot be built here; the message says what is missing."""


def cache() -> Path:
    """The folder for built programs: HELIOTROPE_CACHE, else ~/.cache/heliotrope."""
    return Path(os.environ.get("HELIOTROPE_CACHE") or Path.home() / ".cache" / "heliotrope")


def folder() -> Path:
    """Where the library of exactly this source is, built or not."""
    digest = hashlib.sha256(" ".join(FLAGS).encode())
    for path in sorted(SOURCE.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache() / f"fake-nvml-{digest.hexdigest()[:16]}"


def ensure() -> Path:
    """The folder that holds `libnvidia-ml.so.1`; builds it if it is not there.

    Several processes may call this at once: one builds, the others wait.

    Raises:
        FakeDriverUnavailableError: if there is no C compiler, or it refuses the source.
    """
    target = folder()
    if (target / LIBRARY).is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / LIBRARY).is_file():
            _build(target)
    return target


def _build(target: Path) -> None:
    compiler = shutil.which(os.environ.get("CC") or "cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise FakeDriverUnavailableError(
            "The stand-in for the NVIDIA driver is compiled from C, and neither cc, gcc nor clang is on PATH. Install "
            "one (Debian: apt-get install gcc libc6-dev), or name one in CC."
        )
    target.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="fake-nvml-building-") as name:
        partial = Path(name) / LIBRARY
        result = subprocess.run(
            [compiler, *FLAGS, f"-Wl,-soname,{LIBRARY}", "-o", str(partial), *map(str, sorted(SOURCE.glob("*.c")))],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMPILE_SECONDS,
            check=False,
        )
        if result.returncode != 0:
            raise FakeDriverUnavailableError(f"{compiler} refuses {SOURCE}:\n{result.stdout}")
        partial.chmod(0o755)
        partial.rename(target / LIBRARY)


if __name__ == "__main__":
    print(ensure())
