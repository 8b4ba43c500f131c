"""A mirror of the objects of one kind: list once, watch from there, start over when the watch cannot go on."""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.datalayer.kubernetes.connection import Collection, Connection
from heliotrope_epp.datalayer.kubernetes.errors import ApiError, ExpiredError, NotServedError, RefusedError

_log = logging.getLogger(__name__)

_LASTING_WATCH_S = 5.0
"""A watch that ends sooner counts as a failure for the pause that follows."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReflectorTiming:
    """Seconds. The server sends a bookmark about every minute, so a silent watch is a dead connection."""

    list_timeout_s: float = 30.0
    watch_silence_s: float = 90.0
    watch_shortest_s: float = 300.0
    """The server is asked to end each watch between this and twice this; watching goes on from the last version."""
    first_pause_s: float = 0.1
    longest_pause_s: float = 15.0
    not_served_pause_s: float = 15.0
    """Between looks for a kind that the server does not know."""
    not_served_grace_s: float = 30.0
    """Objects that were there are kept this long when the server claims not to know their kind: it may be starting."""


class Reflector(Generic[T]):
    """Keeps `objects` equal to a collection of the API server, and as last known while it cannot be read.

    Objects are converted as they come, so that only what `convert` keeps stays in memory. One that cannot be converted
    keeps its last good version.
    """

    page_size = 500

    def __init__(
        self,
        connection: Connection,
        collection: Collection,
        convert: Callable[[dict[str, Any]], T],
        changed: Callable[[], None],
        *,
        label_selector: str = "",
        field_selector: str = "",
        refusal_ends: bool,
        timing: ReflectorTiming,
        rng: random.Random,
    ) -> None:
        """`changed` is called on the loop's thread after each change of `objects`, `problems` or `synced`.

        With `refusal_ends`, `run` ends when the server refuses the first list; otherwise that is retried too.
        """
        self._connection = connection
        self._collection = collection
        self._convert = convert
        self._changed = changed
        self._selectors = {
            key: value for key, value in (("labelSelector", label_selector), ("fieldSelector", field_selector)) if value
        }
        self._refusal_ends = refusal_ends
        self._timing = timing
        self._rng = rng
        self._backoff = Backoff(timing.first_pause_s, timing.longest_pause_s, rng)
        self._objects: dict[str, T] = {}
        self._problems: dict[str, str] = {}
        self._unserved_since_s: float | None = None
        self.synced = False
        """Whether the collection was listed once, or found not to exist."""
        self.healthy = False
        """Whether the last call succeeded."""
        self.tried = False
        """Whether a list has ended, well or not."""

    @property
    def objects(self) -> Mapping[str, T]:
        """By `namespace/name`, or name in the cluster; read it, never keep it."""
        return self._objects

    @property
    def problems(self) -> tuple[str, ...]:
        """Objects that could not be converted, each with its reason."""
        return tuple(self._problems.values())

    @property
    def outdated(self) -> Mapping[str, str]:
        """By key: why the newest version of an object that is in `objects` could not be converted."""
        return {key: problem for key, problem in self._problems.items() if key in self._objects}

    async def run(self) -> None:
        """Mirror until cancelled.

        Raises:
            InvalidInputError: if the first list is refused and that is to end it.
        """
        while True:
            try:
                version = await self._list()
                while True:
                    version = await self._watch(version)
            except NotServedError as error:
                pause = self._not_served(error)
            except ExpiredError as error:
                _log.info("%s: listing again: %s", self._collection, error)
                pause = self._backoff.failed()
            except RefusedError as error:
                if self._refusal_ends and not self.synced:
                    raise InvalidInputError("", f"reading {self._collection} is refused: {error}") from error
                pause = self._lost(error)
            except ApiError as error:
                pause = self._lost(error)
            await asyncio.sleep(pause)

    async def _list(self) -> str:
        """Replace the objects with those of the server; returns the version to watch from."""
        found: dict[str, dict[str, Any]] = {}
        params = self._selectors | {"limit": str(self.page_size)}
        while True:
            page = await self._connection.get(
                self._collection.path, params=params, timeout_s=self._timing.list_timeout_s
            )
            found.update((_key(item), item) for item in page.get("items") or ())
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                break
            params = params | {"continue": str(metadata["continue"])}
        before = self._objects
        self._objects = {key: before[key] for key in found if key in before}
        self._problems.clear()
        for key, item in found.items():
            self._put(key, item)
        self._unserved_since_s = None
        self._reached()
        self.synced = True
        self._changed()
        return str(metadata.get("resourceVersion", ""))

    async def _watch(self, version: str) -> str:
        """Follow events until the watch ends by itself; returns the version to go on from."""
        started_s = time.monotonic()
        seconds = self._timing.watch_shortest_s * self._rng.uniform(1.0, 2.0)
        params = self._selectors | {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": f"{seconds:.0f}",
        }
        events = self._connection.watch(self._collection.path, params=params, silence_s=self._timing.watch_silence_s)
        try:
            async with aclosing(events):
                async for event in events:
                    version = self._apply(event) or version
        finally:
            lasted_s = time.monotonic() - started_s
            if lasted_s >= _LASTING_WATCH_S:
                self._backoff.succeeded()
        if lasted_s < _LASTING_WATCH_S:
            await asyncio.sleep(self._backoff.failed())
        return version

    def _apply(self, event: dict[str, Any]) -> str | None:
        item = event.get("object") or {}
        version = (item.get("metadata") or {}).get("resourceVersion")
        match event.get("type"):
            case "ADDED" | "MODIFIED":
                self._put(_key(item), item)
                self._changed()
            case "DELETED":
                key = _key(item)
                self._problems.pop(key, None)
                self._objects.pop(key, None)
                self._changed()
            case _:
                pass  # a bookmark
        return None if version is None else str(version)

    def _put(self, key: str, item: dict[str, Any]) -> None:
        try:
            self._objects[key] = self._convert(item)
        except InvalidInputError as error:
            self._problems[key] = f"{self._collection.plural} {key}: {error}"
        else:
            self._problems.pop(key, None)

    def _not_served(self, error: NotServedError) -> float:
        """The kind is not there: an empty collection, unless it was there a moment ago."""
        now_s = time.monotonic()
        if self._unserved_since_s is None:
            self._unserved_since_s = now_s
        if self._objects and now_s - self._unserved_since_s < self._timing.not_served_grace_s:
            return self._lost(error)
        if not self.synced or self._objects:
            _log.info("%s: the server does not know this kind; looking again now and then", self._collection)
        self._objects = {}
        self._problems.clear()
        self.healthy = True
        self.synced = True
        self.tried = True
        self._changed()
        return self._timing.not_served_pause_s * self._rng.uniform(0.5, 1.0)

    def _reached(self) -> None:
        self.tried = True
        if self.synced and not self.healthy:
            _log.info("%s can be read again", self._collection)
        self.healthy = True

    def _lost(self, error: ApiError) -> float:
        if self.healthy or not self.synced:
            _log.warning("%s cannot be read, what was last read stays in force: %s", self._collection, error)
        self.healthy = False
        if not self.tried:
            self.tried = True
            self._changed()
        return self._backoff.failed()


def _key(item: Mapping[str, Any]) -> str:
    metadata = item.get("metadata") or {}
    name = str(metadata.get("name", ""))
    namespace = metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else name
