"""Container images for a node without a registry and without an image builder.

- `STILL`: one static program that waits; pods' pause container, and a pod's work that is not looked at.
- `AGENT_TAGS`: one image under two tags, laid out as the Dockerfile's target `agent`. /usr/local has the Python that
  runs the tests, /opt/heliotrope the locked packages of the extra `agent` (one layer, kept in the cache) and the wheel
  of this checkout (a second layer).
"""

import compileall
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

from e2e.controlplane import build
from e2e.controlplane.build import Say
from e2e.node.programs import NodeUnavailableError
from tests.support.chart import ROOT

STILL = "localhost/heliotrope-still:1"
REGISTRY = "localhost"
AGENT_REPOSITORY = "heliotrope-agent"
AGENT_TAG = "1"
AGENT_NEXT_TAG = "2"
AGENT_TAGS = tuple(f"{REGISTRY}/{AGENT_REPOSITORY}:{tag}" for tag in (AGENT_TAG, AGENT_NEXT_TAG))

SOURCES = ("core", "operator", "epp_plugins", "node_agent", "simulator", "cli")
ENVIRONMENT = "opt/heliotrope"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
PACKAGES = f"{ENVIRONMENT}/lib/{PYTHON}/site-packages"
LEFT_OUT = {"test", "tests", "idlelib", "ensurepip", "lib2to3", "tkinter", "turtledemo", "site-packages", "pydoc_data"}
"""Folders of the standard library that the agent does not need."""
LAYOUT = 3
"""Part of the cached layer's key: count up when `_python_layer` writes something else."""
SECONDS = 600
PASSWD = "root:x:0:0:root:/root:/sbin/nologin\n"
CONFIG = {
    "Env": [
        f"PATH=/{ENVIRONMENT}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE=1",
        "PYTHONUNBUFFERED=1",
        "HOME=/root",
        "USER=root",
    ],
    "User": "0:0",
    "WorkingDir": "/",
    "Entrypoint": ["env", "--block-signal=TERM,INT", "heliotrope"],
    "Cmd": ["--help"],
}


def write(folder: Path, say: Say) -> list[Path]:
    """Write the archives that `ctr images import` reads.

    Raises:
        NodeUnavailableError: if the compiler, uv or ldd fails.
    """
    cache = build.cache() / "node-images"
    cache.mkdir(parents=True, exist_ok=True)
    still, agent = folder / "still.tar", folder / "agent.tar"
    with build.locked(cache / "lock", "another process that makes images", say):
        layer = cache / f"still-{_hash([Path(__file__).parent / 'images' / 'still.c'])}.tar"
        if not layer.exists():
            _replacing(layer, _still_layer)
        python = cache / f"python-{_hash([ROOT / 'uv.lock'], _wanted(), sys.version, sys.base_prefix)}.tar"
        if not python.exists():
            say(f"making the layer with Python and the agent's packages, {python}; half a minute, once")
            _replacing(python, _python_layer)
        code = cache / f"code-{_hash(_sources(), sys.version)}.tar"
        if not code.exists():
            _replacing(code, _code_layer)
        _image(still, [layer], [STILL], {"Entrypoint": ["/still"], "User": "65532:65532"})
        _image(agent, [python, code], AGENT_TAGS, CONFIG)
        for kind in ("still", "python", "code"):
            _keep_newest(cache, kind)
    return [still, agent]


def _hash(files: Iterable[Path], *more: str) -> str:
    digest = hashlib.sha256(f"{LAYOUT} {more}".encode())
    for path in files:
        digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _wanted() -> str:
    """The dependencies that the project declares; what else pyproject.toml says changes no layer of them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return json.dumps([project["dependencies"], project["optional-dependencies"]])


def _sources() -> Iterator[Path]:
    yield from (ROOT / name for name in ("pyproject.toml", "README.md"))
    for folder in SOURCES:
        yield from sorted(path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")


def _replacing(target: Path, write_layer: Any) -> None:
    """Have a file written whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as name:
        partial = Path(name) / "layer.tar"
        root = Path(name) / "root"
        root.mkdir()
        write_layer(root)
        with tarfile.open(partial, "w") as archive:
            archive.add(root, arcname=".", filter=_owned_by_root)
        partial.rename(target)


