"""Puts deferral together."""

import time

from heliotrope_operator.deferral.clock import ServerClock
from heliotrope_operator.deferral.dispatch import DISPATCH, DispatchController
from heliotrope_operator.deferral.jobs import JobController, waits
from heliotrope_operator.deferral.jobwriter import JobWriter
from heliotrope_operator.deferral.kueue import AdmissionCheckController, WorkloadController
from heliotrope_operator.deferral.metrics import DeferralMetrics, StateCollector
from heliotrope_operator.deferral.surroundings import KnownSurroundings
from heliotrope_operator.parts import Context, Part
from heliotrope_operator.reconciler import Controller
from heliotrope_operator.resources import Kind


def part(context: Context) -> Part:
    """Controllers of Jobs, of Kueue's objects where they are watched, and of dispatch budgets."""
    cluster, registry = context.cluster, context.metrics.registry
    clock = ServerClock(context.unix_clock, time.monotonic)
    known = KnownSurroundings(cluster, time.monotonic)
    writer = JobWriter(context, DeferralMetrics(registry))
    dispatch = DispatchController(cluster, unix_clock=context.unix_clock, monotonic=time.monotonic)
    registry.register(
        StateCollector(
            lambda: [key.namespace for key, job in cluster.table(Kind.JOB).items() if waits(job)],
            dispatch.published,
            clock.behind_s,
        )
    )
    controllers: dict[Kind, Controller] = {
        Kind.JOB: JobController(context, clock, known, writer),
        Kind.DISPATCH: dispatch,
    }
    if Kind.WORKLOAD in cluster.specs:
        controllers[Kind.ADMISSION_CHECK] = AdmissionCheckController(context)
        controllers[Kind.WORKLOAD] = WorkloadController(context, clock, writer)
    return Part(controllers=controllers, seeds=(DISPATCH,))
