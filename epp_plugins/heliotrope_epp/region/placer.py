"""Assigns closed windows: columns are made on the loop, programs are solved beside it, greedy is always there."""

import asyncio
import logging
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any

import numpy as np

from heliotrope.cache.gate import Gate
from heliotrope.decide.verdict import Because
from heliotrope.place.assignment import NOWHERE, Assignment, Reason, Scheduler
from heliotrope.place.estimate import estimate
from heliotrope.place.from_resources import placement_policy
from heliotrope.place.policy import WorkLimit
from heliotrope.place.schedulers.least_loaded import least_loaded
from heliotrope.place.window import NO_HOME
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer import tasks
from heliotrope_epp.region import sessions
from heliotrope_epp.region.batch import window_of
from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.decided import Decided, Prepared, Resources, Settled
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.schedulers import INLINE
from heliotrope_epp.region.solver import NoAssignmentError, SolverProcess
from heliotrope_epp.region.view import Known, regions_of
from heliotrope_epp.region.wire import Job
from heliotrope_epp.tracing.placement import Placement

MAX_QUEUED_WINDOWS = 4
"""Windows that wait for the solver; further ones are greedy's at once."""
SOLVER_SHARE = 0.8
"""Of the deadline, for the solver itself; the rest brings the answer back."""
GREEDY = "Greedy"
LEAST_LOADED = "LeastLoaded"
BLIND = "no state of any region: each in turn"
_REASONS = {
    Reason.OBJECTIVE: "objective",
    Reason.CLEANEST_WITH_HEADROOM: "cleanest with headroom",
    Reason.LEAST_LATE: "best effort: least expected TTFT",
    Reason.ROUND_ROBIN: "in turn",
    Reason.NOWHERE: "no allowed region is up",
}

_log = logging.getLogger(__name__)


