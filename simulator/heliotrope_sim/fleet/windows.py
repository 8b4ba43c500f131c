"""Which requests a scheduler decides together: those that come while a window is open."""

import numpy as np
from numpy.typing import NDArray

from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.fleet.settings import RunSettings
from heliotrope_sim.fleet.workload import Workload

Int64 = NDArray[np.int64]


class Windows:
    """One scheduler's: a window opens with the first request after the last one closed.

    It closes when it has been open for its longest time or is full. Requests that others forward here wait in it too.
    """

    def __init__(self, workload: Workload, scheduler: int, settings: RunSettings) -> None:
        self._own = np.flatnonzero(workload.origin == scheduler)
        self._own_ns = workload.arrival_ns[self._own]
        self._next = 0
        self._forwarded = np.zeros(0, dtype=np.int64)
        self._forwarded_ns = np.zeros(0, dtype=np.int64)
        self._longest_ns = round(nanoseconds_from_seconds(settings.window_seconds))
        self._most = settings.window_requests

    def forward(self, requests: Int64, reach_ns: Int64) -> None:
        """Requests from other schedulers get here at those times."""
        requests = np.concatenate([self._forwarded, requests])
        times = np.concatenate([self._forwarded_ns, reach_ns])
        order = np.argsort(times, kind="stable")
        self._forwarded, self._forwarded_ns = requests[order], times[order]

    def closes_ns(self) -> int | None:
        """When the next window closes by what is known; None: nothing is to come."""
        first = [int(times[0]) for times in (self._own_ns[self._next :], self._forwarded_ns) if len(times)]
        if not first:
            return None
        closes = min(first) + self._longest_ns
        own = int(np.searchsorted(self._own_ns, closes, side="right"))
        forwarded = int(np.searchsorted(self._forwarded_ns, closes, side="right"))
        if own - self._next + forwarded >= self._most:
            times = np.concatenate([self._own_ns[self._next : own], self._forwarded_ns[:forwarded]])
            closes = min(closes, int(np.partition(times, self._most - 1)[self._most - 1]))
        return closes

    def close(self, now_ns: int) -> tuple[Int64, Int64]:
        """End the window: its own requests, and those that were forwarded here."""
        own = int(np.searchsorted(self._own_ns, now_ns, side="right"))
        forwarded = int(np.searchsorted(self._forwarded_ns, now_ns, side="right"))
        own = min(own, self._next + self._most)
        forwarded = min(forwarded, max(self._most - (own - self._next), 0))
        decided, along = self._own[self._next : own], self._forwarded[:forwarded]
        self._next = own
        self._forwarded, self._forwarded_ns = self._forwarded[forwarded:], self._forwarded_ns[forwarded:]
        return decided, along
