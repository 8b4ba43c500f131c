"""What a run draws, by region and line, and what of it emits how much at the intensities of its times."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.costs import Transfer
from heliotrope.units import grams_co2e
from heliotrope_sim.engine.fixed_point import joules, nanoseconds
from heliotrope_sim.reproduce.roadmap.believed import Endpoint
from heliotrope_sim.reproduce.roadmap.testbed import REGIONS

BUSY, IDLE, HOST, TRANSFER = range(4)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Joules of a run by line and region, arrays of length (regions)."""

    busy: NDArray[np.float64]
    idle: NDArray[np.float64]
    host: NDArray[np.float64]
    transfer: NDArray[np.float64]
    working_grams: float
    """Operational CO2e of steps and transfers, with PUE, at the intensities of their times."""


class Accounts:
    """Reads the meters of engines whenever an hour of the grid ends.

    Args:
        endpoints: with the engines.
        intensity: gCO2e/kWh, shape (hours, regions); the last row holds on.
        hour_seconds: how long each row holds.
    """

    def __init__(self, endpoints: Sequence[Endpoint], intensity: NDArray[np.float64], hour_seconds: float) -> None:
        names = [region.name for region in REGIONS]
        self._endpoints = endpoints
        self._region = [names.index(endpoint.spec.region.name) for endpoint in endpoints]
        self._pue = np.array([region.pue for region in REGIONS])
        self._intensity = intensity
        self._hour = 0
        self._hour_ns = nanoseconds(hour_seconds)
        self._moved = np.zeros(len(REGIONS))
        """Joules of transfers between endpoints since the last reading."""
        self._read = np.zeros((4, len(REGIONS)))
        self._before: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * len(endpoints)
        self._grams = 0.0

    @property
    def g_per_kwh(self) -> NDArray[np.float64]:
        """Of the regions, at the time that was advanced to."""
        row: NDArray[np.float64] = self._intensity[min(self._hour, len(self._intensity) - 1)]
        return row

    def advance(self, now_ns: int) -> None:
        """Hours up to a time have ended."""
        while (self._hour + 1) * self._hour_ns <= now_ns:
            self._settle((self._hour + 1) * self._hour_ns)
            self._hour += 1

    def charge(self, moved: Transfer, source: int, reader: int, share: float) -> None:
        """A share of a transfer: half of the network's joules fall to each end's region."""
        half = 0.5 * moved.network_joules
        self._moved[self._region[source]] += (moved.sender_joules + half) * share
        self._moved[self._region[reader]] += (moved.receiver_joules + half) * share

    def drawn(self, now_ns: int) -> Drawn:
        """Everything up to a time."""
        self._settle(now_ns)
        lines = self._read
        return Drawn(lines[BUSY], lines[IDLE], lines[HOST], lines[TRANSFER], self._grams)

    def _settle(self, now_ns: int) -> None:
        drawn = np.zeros((4, len(REGIONS)))
        for e, endpoint in enumerate(self._endpoints):
            meter, external = endpoint.engine.energy, endpoint.engine.external
            busy, idle, asleep = meter.split(now_ns)
            tiers = external.offload_loads.picojoules + external.offload_stores.picojoules
            now = (busy, idle + asleep, meter.host_picojoules(now_ns), tiers)
            for line in range(4):
                drawn[line, self._region[e]] += joules(now[line] - self._before[e][line])
            self._before[e] = now
        drawn[TRANSFER] += self._moved
        self._moved[:] = 0.0
        self._read += drawn
        self._grams += float(grams_co2e(drawn[BUSY] + drawn[TRANSFER], self._pue, self.g_per_kwh).sum())
