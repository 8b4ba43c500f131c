"""Kueue: AdmissionChecks of ours hold opted-in Workloads back until their window.

Kueue asks a check when it has set quota aside. A start that is minutes away keeps the quota (`Pending`); one that is
further away gives it back (`Retry`) and names a time after which Kueue asks again, at the latest after 15 minutes,
so that a lost signal or a policy that has gone is noticed. A Workload that did not opt in passes at once.
"""

from dataclasses import replace

from heliotrope_operator.deferral import annotations as names
from heliotrope_operator.deferral.clock import ServerClock
from heliotrope_operator.deferral.jobs import LOOK_S, PLAN_S
from heliotrope_operator.deferral.jobwriter import JobWriter
from heliotrope_operator.deferral.surroundings import surroundings
from heliotrope_operator.deferral.verdict import Verdict, judge
from heliotrope_operator.errors import ConflictError, NotFoundError
from heliotrope_operator.kinds.admissionchecks import AdmissionCheck, check_key
from heliotrope_operator.kinds.jobs import NOT_OPTED_IN, Job, job_key
from heliotrope_operator.kinds.workloads import PENDING, READY, RETRY, Check, Workload
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.times import format_unix

KEEP_QUOTA_S = 600.0
"""A start that is nearer than this keeps the quota that is set aside."""
ASK_AGAIN_S = 900.0
"""Kueue asks again at the latest after this time."""
MAX_MESSAGE = 1_000


class AdmissionCheckController:
    """Says of our checks that somebody answers them; Kueue admits nothing through a check that is not active."""

    def __init__(self, context: Context) -> None:
        self._cluster = context.cluster
        self._writes = context.writes
        self._enqueue = context.enqueue
        self._unix_clock = context.unix_clock

    async def reconcile(self, key: Key) -> float | None:
        """Set the condition `Active`; see `RegionController.reconcile`."""
        check: AdmissionCheck | None = self._cluster.table(Kind.ADMISSION_CHECK).get(key)
        if check is None or not check.ours or check.active:
            return None
        resource = RESOURCES[Kind.ADMISSION_CHECK]
        condition = {
            "type": "Active",
            "status": "True",
            "reason": "Active",
            "message": "the Heliotrope operator answers for Workloads of Jobs that opted in to deferral",
            "observedGeneration": check.generation,
            "lastTransitionTime": format_unix(self._unix_clock()),
        }
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": key.name},
            "status": {"conditions": [condition]},
        }
        updated = await self._writes.apply(resource.path("", key.name, "status"), document, force=True)
        self._enqueue(self._cluster.observe(Kind.ADMISSION_CHECK, updated) - {key})
        return None


class WorkloadController:
    """Answers our checks of a Workload."""

    def __init__(self, context: Context, clock: ServerClock, writer: JobWriter) -> None:
        self._cluster = context.cluster
        self._kube = context.kube
        self._writes = context.writes
        self._enqueue = context.enqueue
        self._clock = clock
        self._writer = writer
        self._planned: dict[Key, tuple[str, float]] = {}
        """Uids and planned starts of Workloads that stand for no Job; a Job carries its own."""

    async def reconcile(self, key: Key) -> float | None:
        """Look at a Workload; see `RegionController.reconcile`."""
        workload: Workload | None = self._cluster.table(Kind.WORKLOAD).get(key)
        if workload is None or workload.ended:
            self._planned.pop(key, None)
            return None
        ours = [check for check in workload.checks if self._is_ours(check.name)]
        if not workload.reserved or all(check.state != PENDING for check in ours):
            return None
        named = None if workload.job is None else job_key(key.namespace, workload.job)
        job: Job | None = None if named is None else self._cluster.table(Kind.JOB).get(named)
        if job is None or job == NOT_OPTED_IN:
            job, named = None, None
        if not workload.opted_in and job is None:
            await self._answer(key, ours, READY, "it did not opt in to deferral")
            return None
        return await self._decide(key, workload, ours, named, job)

    async def _decide(
        self, key: Key, workload: Workload, ours: list[Check], named: Key | None, job: Job | None
    ) -> float | None:
        created = workload.created_unix_s if job is None else job.created_unix_s
        self._clock.saw(workload.created_unix_s)
        now_unix_s = self._clock.now_unix_s()
        found = dict(() if job is None else job.annotations) | dict(workload.annotations)
        if names.STARTED in found:
            await self._answer(key, ours, READY, "it was started before; deferral delays a start once")
            return None
        limits = [each for each in (workload.longest_run_s, None if job is None else job.active_deadline_s) if each]
        ask = names.parse(found.items(), created_unix_s=created, longest_run_s=min(limits, default=None))
        uid, planned_unix_s = self._planned.get(key, ("", None))
        if uid == workload.uid:
            ask = replace(ask, planned_unix_s=planned_unix_s)
        verdict = judge(
            ask,
            surroundings(self._cluster, key.namespace),
            created_unix_s=created,
            topology_region=workload.topology_region,
            now_unix_s=now_unix_s,
        )
        if verdict.start:
            if named is not None and job is not None:
                await self._writer.start(
                    named, job.uid, ask, verdict, now_unix_s=now_unix_s, created_unix_s=created, resume=False
                )
            self._planned.pop(key, None)
            await self._answer(key, ours, READY, verdict.message)
            return None
        if verdict.plan is not None:
            if named is not None and job is not None:
                await self._writer.plan(named, job.uid, ask, verdict)
            else:
                self._planned[key] = (workload.uid, verdict.plan.planned_unix_s)
        return await self._hold(key, ours, verdict, now_unix_s)

    async def _hold(self, key: Key, ours: list[Check], verdict: Verdict, now_unix_s: float) -> float | None:
        """Keep the quota for a start that is near, give it back for one that is not."""
        left_s = LOOK_S if verdict.plan is None else verdict.plan.planned_unix_s - now_unix_s
        if left_s > KEEP_QUOTA_S:
            await self._answer(key, ours, RETRY, verdict.message, requeue_after_s=int(min(left_s, ASK_AGAIN_S)))
            return None
        await self._answer(key, ours, PENDING, verdict.message)
        return min(left_s, PLAN_S, LOOK_S)

    def _is_ours(self, name: str) -> bool:
        check: AdmissionCheck | None = self._cluster.table(Kind.ADMISSION_CHECK).get(check_key(name))
        return check is not None and check.ours

    async def _answer(
        self, key: Key, ours: list[Check], state: str, message: str, *, requeue_after_s: int | None = None
    ) -> None:
        """Write the state of our pending checks; all of ours are applied, as one left out would be given up.

        Raises:
            ConflictError: if the Workload has changed; what is known of it is then up to date.
            NotLeaderError, ApiError: if it could not be written.
        """
        now = format_unix(self._clock.now_unix_s())
        answered = [
            Check(
                check.name, state, check.since if state == check.state else now, message[:MAX_MESSAGE], requeue_after_s
            )
            if check.state == PENDING
            else check
            for check in ours
        ]
        if answered == ours:
            return
        resource = RESOURCES[Kind.WORKLOAD]
        path = resource.path(key.namespace, key.name)
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": self._cluster.version(key),
            },
            "status": {"admissionChecks": [check.document() for check in answered]},
        }
        try:
            updated = await self._writes.apply(f"{path}/status", document, force=True)
        except ConflictError:
            self._enqueue(self._cluster.observe(Kind.WORKLOAD, await self._kube.get(path)) - {key})
            raise
        except NotFoundError:
            self._enqueue(self._cluster.forget(key) - {key})
            return
        self._enqueue(self._cluster.observe(Kind.WORKLOAD, updated) - {key})
