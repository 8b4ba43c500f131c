"""What makes two parts of a sweep the same: what is run, on what, by which code."""

import copyreg
import hashlib
import platform
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import heliotrope
import heliotrope_sim

PACKAGES = ("numba", "numpy", "highspy", "lightgbm", "pydantic")
"""Whose versions may change results."""
_DEEPEST = 200


class UnnamedError(Exception):
    """A value has no name that holds in other processes: a lambda, for example."""


@cache
def identity() -> Mapping[str, str]:
    """Versions of all that results depend on, as this process sees them; the code and the data are digests of files."""
    found = {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "heliotrope": heliotrope.__version__,
        "code": _digest_of_code(),
        "data": _digest_of_data(),
    }
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def key_of(function: Callable[..., Any], task: Any, versions: Mapping[str, str]) -> str:
    """The name of one part: equal for equal functions, tasks and versions, in every process.

    Raises:
        UnnamedError: if the function or something in the task has no such name.
    """
    digest = hashlib.sha256()
    _feed(digest.update, (function, task, sorted(versions.items())), 0)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], object], value: Any, depth: int) -> None:
    """Adds a value's type and content; mappings and sets in an order of their own, whatever the process hashes like."""
    if depth > _DEEPEST:
        raise UnnamedError("is nested too deep")
    kind = type(value)
    update(f"{kind.__module__}.{kind.__qualname__}:".encode())
    if value is None or value is Ellipsis or kind is bool or kind is int or kind is complex:
        update(f"{value!r};".encode())
    elif kind is float:
        update(struct.pack("<d", value))
    elif kind is str or kind is bytes:
        data = value.encode("utf-8", "surrogatepass") if kind is str else value
        update(f"{len(data)};".encode() + data)
    elif kind is tuple or kind is list:
        update(f"{len(value)};".encode())
        for each in value:
            _feed(update, each, depth + 1)
    elif kind is dict or isinstance(value, Mapping):
        _feed_sorted(update, value.items(), depth)
    elif kind is set or kind is frozenset:
        _feed_sorted(update, value, depth)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        update(f"{value.dtype.str}{value.shape};".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Path):
        _feed_path(update, value)
    elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
        update(_name_of(value))
    else:
        _feed_reduced(update, value, depth)


def _feed_sorted(update: Callable[[bytes], object], values: Any, depth: int) -> None:
    digests = []
    for each in values:
        inner = hashlib.sha256()
        _feed(inner.update, each, depth + 1)
        digests.append(inner.digest())
    update(f"{len(digests)};".encode() + b"".join(sorted(digests)))


def _feed_reduced(update: Callable[[bytes], object], value: Any, depth: int) -> None:
    """Anything else is what it is pickled as."""
    try:
        reduce = copyreg.dispatch_table.get(type(value))
        reduced = reduce(value) if reduce is not None else value.__reduce_ex__(4)
    except Exception as error:
        raise UnnamedError(f"{type(value).__qualname__} cannot be named: {error}") from error
    if isinstance(reduced, str):
        update(_name_of(value))
        return
    parts = [list(part) if isinstance(part, Iterator) else part for part in reduced]
    _feed(update, parts, depth + 1)


def _name_of(value: Any) -> bytes:
    """Module and qualified name, of a class for its methods too."""
    name = f"{getattr(value, '__module__', None)}.{value.__qualname__};"
    owner = getattr(value, "__self__", None)
    bound = owner is not None and not isinstance(owner, type | ModuleType)
    if "<" in name or bound:
        raise UnnamedError(f"{name} has no name in other processes")
    return (f"{owner.__module__}.{owner.__qualname__}." if isinstance(owner, type) else "").encode() + name.encode()


def _feed_path(update: Callable[[bytes], object], path: Path) -> None:
    """What is there counts, not what it is called only."""
    update(f"{path};".encode())
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            update(f"{file.relative_to(path).as_posix()};".encode() + hashlib.sha256(file.read_bytes()).digest())


def _digest_of_code() -> str:
    """Of all source files of the library and the simulator."""
    digest = hashlib.sha256()
    for package in (heliotrope, heliotrope_sim):
        assert package.__file__ is not None
        root = Path(package.__file__).parent
        for path in sorted(root.rglob("*")):
            if path.suffix in {".py", ".json"} and path.is_file() and "_data" not in path.parts:
                digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _digest_of_data() -> str:
    """Of the data files that ship."""
    assert heliotrope_sim.__file__ is not None
    package = Path(heliotrope_sim.__file__).parent
    digest = hashlib.sha256()
    for folder in (package / "_data", package.parent.parent / "data"):
        if folder.is_dir():
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix in {".csv", ".json"}:
                    digest.update(f"{path.relative_to(folder).as_posix()}\0".encode() + path.read_bytes())
            break
    return digest.hexdigest()[:16]
