"""Collects requests into windows: each closes by its time or when it is full, and nothing waits for it."""

import asyncio
from collections.abc import Callable

from heliotrope.api.v1alpha1.objective import Placement as PlacementSpec
from heliotrope_epp.region.placed import Waiting


class Collector:
    """Owned by the loop's thread. A window holds at most `windowRequests` requests for at most `window`."""

    def __init__(
        self,
        spec: Callable[[], PlacementSpec],
        closed: Callable[[list[Waiting]], None],
        clock: Callable[[], float],
    ) -> None:
        """`closed` is given each window; `clock` gives monotonic seconds."""
        self._spec = spec
        self._closed = closed
        self._clock = clock
        self._open: dict[int, Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    def add(self, waiting: Waiting) -> None:
        """One more for the window that is open; the first opens one."""
        spec = self._spec()
        waiting.windowed_s = self._clock()
        self._open[id(waiting.request)] = waiting
        if len(self._open) >= spec.window_requests:
            self.close()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(spec.window.total_seconds(), self.close)

    def left(self, waiting: Waiting) -> None:
        """Its client has gone."""
        self._open.pop(id(waiting.request), None)

    def close(self) -> None:
        """Close the window now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._open:
            batch, self._open = list(self._open.values()), {}
            self._closed(batch)
