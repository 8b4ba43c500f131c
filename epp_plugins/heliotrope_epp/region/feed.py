"""What is known of one region: its last state, how reading it goes, and whether its gateway fails requests."""

from dataclasses import dataclass, field
from math import inf, nan

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.region_state import RegionLoad, StatePage
from heliotrope_epp.region.config import RegionEntry

FAILURES_BEFORE_PAUSE = 5
"""Requests in a row that a gateway fails before its region is left alone: less may be single engines."""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0


@dataclass(slots=True)
class RegionFeed:
    """Owned by the loop's thread: the provisioner writes it, windows read it. Instants are monotonic seconds."""

    entry: RegionEntry
    load: RegionLoad | None = None
    """The last that came; kept while the region is away, so that what it was is still to be seen."""
    received_s: float = -inf
    received_unix_s: float = nan
    page_time_unix_s: float | None = None
    """Its picker's clock on the last page; only compared with itself."""
    refused: bool = False
    """The last try met a closed port at every address."""
    failures: int = 0
    """Tries in a row without a new state."""
    tried: bool = False
    problem: str | None = None
    paused_until_s: float = -inf
    pauses: int = field(default=0)
    """In a row."""
    _failed_in_a_row: int = 0
    _paused_s: float = -inf

    @property
    def name(self) -> str:
        """Of the region."""
        return self.entry.name

    def accept(self, page: StatePage, now_s: float, now_unix_s: float) -> None:
        """Take a page.

        Raises:
            InvalidInputError: if it says nothing of this region, or was said before.
        """
        load = self._own(page)
        if page.time_unix_s == self.page_time_unix_s:
            raise InvalidInputError("time_unix_s", "has not moved since the last page: something answers from a cache")
        self.load, self.page_time_unix_s = load, page.time_unix_s
        self.received_s, self.received_unix_s = now_s, now_unix_s
        self.refused, self.failures, self.tried, self.problem = False, 0, True, None

    def fail(self, problem: str, *, refused: bool) -> None:
        """A try gave nothing."""
        self.failures += 1
        self.refused, self.tried, self.problem = refused, True, problem

    def up(self, now_s: float, lost_after_s: float) -> bool:
        """Whether it takes requests: its state is no older than `lost_after_s`, its picker and gateway are there.

        After a pause a state from before it says nothing: what failed the requests may have been just that.
        """
        fresh = now_s - self.received_s <= lost_after_s and self.received_s > self._paused_s
        return fresh and not self.refused and now_s >= self.paused_until_s

    def answered(self, now_s: float, *, failed: bool) -> bool:
        """How a request ended that was sent there; True if the region is left alone for a while because of it."""
        if not failed:
            self._failed_in_a_row = self.pauses = 0
            return False
        self._failed_in_a_row += 1
        if self._failed_in_a_row < FAILURES_BEFORE_PAUSE or now_s < self.paused_until_s:
            return False
        self.paused_until_s = now_s + min(FIRST_PAUSE_S * 2.0 ** min(self.pauses, 16), LONGEST_PAUSE_S)
        self._paused_s = now_s
        self.pauses += 1
        # One failure more, once it may be tried again, is enough.
        self._failed_in_a_row = FAILURES_BEFORE_PAUSE - 1
        return True

    def _own(self, page: StatePage) -> RegionLoad:
        wanted = self.entry.state_region or self.entry.name
        for load in page.regions:
            if load.region == wanted:
                return load
        if len(page.regions) == 1 and page.regions[0].region is None:
            return page.regions[0]
        names = ", ".join(load.region or "an unknown one" for load in page.regions) or "none"
        raise InvalidInputError("regions", f"has no region {wanted}; it has {names}. Set stateRegion")
