"""One object of the API server, followed: listed, watched from there, listed again when the watch ends."""

import logging
import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from heliotrope_agent.kube.backoff import Backoff
from heliotrope_agent.kube.client import ApiClient
from heliotrope_agent.kube.errors import ApiError, ExpiredError, NotFoundError, SilentError, UnavailableError
from heliotrope_agent.kube.metrics import KubeMetrics

_log = logging.getLogger(__name__)

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class FollowTiming:
    """Seconds."""

    watch_s: float = 300.0
    """The server is asked to end a watch between this and a third more; then the object is listed again, so that what
    was missed is missed no longer."""
    silence_s: float = 90.0
    """Bookmarks come each minute; a connection without one is half open."""
    first_pause_s: float = 0.5
    longest_pause_s: float = 30.0
    lasting_s: float = 5.0
    """A watch that ends sooner counts as a failure for the pause that follows."""


class Follower:
    """Tells of each version of one object, and that there is none. To be run in a thread of its own.

    While the API server is away nothing is told: what was told last holds.
    """

    def __init__(
        self,
        client: ApiClient,
        collection: str,
        name: str,
        seen: Callable[[Document | None], None],
        metrics: KubeMetrics,
        *,
        clock: Callable[[], float],
        rng: random.Random,
        timing: FollowTiming,
    ) -> None:
        """`collection` is the path of the objects; `seen` is called in the follower's thread, None: there is none."""
        self.heard_s = -math.inf
        """When the server last said, by `clock`, how the object is, or that it is as before."""
        self._clock = clock
        self._client = client
        self._collection = collection
        self._name = name
        self._seen = seen
        self._metrics = metrics
        self._timing = timing
        self._rng = rng
        self._backoff = Backoff(timing.first_pause_s, timing.longest_pause_s, rng)
        self._stop = threading.Event()
        self._told: type[ApiError] | None = None
        """The kind of failure that was logged last: one line per outage."""

    def run(self) -> None:
        """Follow until `stop`."""
        while not self._stop.is_set():
            try:
                pause_s = self._round()
            except Exception:  # noqa: BLE001 - a thread that died would leave a wish in force for ever
                _log.exception("%s %s cannot be followed", self._collection, self._name)
                pause_s = self._backoff.failed()
            if pause_s:
                self._stop.wait(pause_s)
        self._client.close()

    def stop(self) -> None:
        """End `run` soon, from any thread."""
        self._stop.set()
        self._client.interrupt()

    def _round(self) -> float:
        """List and watch once; returns how long to wait until the next time."""
        watching_since = None
        try:
            version = self._list()
            watching_since = time.monotonic()
            self._watch(version)
        except (ExpiredError, SilentError) as error:
            _log.debug("%s %s: listing again: %s", self._collection, self._name, error)
        except ApiError as error:
            self._failed(error)
        lasted = watching_since is not None and time.monotonic() - watching_since >= self._timing.lasting_s
        if lasted:
            self._backoff.succeeded()
            return 0.0
        self._metrics.watch_restarts.labels(self._name_of_kind).inc()
        return self._backoff.failed()

    @property
    def _name_of_kind(self) -> str:
        return self._collection.rsplit("/", 1)[1]

    def _failed(self, error: ApiError) -> None:
        if self._stop.is_set() or type(error) is self._told:
            return
        self._told = type(error)
        problem = "cannot be followed; what was read last holds"
        if isinstance(error, UnavailableError):
            problem = "the API server is away; what was read last holds"
        elif isinstance(error, NotFoundError):
            problem = "the API server does not know the kind; are the CRDs installed?"
        _log.warning("%s %s: %s: %s", self._collection, self._name, problem, error)

    def _list(self) -> str:
        # Without a resourceVersion the answer is current, not whatever a server that lags behind has in its cache.
        page = self._client.get(self._collection, {"fieldSelector": f"metadata.name={self._name}"})
        if self._told is not None:
            _log.info("%s %s: the API server answers again", self._collection, self._name)
            self._told = None
        items = [item for item in page.get("items") or () if item["metadata"]["name"] == self._name]
        self._seen(items[0] if items else None)
        self.heard_s = self._clock()
        return str(page["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> None:
        parameters = {
            "fieldSelector": f"metadata.name={self._name}",
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(round(self._timing.watch_s * self._rng.uniform(1.0, 4.0 / 3.0))),
        }
        for event in self._client.watch(self._collection, parameters, silence_s=self._timing.silence_s):
            self._metrics.answered()
            if self._stop.is_set():
                return
            if event["type"] in ("ADDED", "MODIFIED"):
                self._seen(event["object"])
            elif event["type"] == "DELETED":
                self._seen(None)
            self.heard_s = self._clock()
