"""One regional scheduler in the simulation: builds what `heliotrope.place` takes, and remembers what it sent."""

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.place.assignment import Assignment
from heliotrope.place.dispatches import DispatchLog, dispatched
from heliotrope.place.projection import project
from heliotrope.place.window import NO_HOME, Window
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.fleet.sessions import Sessions
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.snapshots import Polled, Sight
from heliotrope_sim.fleet.topology import Topology
from heliotrope_sim.fleet.windows import Windows
from heliotrope_sim.fleet.workload import Workload

Int64 = NDArray[np.int64]


class Columns:
    """What schedulers read of requests, once for all of them."""

    def __init__(self, topology: Topology, workload: Workload) -> None:
        self.prompt_tokens = workload.prompt_tokens.astype(np.float64)
        self.expected = workload.expected_output_tokens
        self.class_index = workload.class_index
        self.ttft_slo = np.array([c.ttft_slo_seconds for c in workload.classes])
        self.tpot_slo = np.array([c.tpot_slo_seconds for c in workload.classes])
        names = [site.name for site in topology.sites]
        self.allowed = np.array(
            [[c.allowed_sites is None or name in c.allowed_sites for name in names] for c in workload.classes]
        )


class Placing:
    """One scheduler: its windows, its view, its memory. Decides one window after the other."""

    def __init__(
        self,
        topology: Topology,
        workload: Workload,
        settings: RunSettings,
        scheduler: int,
        columns: Columns,
        sessions: Sessions,
    ) -> None:
        self.windows = Windows(workload, scheduler, settings)
        self.closed: deque[tuple[int, Int64, Int64]] = deque()
        """Windows that wait for the decision before theirs: (when closed, own requests, forwarded ones)."""
        self.free_ns = 0
        """When its last decision ends."""
        self.close_event_ns: int | None = None
        self._workload = workload
        self._settings = settings
        self._policy = settings.simulated_policy()
        self._columns = columns
        self._sessions = sessions
        self._sight = Sight(topology, scheduler, settings)
        self._log = DispatchLog()
        self._memory: Any = None
        self._peers = float(len(topology.schedulers) - 1) if settings.peers is None else settings.peers

    def decide(self, own: Int64, polled: Polled, now_ns: int) -> tuple[Assignment, int]:
        """Assign a window's own requests; returns the assignment and when it is there."""
        settings = self._settings
        assert settings.scheduler is not None
        now_s = settings.start_unix_s + seconds(now_ns)
        regions = self._sight.regions(polled, now_ns)
        measured_s = settings.start_unix_s + np.asarray(seconds(polled.polled_ns))  # type: ignore[arg-type]
        if settings.project:
            self._log.forget(measured_s)
            regions = project(regions, measured_s, self._log.matrix, now_s, self._peers)
        window = self._window(own, now_ns, regions.engines > 0.0)
        assignment = settings.scheduler(window, regions, self._policy, now_s, self._memory)
        self._memory = assignment.memory
        taken = settings.decision_time.seconds(len(own), assignment)
        decided_ns = now_ns + nanoseconds(taken)
        if settings.project:
            sent_s = settings.start_unix_s + seconds(decided_ns)
            self._log.add(dispatched(window, regions, self._policy, assignment.regions, sent_s))
        return assignment, decided_ns

    def _window(self, own: Int64, now_ns: int, up: NDArray[np.bool_]) -> Window:
        c = self._columns
        kind = c.class_index[own]
        home, cached = self._sessions.known(own)
        return Window(
            prompt_tokens=c.prompt_tokens[own],
            output_tokens=c.expected[own],
            waited_seconds=np.asarray(seconds(now_ns - self._workload.arrival_ns[own])),  # type: ignore[arg-type]
            ttft_slo_seconds=c.ttft_slo[kind],
            tpot_slo_seconds=c.tpot_slo[kind],
            cached_tokens=np.zeros((len(own), len(up))) if cached is None else cached,
            allowed=c.allowed[kind] & up,
            home=np.full(len(own), NO_HOME, dtype=np.int64) if home is None else home,
        )
