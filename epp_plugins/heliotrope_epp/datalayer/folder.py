"""A watched folder of YAML files as the source of truth: no cluster needed."""

import asyncio
import logging
import os
import stat
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from watchfiles import awatch

from heliotrope.api.documents import AnyResource
from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile, WorkloadVariant
from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.documents import MAX_FILE_BYTES, read_endpoints, read_resources
from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.resources import Resources

_log = logging.getLogger(__name__)

ENDPOINTS_FILE = "endpoints.yaml"

_QUIET_MS = 50
"""A burst of changes is over when nothing happened for this long."""
_LONGEST_BURST_MS = 400
_SETTLED_S = 2.0
"""A file that changed more recently than this is read again at the next look: clocks of file systems are coarse."""
_READ_ATTEMPTS = 5
_READ_RETRY_S = 0.02
_REWATCH_S = 1.0

Content = tuple[Endpoint, ...] | tuple[AnyResource, ...]


@dataclass(frozen=True, slots=True)
class _File:
    """The last good content of a file; `problem` if what it holds now could not be used."""

    version: tuple[int, int, int] | None
    content: Content
    problem: str | None = None


class FolderSource:
    """Endpoints and resources out of files (`docs/sources.md`).

    `endpoints_file` is the file of endpoints, by default `endpoints.yaml` in the folder; with
    `watch_endpoints=False` it is read once, and with `endpoints_required=False` there is none. `rescan_s` is the
    longest time after which a change is seen even where the system does not tell of changes (network file systems).
    """

    def __init__(
        self,
        folder: Path,
        *,
        endpoints_file: Path | None = None,
        watch_endpoints: bool = True,
        endpoints_required: bool = True,
        rescan_s: float = 5.0,
    ) -> None:
        self._folder = folder
        self._endpoints_required = endpoints_required
        self._endpoints_file = endpoints_file or folder / ENDPOINTS_FILE
        self._watch_endpoints = watch_endpoints
        self._rescan_s = rescan_s
        self._files: dict[Path, _File] = {}
        self._healthy = False

    @property
    def healthy(self) -> bool:
        """Whether the folder and the file of endpoints could be read at the last look."""
        return self._healthy

    async def run(self, publish: Callable[[Resources], None]) -> None:
        """Publish what the files hold, then each change, until cancelled.

        A file that turns bad keeps its last good content; one that is deleted takes its resources with it, but the
        endpoints stay.

        Raises:
            InvalidInputError: if the folder or any file in it cannot be used at the start.
        """
        self._files = await asyncio.to_thread(self._look, {})
        published = _assembled(self._files)
        if published.problems:
            raise InvalidInputError("", "; ".join(published.problems))
        self._healthy = True
        publish(published)

        async def look_again() -> None:
            nonlocal published
            try:
                self._files = await asyncio.to_thread(self._look, self._files)
            except InvalidInputError as error:
                if self._healthy:
                    _log.warning("%s; what was last read stays in force", error)
                self._healthy = False
                return
            endpoints = self._files.get(self._endpoints_file)
            self._healthy = endpoints is None or endpoints.problem is None or not self._endpoints_required
            found = _assembled(self._files)
            if found != published:
                published = found
                publish(found)

        await self._watch(look_again)

    async def _watch(self, look: Callable[[], Awaitable[None]]) -> None:
        """Call `look` after each change, and every `rescan_s` in any case."""
        folders = sorted({self._folder, self._endpoints_file.parent})
        told = False
        while True:
            watched = await asyncio.to_thread(_identities, folders)
            changes = awatch(
                *folders,
                watch_filter=None,
                step=_QUIET_MS,
                debounce=_LONGEST_BURST_MS,
                rust_timeout=round(self._rescan_s * 1000.0),
                yield_on_timeout=True,
                recursive=False,
            )
            news = asyncio.ensure_future(anext(changes))
            try:
                await asyncio.sleep(0)  # the watch is set up in the first step, so that no change is missed
                await look()
                # A folder replaced by another of its name is to be watched in its stead.
                while watched == await asyncio.to_thread(_identities, folders):
                    await news
                    told = False
                    news = asyncio.ensure_future(anext(changes))
                    await look()
            except OSError as error:
                if not told:
                    _log.warning("cannot watch %s, so it is read again and again: %s", self._folder, error)
                told = True
                await asyncio.sleep(min(_REWATCH_S, self._rescan_s))
            finally:
                news.cancel()
                await asyncio.gather(news, return_exceptions=True)
                await changes.aclose()

    def _look(self, known: Mapping[Path, _File]) -> dict[Path, _File]:
        """The files as they are now. Runs in a thread.

        Raises:
            InvalidInputError: if the folder cannot be read.
        """
        try:
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - the names alone are wanted
        except OSError as error:
            raise InvalidInputError(str(self._folder), f"cannot be read: {error.strerror}") from error
        paths = [self._folder / name for name in names if name.endswith((".yaml", ".yml")) and not name.startswith(".")]
        files = {}
        before = known.get(self._endpoints_file)
        if not self._endpoints_required:
            pass
        elif before is None or self._watch_endpoints:
            files[self._endpoints_file] = _read(self._endpoints_file, before, read_endpoints, required=True)
        else:
            files[self._endpoints_file] = before
        for path in paths:
            if path not in files:
                try:
                    files[path] = _read(path, known.get(path), read_resources, required=False)
                except FileNotFoundError:
                    continue  # deleted since it was listed
        return files