def _owned_by_root(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    if entry.isdir():
        entry.mode = 0o755
    return entry


def _keep_newest(cache: Path, kind: str, count: int = 3) -> None:
    """Old layers of other checkouts and versions go."""
    layers = sorted(cache.glob(f"{kind}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in layers[count:]:
        path.unlink()


def _still_layer(root: Path) -> None:
    source = Path(__file__).parent / "images" / "still.c"
    _run(["gcc", "-Os", "-Wall", "-static", "-s", "-o", str(root / "still"), str(source)])


def _python_layer(root: Path) -> None:
    local = root / "usr" / "local"
    library = local / "lib" / PYTHON
    library.parent.mkdir(parents=True)
    standard = Path(sysconfig.get_path("stdlib"))
    ignored = shutil.ignore_patterns(*LEFT_OUT, f"config-{sys.version_info.major}.*", "*.a")
    shutil.copytree(standard, library, ignore=ignored, symlinks=True)
    platform = Path(sysconfig.get_path("platstdlib")) / "lib-dynload"
    if not (library / "lib-dynload").exists():
        shutil.copytree(platform, library / "lib-dynload")
    (local / "bin").mkdir()
    interpreter = local / "bin" / PYTHON
    shutil.copy2(Path(sys._base_executable).resolve(), interpreter)  # type: ignore[attr-defined]
    for name in ("python3", "python"):
        (local / "bin" / name).symlink_to(PYTHON)

    environment = root / ENVIRONMENT
    _run(
        [*_uv(), "sync", "--quiet", "--locked", "--no-dev", "--extra", "agent", "--no-install-project", "--no-build"],
        UV_PROJECT_ENVIRONMENT=str(environment),
        UV_PYTHON=sys._base_executable,  # type: ignore[attr-defined]
        UV_LINK_MODE="copy",
        UV_COMPILE_BYTECODE="1",
    )
    for path in sorted((environment / "bin").iterdir()):
        path.unlink()  # activation scripts, and commands of packages with this folder's path in them
    (environment / "bin" / "python").symlink_to("/usr/local/bin/python3")
    settings = (environment / "pyvenv.cfg").read_text()
    (environment / "pyvenv.cfg").write_text(re.sub(r"(?m)^home = .*$", "home = /usr/local/bin", settings))

    (root / "usr" / "bin").mkdir()
    env = shutil.copy2(shutil.which("env") or "/usr/bin/env", root / "usr" / "bin" / "env")

    for source, target in _libraries([interpreter, Path(env), *root.rglob("*.so"), *root.rglob("*.so.*")]):
        path = root / target.relative_to("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source.resolve(), path)
    for name, text in {"passwd": PASSWD, "group": "root:x:0:\n"}.items():
        (root / "etc").mkdir(exist_ok=True)
        (root / "etc" / name).write_text(text)
    (root / "tmp").mkdir()


def _libraries(binaries: Iterable[Path]) -> set[tuple[Path, Path]]:
    """The system's libraries that binaries load, and where the image has them; Python's own is put beside libc."""
    found: dict[str, Path] = {}
    for binary in binaries:
        output = _run(["ldd", str(binary)], check=False)
        for name, path in re.findall(r"^\s*(?:(\S+) => )?(/\S+) \(0x", output, re.MULTILINE):
            found[name or path] = Path(path)
    beside = next((path.parent for name, path in found.items() if name.startswith("libc.so")), Path("/usr/lib"))
    placed = set()
    for name, path in found.items():
        own = path.is_relative_to(sys.base_prefix) and sys.base_prefix != "/usr"
        bundled = "site-packages" in path.parts
        if not bundled:
            placed.add((path, beside / name if own else path))
    return placed


def _code_layer(root: Path) -> None:
    with tempfile.TemporaryDirectory() as name:
        _run([*_uv(), "build", "--quiet", "--wheel", "--out-dir", name, str(ROOT)])
        (wheel,) = Path(name).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(root / PACKAGES)
    compileall.compile_dir(
        root / PACKAGES,
        quiet=1,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    command = root / ENVIRONMENT / "bin" / "heliotrope"
    command.parent.mkdir(parents=True)
    command.write_text(
        f"#!/{ENVIRONMENT}/bin/python\nimport sys\n\nfrom heliotrope_cli.main import main\n\nsys.exit(main())\n"
    )
    command.chmod(0o755)


def _image(target: Path, layers: list[Path], tags: Iterable[str], config: dict[str, Any]) -> None:
    """Write an archive as `docker save` does: layers, their digests, and the names."""
    digests = [_digest(layer) for layer in layers]
    image = json.dumps(
        {
            "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine),
            "os": "linux",
            "config": config,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        }
    ).encode()
    name = f"{hashlib.sha256(image).hexdigest()}.json"
    files = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": name, "RepoTags": list(tags), "Layers": files}]).encode()
    with tarfile.open(target, "w") as archive:
        for path, content in ((name, image), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        for layer, file in zip(layers, files, strict=True):
            archive.add(layer, arcname=file)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _uv() -> list[str]:
    found = shutil.which("uv")
    return [found] if found else [sys.executable, "-m", "uv"]


def _run(command: list[str], *, check: bool = True, **environment: str) -> str:
    result = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if check and result.returncode != 0:
        raise NodeUnavailableError(f"`{' '.join(command)}` failed, and images need it:\n{result.stdout[-2_000:]}")
    return result.stdout
