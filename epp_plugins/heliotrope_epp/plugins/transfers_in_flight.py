"""KV transfers that this picker caused and that are taken to be on their way: what the next ones share links with.

A pull begins when its request is sent, the transfer of a pair when its prompt is taken to be prefilled, and each lasts
as long as was estimated. No engine tells, so nothing is known of when they truly end, nor of other pickers' transfers.
"""

from dataclasses import dataclass
from math import isfinite

from heliotrope.cache.crowd import Crowd, side_of
from heliotrope.cache.links import link_class
from heliotrope.decide.compared import Planned
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.kv_labels import place_of
from heliotrope_epp.plugins.options import Options

MAX_TRANSFERS = 1_024
"""That are remembered; more are not counted."""


@dataclass(frozen=True, slots=True)
class _Transfer:
    source: str
    reader: str
    side: int
    begins_s: float
    ends_s: float


class TransfersInFlight:
    """Lives on the loop's thread; calls take time in proportion to the transfers that have not ended."""

    def __init__(self) -> None:
        self._transfers: list[_Transfer] = []
        self.dropped = 0
        """Transfers that were not counted because there were too many."""

    def __len__(self) -> int:
        return len(self._transfers)

    def caused(self, plan: Planned, source: EndpointState, reader: EndpointState, now_s: float) -> None:
        """A request was sent whose plan moves blocks; of unknown duration, or over an unknown link, it counts for none.

        Args:
            plan: what it does.
            source: where the blocks are, or will be.
            reader: where they go.
            now_s: monotonic.
        """
        seconds = float(plan.candidates.transfer_seconds[plan.row])
        begins_s = now_s + plan.transfer_begins_seconds
        places = [place_of(state.endpoint, state.traits) for state in (source, reader)]
        kind = link_class(*places)
        if kind is None or not isfinite(begins_s + seconds) or seconds <= 0.0:
            return
        if len(self._transfers) >= MAX_TRANSFERS:
            self._forget(now_s)
        if len(self._transfers) >= MAX_TRANSFERS:
            self.dropped += 1
            return
        self._transfers.append(
            _Transfer(source.endpoint.key, reader.endpoint.key, side_of(kind), begins_s, begins_s + seconds)
        )

    def crowd(self, options: Options, now_s: float) -> Crowd | None:
        """Those on their way now, by endpoint; None: there is none at these."""
        if not self._transfers:
            return None
        self._forget(now_s)
        flowing = [each for each in self._transfers if each.begins_s <= now_s]
        if not flowing:
            return None
        rows = {state.endpoint.key: row for row, state in enumerate(options.states)}
        crowd, found = Crowd.none(len(rows)), False
        for each in flowing:
            for table, key in ((crowd.into, each.reader), (crowd.out, each.source)):
                row = rows.get(key)
                if row is not None:
                    table[each.side, row] += 1.0
                    found = True
        return crowd if found else None

    def count(self, now_s: float) -> int:
        """How many are on their way."""
        return sum(each.begins_s <= now_s < each.ends_s for each in self._transfers)

    def forget(self, key: str) -> None:
        """The endpoint is gone."""
        self._transfers = [each for each in self._transfers if key not in (each.source, each.reader)]

    def _forget(self, now_s: float) -> None:
        """Those that have ended."""
        if any(each.ends_s <= now_s for each in self._transfers):
            self._transfers = [each for each in self._transfers if each.ends_s > now_s]
