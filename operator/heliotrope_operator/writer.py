"""Writes statuses: transitions at once, newer values now and then, and nothing when nothing differs."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from heliotrope.api.struct import Struct
from heliotrope.api.v1alpha1.common import ObjectMeta
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.conditions import Transition
from heliotrope_operator.errors import ConflictError, NotFoundError
from heliotrope_operator.merge import merge_patch
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import RESOURCES, Key
from heliotrope_operator.writes import Writes

_log = logging.getLogger(__name__)

_VALUES = frozenset({"intensity", "forecast", "forecastError", "scaling"})
"""Fields of a status whose change alone is no transition."""

Document = dict[str, Any]


class Writer:
    """Writes statuses, and annotations of the objects that have them."""

    def __init__(
        self,
        writes: Writes,
        cluster: Cluster,
        recorder: Recorder,
        metrics: Metrics,
        *,
        refresh_s: float,
        enqueue: Callable[[Iterable[Key]], None],
    ) -> None:
        """`refresh_s` is the least time between writes of mere values; `enqueue` takes what a write touches."""
        self._writes = writes
        self._cluster = cluster
        self._recorder = recorder
        self._metrics = metrics
        self._refresh_s = refresh_s
        self._enqueue = enqueue
        self._written: dict[Key, float] = {}

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._written.pop(key, None)

    async def status(
        self,
        key: Key,
        metadata: ObjectMeta,
        old: Struct | None,
        new: Struct,
        changes: Sequence[Transition],
        *,
        refresh_s: float | None = None,
    ) -> float | None:
        """Make a status so, and tell of its transitions once it is.

        Args:
            key: the object.
            metadata: of the version that `new` was computed from.
            old: its status.
            new: the status that it should have.
            changes: what to tell; only told when the write is a transition and succeeds.
            refresh_s: least time between writes of mere values, if shorter than usual.

        Returns:
            Seconds until mere values may be written that were held back now; None if nothing was.

        Raises:
            ConflictError: if the object has changed meanwhile; what is known of it is then up to date.
            NotLeaderError: if this replica may not write.
            ApiError: if the write fails otherwise.
        """
        before, after = _document(old), _document(new)
        patch = merge_patch(before, after)
        if not patch:
            return None
        now = asyncio.get_running_loop().time()
        if _without_values(before) == _without_values(after):
            allowed = self._written.get(key, float("-inf")) + min(self._refresh_s, refresh_s or self._refresh_s)
            if allowed > now:
                return allowed - now
        body = {"metadata": {"resourceVersion": metadata.resource_version}, "status": patch}
        if not await self._patch(key, body, "status"):
            return None
        self._written[key] = now
        self._metrics.status_writes.labels(key.kind.value).inc()
        for change in changes:
            _log.info("%s: %s: %s", key, change.reason, change.message)
            await self._recorder.record(key, metadata, change)
        return None

    async def annotation(self, key: Key, metadata: ObjectMeta, name: str, value: str | None) -> None:
        """Set one annotation of an object, or remove it. Other annotations and the rest are not touched.

        Raises:
            NotLeaderError, ApiError: as for `status`.
        """
        body = {
            "metadata": {"resourceVersion": metadata.resource_version, "annotations": {name: value}},
        }
        await self._patch(key, body, "")

    async def _patch(self, key: Key, body: Document, subresource: str) -> bool:
        """Send a patch that holds for one version only; False if the object is gone."""
        resource = RESOURCES[key.kind]
        try:
            updated = await self._writes.merge(resource.path(key.namespace, key.name, subresource), body)
        except ConflictError:
            await self._read_again(key)
            raise
        except NotFoundError:
            self._enqueue(self._cluster.forget(key) - {key})
            return False
        self._enqueue(self._cluster.observe(key.kind, updated) - {key})
        return True

    async def _read_again(self, key: Key) -> None:
        try:
            fresh = await self._writes.kube.get(RESOURCES[key.kind].path(key.namespace, key.name))
        except NotFoundError:
            self._enqueue(self._cluster.forget(key) - {key})
        else:
            self._enqueue(self._cluster.observe(key.kind, fresh) - {key})


def _document(status: Struct | None) -> Document:
    return {} if status is None else status.model_dump(by_alias=True, exclude_none=True, mode="json")


def _without_values(status: Document) -> Document:
    kept = {name: value for name, value in status.items() if name not in _VALUES}
    kept["conditions"] = [
        {name: value for name, value in condition.items() if name != "message"}
        for condition in status.get("conditions", ())
    ]
    return kept