def _read(path: Path, before: _File | None, parse: Callable[[bytes], Content], *, required: bool) -> _File:
    """The file's present state, with the content it had before where it is bad or a required file is gone.

    Raises:
        FileNotFoundError: if a file that is not required is gone.
    """
    try:
        status = _status(path)
        version = (status.st_ino, status.st_mtime_ns, status.st_size)
        if before is not None and before.version == version:
            return before
        settled = time.time() - status.st_mtime > _SETTLED_S
        content = parse(_stable_bytes(path))
    except InvalidInputError as error:
        return _File(None, () if before is None else before.content, f"{path}: {error}")
    except FileNotFoundError:
        if not required:
            raise
        return _File(
            None, () if before is None else before.content, f"{path}: does not exist; list the endpoints there"
        )
    except OSError as error:
        return _File(None, () if before is None else before.content, f"{path}: {error.strerror or error}")
    return _File(version if settled else None, content)


def _status(path: Path) -> os.stat_result:
    """What the file system says of a file; reading anything else might never end."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInputError("", "is not a file")
    return status


def _stable_bytes(path: Path) -> bytes:
    """The bytes of a file that nobody wrote to meanwhile.

    Raises:
        InvalidInputError: if it is empty, too large or being written all the time.
    """
    for attempt in range(_READ_ATTEMPTS):
        if attempt:
            time.sleep(_READ_RETRY_S)
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            data = file.read(MAX_FILE_BYTES + 1)
            after = os.fstat(file.fileno())
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInputError("", f"is larger than {MAX_FILE_BYTES} bytes")
        if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, len(data)):
            if not data:
                raise InvalidInputError("", "is empty; delete the file if nothing in it is to hold")
            return data
    raise InvalidInputError("", "is being written; write to a file of another ending and rename it")


def _assembled(files: Mapping[Path, _File]) -> Resources:
    """What the files hold together; of two objects with one name the first holds, in the order of file names."""
    problems = [file.problem for file in files.values() if file.problem is not None]
    endpoints: list[Endpoint] = []
    seen: dict[tuple[str, str, str], Path] = {}
    kept: list[AnyResource] = []
    for path, file in files.items():
        for item in file.content:
            if isinstance(item, Endpoint):
                endpoints.append(item)
                continue
            name = (item.kind, item.metadata.namespace or "default", item.metadata.name)
            if name in seen:
                problems.append(f"{path}: {item.kind} {item.metadata.name} is already in {seen[name]}, which holds")
            else:
                seen[name] = path
                kept.append(item)
    return Resources(
        endpoints=tuple(endpoints),
        policies=tuple(item for item in kept if isinstance(item, CarbonPolicy)),
        regions=tuple(item for item in kept if isinstance(item, RegionProfile)),
        variants=tuple(item for item in kept if isinstance(item, WorkloadVariant)),
        problems=tuple(problems),
        outdated_policies={
            f"{item.metadata.namespace or 'default'}/{item.metadata.name}": file.problem
            for file in files.values()
            if file.problem is not None
            for item in file.content
            if isinstance(item, CarbonPolicy)
        },
    )


def _identities(folders: Sequence[Path]) -> list[tuple[int, int] | None]:
    """What tells folders of the same name apart; None where there is none."""
    found: list[tuple[int, int] | None] = []
    for folder in folders:
        try:
            status = folder.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino))
    return found
