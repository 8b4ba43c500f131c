"""Energy by site, line and interval, to the picojoule."""

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.engine.fixed_point import joules, milliwatts, seconds
from heliotrope_sim.fleet.machines import ENERGY_LINES, Machines
from heliotrope_sim.fleet.results import Line


class Accounts:
    """Reads the engines' meters; `read` at least before every command and every quarter of an hour."""

    LONGEST_NS = 600_000_000_000
    """Between two readings: an engine's counters hold 9 MJ."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._sites = machines.topology.sites
        self._read_ns = 0
        self._current = self._zeros()
        self._awake_ns = np.zeros(len(self._sites), dtype=np.int64)
        self._busy_ns = np.zeros(len(self._sites), dtype=np.int64)
        self.ends_ns: list[int] = []
        self._energy: list[list[list[int]]] = []
        self._awake: list[NDArray[np.int64]] = []
        self._busy: list[NDArray[np.int64]] = []

    def read(self, now_ns: int) -> None:
        """Count what was drawn since the last reading towards the open interval; engines have run up to now."""
        drawn, awake, busy = self._machines.read_energy(now_ns)
        for s, (site, lines) in enumerate(zip(self._sites, self._current, strict=True)):
            for line in range(ENERGY_LINES):
                lines[line] += drawn[s][line]
            node_ns = self._machines.node_ns(s, self._read_ns, now_ns)
            lines[Line.HOST] += milliwatts(site.host_watts_per_node) * node_ns
        self._awake_ns += awake
        self._busy_ns += busy
        self._read_ns = now_ns

    def close(self, now_ns: int) -> None:
        """End an interval, if any time has passed since the last one."""
        if now_ns <= (self.ends_ns[-1] if self.ends_ns else 0):
            return
        self.read(now_ns)
        self.ends_ns.append(now_ns)
        self._energy.append(self._current)
        self._awake.append(self._awake_ns.copy())
        self._busy.append(self._busy_ns.copy())
        self._current = self._zeros()
        self._awake_ns[:] = 0
        self._busy_ns[:] = 0

    def energy_joules(self) -> NDArray[np.float64]:
        """Shape (intervals, sites, lines)."""
        values = [[[joules(pj) for pj in lines] for lines in sites] for sites in self._energy]
        return np.array(values, dtype=np.float64).reshape(-1, len(self._sites), len(Line))

    def awake_seconds(self) -> NDArray[np.float64]:
        """Of engines; shape (intervals, sites)."""
        return np.array([[seconds(int(ns)) for ns in row] for row in self._awake])

    def busy_seconds(self) -> NDArray[np.float64]:
        """Of engines; shape (intervals, sites)."""
        return np.array([[seconds(int(ns)) for ns in row] for row in self._busy])

    def _zeros(self) -> list[list[int]]:
        return [[0] * len(Line) for _ in self._sites]
