"""The regions that a window is assigned to, as columns: position i of every column is region i.

A region is what one carbon intensity and one load hold for: a data centre, or a cluster behind one gateway.
"""

from dataclasses import dataclass

from heliotrope.place.window import FloatColumn, FloatMatrix


@dataclass(frozen=True, slots=True)
class Regions:
    """Columns of length d as one scheduler sees them now. NaN is unknown and never read as zero.

    That is its last snapshot with its own dispatches since projected on it (`heliotrope.place.projection`).
    """

    names: tuple[str, ...]
    engine_rows: FloatMatrix
    """Row i is `heliotrope.engine.coefficients` of the region's engines, shape (d, C); NaN: no step model is known."""
    engines: FloatColumn
    """Engines that are awake and take requests; 0: the region is down, or sleeps."""
    batch_capacity: FloatColumn
    """Sequences that one engine may have in its batch by the scheduler's own limit, which keeps TPOT."""
    running: FloatColumn
    """Sequences in the batch, mean over the engines: B_d."""
    waiting: FloatColumn
    """Requests in an engine's queue, mean over the engines."""
    waiting_tokens: FloatColumn
    """Their uncached prompt tokens, mean over the engines: Q_d."""
    kv_tokens: FloatColumn
    """Tokens that the KV cache holds for the batch, mean over the engines."""
    prefill_duty: FloatColumn
    """Share of recent time spent in prefill, in [0, 1)."""
    idle_engines: FloatColumn
    """Awake engines with nothing in flight: what f_d wakes."""
    intensity_g_per_kwh: FloatColumn
    """Of one signal type; NaN where it is not fresh. Where it is NaN for any region, carbon drops out for all."""
    pue: FloatColumn
    rtt_seconds: FloatColumn
    """Network round trip from this scheduler, 0 for its own region; NaN: unknown."""
    dispatch_seconds: FloatColumn
    """Expected beside the round trip before a request reaches an engine's queue there: the wait in the window of the
    region's own scheduler and the time of its decision."""
    age_seconds: FloatColumn
    """Of the snapshot."""
    largest_share: FloatColumn
    """Most of the policy's recent requests that the region may get, in (0, 1]."""
    recent_share: FloatColumn
    """What it had of them, in [0, 1]; NaN before the first."""

    def __len__(self) -> int:
        return len(self.names)
