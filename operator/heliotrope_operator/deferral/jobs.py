"""Jobs: suspended ones that opted in wait for their window, and are resumed once.

All that has to survive a crash stands on the Job: the plan as an annotation while it waits, and the mark that it was
started in the same write that resumes it. Both writes hold for the version that they were computed from only, so of two
operators, or of an operator and a user, one is refused and looks again.
"""

from dataclasses import dataclass

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile
from heliotrope_operator.deferral import annotations as names
from heliotrope_operator.deferral.clock import ServerClock
from heliotrope_operator.deferral.jobwriter import JobWriter
from heliotrope_operator.deferral.surroundings import KnownSurroundings
from heliotrope_operator.deferral.verdict import judge
from heliotrope_operator.kinds.jobs import Job
from heliotrope_operator.kinds.regions import region_key
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import Key, Kind

LOOK_S = 10.0
"""A waiting Job is looked at this often: so soon does it start when the signal is lost or its policy goes."""
PLAN_S = 300.0
"""It is planned anew this often though nothing has changed; looking alone costs next to nothing."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """What the plan of a waiting Job holds for."""

    job: Job
    policies: tuple[CarbonPolicy, ...]
    region: RegionProfile
    until_unix_s: float


def waits(job: Job) -> bool:
    """Whether it is the operator's turn: opted in, suspended, never run, never started before, nobody else's."""
    return (
        job.uid != ""
        and job.suspended
        and not job.has_run
        and not job.ended
        and job.foreign is None
        and names.STARTED not in dict(job.annotations)
    )


class JobController:
    """Plans and resumes."""

    def __init__(self, context: Context, clock: ServerClock, known: KnownSurroundings, writer: JobWriter) -> None:
        self._cluster = context.cluster
        self._clock = clock
        self._known = known
        self._writer = writer
        self._waiting: dict[Key, _Waiting] = {}

    async def reconcile(self, key: Key) -> float | None:
        """Look at a Job; see `RegionController.reconcile`."""
        job: Job | None = self._cluster.table(Kind.JOB).get(key)
        if job is None or not waits(job):
            self._waiting.pop(key, None)
            return None
        self._clock.saw(job.created_unix_s)
        now_unix_s = self._clock.now_unix_s()
        around = self._known.of(key.namespace)
        before = self._waiting.get(key)
        if (
            before is not None
            and before.job == job
            and before.policies == around.policies
            and before.region == self._cluster.regions.get(region_key(before.region.metadata.name))
            and now_unix_s < before.until_unix_s
        ):
            return min(LOOK_S, before.until_unix_s - now_unix_s)
        self._waiting.pop(key, None)
        ask = names.parse(job.annotations, created_unix_s=job.created_unix_s, longest_run_s=job.active_deadline_s)
        verdict = judge(
            ask,
            around,
            created_unix_s=job.created_unix_s,
            topology_region=job.topology_region,
            now_unix_s=now_unix_s,
        )
        if verdict.start:
            await self._writer.start(
                key, job.uid, ask, verdict, now_unix_s=now_unix_s, created_unix_s=job.created_unix_s, resume=True
            )
            return None
        await self._writer.plan(key, job.uid, ask, verdict)
        if verdict.plan is None or verdict.region is None:
            return LOOK_S
        until = min(now_unix_s + PLAN_S, verdict.plan.planned_unix_s)
        written: Job | None = self._cluster.table(Kind.JOB).get(key)
        if written is not None:
            self._waiting[key] = _Waiting(written, around.policies, verdict.region, until)
        return min(LOOK_S, until - now_unix_s)
