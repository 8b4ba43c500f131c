"""What this scheduler remembers of its own dispatches: shares of regions, and load between two polls."""

from collections.abc import Mapping, Sequence

import numpy as np

from heliotrope.decide.shares import RegionShares
from heliotrope.place.dispatches import DispatchLog, dispatched
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.projection import peers_seen, project
from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatColumn, IntColumn, Window
from heliotrope_epp.region.feed import RegionFeed
from heliotrope_epp.region.prefixes import RegionPrefixes

MOST_PER_PEER = 8.0
"""Requests that another scheduler is believed to send for one of ours: more is load that is nobody's here."""


class Beliefs:
    """Owned by the loop's thread; bounded."""

    def __init__(self, schedulers: int) -> None:
        """`schedulers` share the regions, this one included."""
        self._others = schedulers - 1
        self._log = DispatchLog()
        self._shares = RegionShares()
        self.prefixes = RegionPrefixes()
        """What regions are believed to cache."""

    @property
    def open_dispatches(self) -> int:
        """That a projection may still need."""
        return len(self._log)

    @property
    def dropped(self) -> int:
        """Dispatches that were forgotten for room."""
        return self._log.dropped

    def shares(self) -> Mapping[str | None, float]:
        """Recent requests by region. A region that is away keeps its count: what it had is not what it may have."""
        return self._shares.counts()

    def projected(self, snapshot: Regions, feeds: Sequence[RegionFeed], now_unix_s: float) -> Regions:
        """The regions with what was sent there since they were measured, by this scheduler and its like."""
        return self._projected(snapshot, np.array([feed.received_unix_s for feed in feeds]), now_unix_s)

    def warm_up(self, snapshot: Regions) -> None:
        """Compile what projecting runs."""
        self._projected(snapshot, np.zeros(len(snapshot)), 1.0)

    def _projected(self, snapshot: Regions, measured: FloatColumn, now_unix_s: float) -> Regions:
        self._log.forget(measured)
        matrix = self._log.matrix
        peers = 0.0
        if self._others > 0:
            seen = peers_seen(snapshot, measured, matrix, float(self._others))
            peers = min(seen, MOST_PER_PEER * self._others)
        return project(snapshot, measured, matrix, now_unix_s, peers)

    def sent(
        self, window: Window, regions: Regions, policy: PlacementPolicy, places: IntColumn, now_unix_s: float
    ) -> list[int]:
        """Requests leave; a serial for each that goes anywhere, in their order."""
        placed = places[places >= 0]
        for place in placed:
            self._shares.sent(regions.names[place])
        first = self._log.add(dispatched(window, regions, policy, places, now_unix_s))
        return list(range(first, first + len(placed)))

    def ended(self, serial: int, now_unix_s: float) -> None:
        """A request has ended, whatever was expected."""
        self._log.ended(serial, now_unix_s)
