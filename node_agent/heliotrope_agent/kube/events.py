"""Kubernetes events of the agent: deduplicated as the operator's are, in a bounded queue while the server is away."""

import logging
import threading
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from heliotrope.api.v1alpha1.common import API_VERSION
from heliotrope_agent.kube.client import REQUEST_S, ApiClient
from heliotrope_agent.kube.errors import ApiError, NotFoundError, UnauthorizedError, UnavailableError
from heliotrope_agent.kube.metrics import KubeMetrics

_log = logging.getLogger(__name__)

CONTROLLER = "heliotrope.io/agent"
NAMESPACE = "default"
"""Where events of cluster-scoped objects live."""
QUEUE = 64
REPEAT_WITHIN_S = 600.0
"""An event that says the same within this time counts up the first one's series."""
BURST = 20
REFILL_S = 30.0
"""BURST new events at once, and one more every REFILL_S."""
REMEMBERED = 256
LONGEST_NOTE = 1_024
"""Characters that the API server allows."""

Document = dict[str, Any]


@dataclass(slots=True)
class _Event:
    reason: str
    message: str
    warning: bool
    unix_s: float


@dataclass(slots=True)
class _Posted:
    path: str
    count: int
    last_s: float


class Events:
    """Takes events from any thread; one thread posts them."""

    def __init__(
        self,
        node: str,
        metrics: KubeMetrics,
        *,
        instance: str,
        clock: Callable[[], float],
        unix_clock: Callable[[], float],
    ) -> None:
        """`instance` names this pod in the events."""
        self._node = node
        self._metrics = metrics
        self._instance = instance[:128] or node[:128]
        self._clock = clock
        self._unix_clock = unix_clock
        self._lock = threading.Lock()
        self._waiting: deque[_Event] = deque()
        self._posted: OrderedDict[tuple[str, str, str], _Posted] = OrderedDict()
        self._tokens, self._filled_s = float(BURST), clock()

    def put(self, reason: str, message: str, *, warning: bool) -> None:
        """Queue an event; the oldest goes when there are too many."""
        event = _Event(reason[:128], message[:LONGEST_NOTE], warning, self._unix_clock())
        with self._lock:
            self._waiting.append(event)
            if len(self._waiting) > QUEUE:
                self._waiting.popleft()
                self._metrics.events.labels("dropped").inc()

    def waiting(self) -> int:
        """Events that were not posted yet."""
        with self._lock:
            return len(self._waiting)

    def post(self, client: ApiClient, uid: str | None, *, timeout_s: float = REQUEST_S) -> bool:
        """Post the oldest event that waits, about the NodePower of this UID, or about the Node if there is none.

        Returns:
            Whether it was dealt with; one that was refused is counted and dropped.

        Raises:
            UnavailableError, UnauthorizedError: it waits on.
        """
        with self._lock:
            event = self._waiting[0] if self._waiting else None
        if event is None:
            return False
        try:
            outcome = self._post(event, client, uid, timeout_s)
        except (UnavailableError, UnauthorizedError):
            raise
        except ApiError as error:
            _log.warning("the event %s was not posted: %s", event.reason, error)
            outcome = "failed"
        with self._lock:
            if (
                self._waiting and self._waiting[0] is event
            ):  # else it was dropped meanwhile, and was posted all the same
                self._waiting.popleft()
        self._metrics.events.labels(outcome).inc()
        return True

    def _post(self, event: _Event, client: ApiClient, uid: str | None, timeout_s: float) -> str:
        same, now_s = (uid or "", event.reason, event.message), self._clock()
        before = self._posted.get(same)
        if before is not None and now_s - before.last_s <= REPEAT_WITHIN_S:
            series = {"count": before.count + 1, "lastObservedTime": _micro_time(event.unix_s)}
            try:
                client.merge(before.path, {"series": series}, timeout_s=timeout_s)
            except NotFoundError:  # it has expired on the server
                pass
            else:
                before.count, before.last_s = before.count + 1, now_s
                return "repeated"
        if not self._allowed(now_s):
            return "limited"
        collection = f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"
        name = f"{self._node[:200]}.{uuid.uuid4().hex[:16]}"
        client.create(collection, self._document(event, name, uid), timeout_s=timeout_s)
        self._tokens -= 1.0
        self._posted[same] = _Posted(f"{collection}/{name}", 1, now_s)
        self._posted.move_to_end(same)
        if len(self._posted) > REMEMBERED:
            self._posted.popitem(last=False)
        return "created"

    def _document(self, event: _Event, name: str, uid: str | None) -> Document:
        about = {"apiVersion": API_VERSION, "kind": "NodePower", "name": self._node, "uid": uid}
        if uid is None:  # `kubectl describe node` looks for the name in the place of the UID, as the kubelet writes it
            about = {"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"namespace": NAMESPACE, "name": name},
            "eventTime": _micro_time(event.unix_s),
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "action": "Apply",
            "note": event.message,
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": about,
        }

    def _allowed(self, now_s: float) -> bool:
        self._tokens = min(self._tokens + (now_s - self._filled_s) / REFILL_S, float(BURST))
        self._filled_s = now_s
        return self._tokens >= 1.0


def _micro_time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
