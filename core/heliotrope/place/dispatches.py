"""What a scheduler has sent to regions and when each request is expected to start and to end there."""

from enum import IntEnum

import numpy as np

from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.state import State, state_of
from heliotrope.place.window import FloatColumn, FloatMatrix, IntColumn, Window


class Dispatch(IntEnum):
    """Line of a matrix whose columns are requests. Times are Unix seconds; tokens and seconds are expected ones."""

    REGION = 0
    """Its index."""
    ARRIVES_S = 1
    """When it is in an engine's queue and the region counts it; until then it is on its way."""
    FIRST_TOKEN_S = 2
    """When its prefill ends; infinite where nothing is known about the region."""
    ENDS_S = 3
    """When its answer ends; infinite likewise."""
    PROMPT_TOKENS = 4
    UNCACHED_TOKENS = 5
    OUTPUT_TOKENS = 6
    PREFILL_SECONDS = 7
    """Of its own prompt."""


DISPATCH_LINES = len(Dispatch)
DUTY_SECONDS = 5.0
"""The recent time that prefill duty is the share of."""
FORGET_AFTER_S = 600.0
"""Whatever was sent longer ago is the same before and after a snapshot, or gone."""


def dispatched(
    window: Window, regions: Regions, policy: PlacementPolicy, places: IntColumn, now_s: float
) -> FloatMatrix:
    """The requests of a window as they leave for their regions, each on the load with those before it.

    Args:
        window: that was assigned.
        regions: that it was assigned on, without its own assignments.
        policy: for answers of unknown length.
        places: `Assignment.regions`; requests that are nowhere are left out.
        now_s: Unix.

    Returns:
        Shape (`DISPATCH_LINES`, m).
    """
    from heliotrope.place.kernel import TERMS
    from heliotrope.place.projection_kernel import write_dispatches

    state = state_of(regions)
    delays = state[[State.RTT_SECONDS, State.DISPATCH_SECONDS]]
    # An unknown delay makes the latency unknown, but not what engines there will have to do.
    state[[State.RTT_SECONDS, State.DISPATCH_SECONDS]] = np.where(np.isnan(delays), 0.0, delays)
    matrix = np.empty((DISPATCH_LINES, len(window)))
    count = write_dispatches(
        regions.engine_rows,
        state,
        np.empty((TERMS, len(regions))),
        window.prompt_tokens,
        window.output_tokens,
        window.cached_tokens,
        policy.unknown_output_tokens,
        places,
        now_s,
        matrix,
    )
    return matrix[:, :count]


class DispatchLog:
    """The dispatches of one scheduler that a projection may still need. Bounded: the oldest are dropped and counted."""

    def __init__(self, limit: int = 262_144) -> None:
        """Keep at most this many requests."""
        self._limit = limit
        self._matrix = np.empty((DISPATCH_LINES, 1024))
        self._keys = np.empty(1024, dtype=np.int64)
        self._count = 0
        self._next_key = 0
        self.dropped = 0
        """Requests that were forgotten because there were too many."""

    def __len__(self) -> int:
        return self._count

    @property
    def matrix(self) -> FloatMatrix:
        """A view, shape (`DISPATCH_LINES`, n), valid until the next change."""
        return self._matrix[:, : self._count]

    def add(self, dispatches: FloatMatrix) -> int:
        """Append requests; returns the key of the first, the others have the following ones."""
        first, more = self._next_key, dispatches.shape[1]
        self._next_key += more
        excess = self._count + more - self._limit
        if excess > 0:
            self.dropped += excess
            self._keep(np.arange(self._count) >= excess)
            dispatches = dispatches[:, max(more - self._limit, 0) :]
            more = dispatches.shape[1]
        self._reserve(self._count + more)
        self._matrix[:, self._count : self._count + more] = dispatches
        self._keys[self._count : self._count + more] = np.arange(self._next_key - more, self._next_key)
        self._count += more
        return first

    def ended(self, key: int, now_s: float) -> None:
        """A request has ended, whatever was expected; unknown keys are no error, for old ones are forgotten."""
        position = int(np.searchsorted(self._keys[: self._count], key))
        if position < self._count and self._keys[position] == key:
            column = self._matrix[:, position]
            for line in (Dispatch.ARRIVES_S, Dispatch.FIRST_TOKEN_S, Dispatch.ENDS_S):
                column[line] = min(column[line], now_s)

    def forget(self, measured_at_s: FloatColumn) -> None:
        """Forget what no projection on these or later snapshots can tell.

        Args:
            measured_at_s: when each region's load was measured, Unix; NaN: never.
        """
        from heliotrope.place.projection_kernel import needed

        keep = np.empty(self._count, dtype=np.bool_)
        needed(self.matrix, measured_at_s, DUTY_SECONDS, FORGET_AFTER_S, keep)
        self._keep(keep)

    def _keep(self, keep: "np.typing.NDArray[np.bool_]") -> None:
        kept = int(keep.sum())
        if kept == self._count:
            return
        self._matrix[:, :kept] = self._matrix[:, : self._count][:, keep]
        self._keys[:kept] = self._keys[: self._count][keep]
        self._count = kept

    def _reserve(self, count: int) -> None:
        size = self._matrix.shape[1]
        if count <= size:
            return
        while size < count:
            size *= 2
        matrix, keys = np.empty((DISPATCH_LINES, size)), np.empty(size, dtype=np.int64)
        matrix[:, : self._count] = self.matrix
        keys[: self._count] = self._keys[: self._count]
        self._matrix, self._keys = matrix, keys
