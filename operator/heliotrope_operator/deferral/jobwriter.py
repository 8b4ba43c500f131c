"""The two things that are written to a Job: the plan while it waits, and the mark of its start."""

import logging
from typing import Any

from heliotrope.api.scalars import format_decimal
from heliotrope.api.v1alpha1.common import ObjectMeta
from heliotrope_operator.conditions import MAX_MESSAGE, Transition
from heliotrope_operator.deferral import annotations as names
from heliotrope_operator.deferral.annotations import Ask
from heliotrope_operator.deferral.metrics import DeferralMetrics
from heliotrope_operator.deferral.verdict import Verdict
from heliotrope_operator.errors import ConflictError, NotFoundError
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.times import format_unix

_log = logging.getLogger(__name__)

DEFERRED = "Deferred"
"""Reason of the event when a Job waits, or waits for another time."""


class JobWriter:
    """Writes them, tells of them and counts them. Each write holds for the version that was looked at only."""

    def __init__(self, context: Context, metrics: DeferralMetrics) -> None:
        self._cluster = context.cluster
        self._kube = context.kube
        self._writes = context.writes
        self._recorder = context.recorder
        self._enqueue = context.enqueue
        self._metrics = metrics

    async def plan(self, key: Key, uid: str, ask: Ask, verdict: Verdict) -> None:
        """Write the planned start, unless it is what stands there.

        Raises:
            ConflictError: if the Job has changed; what is known of it is then up to date.
            NotLeaderError, ApiError: if it could not be written.
        """
        found = verdict.plan
        if found is None:
            return
        if ask.planned_unix_s is not None and round(ask.planned_unix_s) == round(found.planned_unix_s):
            return
        written = {names.PLANNED_START: format_unix(found.planned_unix_s), names.REASON: verdict.reason}
        if ask.undeferred_g_per_kwh is None and found.now is not None:
            written[names.UNDEFERRED_INTENSITY] = format_decimal(round(found.now.expected, 3))
        if await self._patch(key, {"metadata": {"annotations": written}}):
            self._metrics.planned(key.namespace, moved=ask.planned_unix_s is not None)
            await self._tell(key, uid, DEFERRED, verdict)

    async def start(
        self, key: Key, uid: str, ask: Ask, verdict: Verdict, *, now_unix_s: float, created_unix_s: float, resume: bool
    ) -> None:
        """Mark the Job as started and, in the same write, resume it; without `resume` somebody else does.

        Raises:
            ConflictError, NotLeaderError, ApiError: as for `plan`.
        """
        written = {names.STARTED: format_unix(now_unix_s), names.REASON: verdict.reason}
        body: dict[str, Any] = {"metadata": {"annotations": written}}
        if resume:
            body["spec"] = {"suspend": False}
        if await self._patch(key, body):
            self._metrics.started(key.namespace, ask, verdict, waited_s=max(now_unix_s - created_unix_s, 0.0))
            await self._tell(key, uid, verdict.reason, verdict)

    async def _patch(self, key: Key, body: dict[str, Any]) -> bool:
        """False if the Job is gone."""
        path = RESOURCES[Kind.JOB].path(key.namespace, key.name)
        body["metadata"]["resourceVersion"] = self._cluster.version(key)
        try:
            updated = await self._writes.merge(path, body)
        except ConflictError:
            self._enqueue(self._cluster.observe(Kind.JOB, await self._kube.get(path)) - {key})
            raise
        except NotFoundError:
            self._enqueue(self._cluster.forget(key) - {key})
            return False
        self._enqueue(self._cluster.observe(Kind.JOB, updated) - {key})
        return True

    async def _tell(self, key: Key, uid: str, reason: str, verdict: Verdict) -> None:
        _log.info("%s: %s: %s", key, reason, verdict.message)
        metadata = ObjectMeta(
            name=key.name, namespace=key.namespace, uid=uid, resource_version=self._cluster.version(key)
        )
        await self._recorder.record(key, metadata, Transition(verdict.warning, reason, verdict.message[:MAX_MESSAGE]))