class Placer:
    """Owned by the loop's thread."""

    def __init__(
        self,
        *,
        provisioner: Provisioner,
        resources: Callable[[], Resources],
        beliefs: Beliefs,
        solver: SolverProcess,
        schedulers: Mapping[str, Scheduler],
        gate: Gate,
        peers: int,
        settled: Settled,
        clock: Clock,
    ) -> None:
        """`schedulers` are those that run on the loop, `peers` how many others share the regions."""
        self._provisioner = provisioner
        self._resources = resources
        self._beliefs = beliefs
        self._solver = solver
        self._schedulers = schedulers
        self._gate = gate
        self._peers = peers
        self._settled = settled
        self._clock = clock
        self._memory: dict[str, Any] = {}
        self._closed: deque[tuple[list[Waiting], float]] = deque()
        self._something = asyncio.Event()
        self._number = 0

    @property
    def queued_windows(self) -> int:
        """Closed and waiting for the solver."""
        return len(self._closed)

    def place(self, batch: list[Waiting]) -> None:
        """Assign a window now, or as soon as the solver has; never blocks."""
        spec = self._resources().spec
        name = spec.scheduler.value
        if name in INLINE:
            self._guarded(batch, partial(self._now, batch, name, None))
        elif len(self._closed) >= MAX_QUEUED_WINDOWS:
            self._guarded(batch, partial(self._now, batch, GREEDY, "queue"))
        else:
            self._closed.append((batch, self._clock.monotonic() + spec.solver_deadline.total_seconds()))
            self._something.set()

    async def run(self) -> None:
        """Serve the windows that wait for the solver, in their order, for ever."""
        while True:
            while self._closed:
                batch, due_s = self._closed.popleft()
                await self._solved(batch, due_s)
            self._something.clear()
            if not self._closed:
                await self._something.wait()

    def start(self) -> "asyncio.Task[None]":
        """Begin to serve."""
        return tasks.start(self.run(), "windows for the solver")

    def drain(self) -> None:
        """Leave no window to a solver that is about to stop."""
        while self._closed:
            batch, _ = self._closed.popleft()
            self._guarded(batch, partial(self._now, batch, GREEDY, "draining"))

    async def _solved(self, batch: list[Waiting], due_s: float) -> None:
        try:
            left_s = due_s - self._clock.monotonic()
            prepared = self._prepared(batch, max(left_s, 0.0) * SOLVER_SHARE)
            name = prepared.resources.spec.scheduler.value
            if prepared.blind or name in INLINE:
                self._inline(prepared, GREEDY, None)
                return
            if left_s <= 0.0:
                self._inline(prepared, GREEDY, "deadline")
                return
            job = Job(
                self._solver.next_number(),
                name,
                prepared.window,
                prepared.regions,
                prepared.policy,
                prepared.now_unix_s,
            )
            try:
                solved = await self._solver.solve(job, left_s)
            except NoAssignmentError as error:
                _log.debug("no assignment", extra={"fields": {"why": error.reason}})
                self._inline(self._prepared(batch, 0.0), GREEDY, error.reason)
                return
            assert solved.assignment is not None
            self._settle(prepared, name, solved.assignment, solved.seconds, None)
        except Exception as error:  # noqa: BLE001 - nobody above this turn of the loop answers the clients
            self._defect(batch, error)

    def _guarded(self, batch: list[Waiting], work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - as above
            self._defect(batch, error)

    def _defect(self, batch: list[Waiting], error: Exception) -> None:
        # The message is left out: it may quote a body.
        where = "".join(traceback.format_tb(error.__traceback__))
        _log.error("window failed: %s\n%s", type(error).__name__, where)
        self._settled.failed(batch)

    def _prepared(self, batch: Sequence[Waiting], solver_seconds: float) -> Prepared:
        now_s, now_unix_s = self._clock.monotonic(), self._clock.unix()
        resources = self._resources()
        feeds = tuple(self._provisioner.feeds.values())
        lost_after_s = self._provisioner.lost_after_s
        up = [feed.up(now_s, lost_after_s) for feed in feeds]
        blind = not any(up)
        for feed in feeds:
            if feed.refused:
                self._beliefs.prefixes.forget(feed.name)
        known = Known(
            feeds=feeds,
            up=[True] * len(feeds) if blind else up,
            views=resources.views,
            profiles=resources.profiles,
            shares=self._beliefs.shares(),
            policy=resources.policy,
            now_s=now_s,
            now_unix_s=now_unix_s,
            blind=blind,
        )
        regions = regions_of(known)
        if not blind:
            regions = self._beliefs.projected(regions, feeds, now_unix_s)
        window = window_of(batch, regions.names, known.up, self._beliefs.prefixes, now_s, now_unix_s)
        policy = placement_policy(resources.spec, resources.policy, WorkLimit(seconds=solver_seconds), self._peers)
        free, estimates = window, None
        if bool((window.home != NO_HOME).any()):
            estimates = estimate(window, regions, policy)
            window = sessions.pinned(window, batch, estimates)
        self._number += 1
        return Prepared(
            self._number, batch, resources, window, free, regions, policy, estimates, blind, now_s, now_unix_s
        )

    def _now(self, batch: list[Waiting], name: str, fallback: str | None) -> None:
        self._inline(self._prepared(batch, 0.0), name, fallback)

    def _inline(self, prepared: Prepared, name: str, fallback: str | None) -> None:
        started_s = self._clock.monotonic()
        assignment = self._schedulers[name](
            prepared.window, prepared.regions, prepared.policy, prepared.now_unix_s, self._memory.get(name)
        )
        self._memory[name] = assignment.memory
        self._settle(prepared, name, assignment, self._clock.monotonic() - started_s, fallback)

    def _settle(
        self, prepared: Prepared, name: str, assignment: Assignment, seconds: float, fallback: str | None
    ) -> None:
        policy = prepared.resources.policy
        places, advised = assignment.regions, None
        reasons = [BLIND if prepared.blind else _REASONS[Reason(int(code))] for code in assignment.reasons]
        because = sessions.homeless(prepared.batch)
        if prepared.estimates is not None:
            places, because = sessions.gated(
                prepared.window, prepared.batch, prepared.regions, prepared.estimates, places, self._gate
            )
        if policy is None or not policy.enforce:
            advised = None if policy is None else places
            plain = least_loaded(
                prepared.free,
                prepared.regions,
                prepared.policy,
                prepared.now_unix_s,
                self._memory.get(LEAST_LOADED),
            )
            self._memory[LEAST_LOADED] = plain.memory
            places = plain.regions
            why = "least loaded: no policy" if policy is None else "least loaded: the policy advises"
            reasons = [_REASONS[Reason.NOWHERE] if place == NOWHERE else why for place in places]
        now_s = self._clock.monotonic()
        placements = tuple(
            Placement(
                region=None if place == NOWHERE else prepared.regions.names[place],
                reason="session kept by the gate" if because[i] is Because.GATE else reasons[i],
                scheduler=name,
                outcome=assignment.outcome.value,
                fallback=fallback,
                window=prepared.number,
                window_requests=len(prepared.batch),
                window_seconds=now_s - prepared.batch[i].windowed_s,
                solver_seconds=seconds,
                gap=float(assignment.gap),
                state_age_seconds=nan if place == NOWHERE else float(prepared.regions.age_seconds[place]),
                session=None if because[i] is None else str(because[i]),
                carbon_counts=assignment.carbon_counts,
                held_seconds=prepared.batch[i].held_s,
            )
            for i, place in enumerate(np.asarray(places).tolist())
        )
        self._settled.settled(Decided(prepared, name, assignment, places, advised, placements, seconds, fallback))
