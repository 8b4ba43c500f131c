"""Kubernetes events about our objects: what a person should hear of, once.

They go to `events.k8s.io/v1`, whose `series` counts repeats in one object. Kopf's own poster works inside handlers
only and cannot deduplicate.
"""

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

from heliotrope.api.v1alpha1.common import ObjectMeta
from heliotrope_operator.conditions import Transition
from heliotrope_operator.errors import ApiError, NotFoundError
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import EVENTS, RESOURCES, Key

_log = logging.getLogger(__name__)

CONTROLLER = "heliotrope.io/operator"
CLUSTER_NAMESPACE = "default"
"""Where events of cluster-scoped objects live."""
REPEAT_WITHIN_S = 600.0
"""An event that says the same within this time counts up the first one's series."""
BURST = 10
REFILL_S = 30.0
"""Each object may cause BURST new events at once and one more every REFILL_S."""
REMEMBERED = 4_096
"""Events and objects that are remembered for the two rules above."""

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")


@dataclass(slots=True)
class _Posted:
    namespace: str
    name: str
    count: int
    last: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    filled: float


class _Recent(Generic[H, V]):
    """The entries that were used last; older ones are forgotten."""

    def __init__(self, capacity: int) -> None:
        self._entries: OrderedDict[H, V] = OrderedDict()
        self._capacity = capacity

    def get(self, key: H) -> V | None:
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: H, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)


class Recorder:
    """Posts events. An event that cannot be posted is counted and dropped: it never holds up reconciling."""

    def __init__(self, kube: Kube, metrics: Metrics, *, instance: str, unix_clock: Callable[[], float]) -> None:
        """`instance` names this replica in the events."""
        self._kube = kube
        self._metrics = metrics
        self._instance = instance[:128]
        self._unix_clock = unix_clock
        self._posted: _Recent[tuple[str, str, str], _Posted] = _Recent(REMEMBERED)
        self._buckets: _Recent[str, _Bucket] = _Recent(REMEMBERED)

    async def record(self, key: Key, metadata: ObjectMeta, change: Transition) -> None:
        """Tell of a transition of an object."""
        try:
            outcome = await self._record(key, metadata, change)
        except ApiError as error:
            _log.warning("%s: the event %s was not posted: %s", key, change.reason, error)
            outcome = "failed"
        self._metrics.events.labels(outcome).inc()

    async def _record(self, key: Key, metadata: ObjectMeta, change: Transition) -> str:
        uid = metadata.uid or str(key)
        same = (uid, change.reason, change.message)
        now = asyncio.get_running_loop().time()
        before = self._posted.get(same)
        if before is not None and now - before.last <= REPEAT_WITHIN_S:
            before.last, before.count = now, before.count + 1
            series = {"count": before.count, "lastObservedTime": self._micro_time()}
            try:
                await self._kube.merge(EVENTS.path(before.namespace, before.name), {"series": series})
            except NotFoundError:  # it has expired on the server
                pass
            else:
                return "repeated"
        if not self._allowed(uid, now):
            return "limited"
        namespace = key.namespace or CLUSTER_NAMESPACE
        name = f"{key.name[:200]}.{uuid.uuid4().hex[:16]}"
        resource = RESOURCES[key.kind]
        regarding = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": key.name,
            "uid": metadata.uid,
            "resourceVersion": metadata.resource_version,
        }
        await self._kube.create(
            EVENTS.path(namespace),
            {
                "apiVersion": EVENTS.api_version,
                "kind": EVENTS.kind,
                "metadata": {"namespace": namespace, "name": name},
                "eventTime": self._micro_time(),
                "type": "Warning" if change.warning else "Normal",
                "reason": change.reason,
                "action": "Reconcile",
                "note": change.message,
                "reportingController": CONTROLLER,
                "reportingInstance": self._instance,
                "regarding": regarding | ({"namespace": key.namespace} if key.namespace else {}),
            },
        )
        self._posted.put(same, _Posted(namespace, name, 1, now))
        return "created"

    def _allowed(self, uid: str, now: float) -> bool:
        bucket = self._buckets.get(uid)
        if bucket is None:
            bucket = _Bucket(float(BURST), now)
            self._buckets.put(uid, bucket)
        bucket.tokens = min(bucket.tokens + (now - bucket.filled) / REFILL_S, float(BURST))
        bucket.filled = now
        if bucket.tokens < 1.0:
            return False
        bucket.tokens -= 1.0
        return True

    def _micro_time(self) -> str:
        return datetime.fromtimestamp(self._unix_clock(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
