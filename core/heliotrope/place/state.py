"""What schedulers read of the regions, as one matrix: what compiled loops take and project on."""

from enum import IntEnum

import numpy as np

from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatMatrix


class State(IntEnum):
    """Line of the matrix; means over a region's engines as in `Regions`, whose names these are."""

    ENGINES = 0
    BATCH_CAPACITY = 1
    RUNNING = 2
    WAITING = 3
    WAITING_TOKENS = 4
    KV_TOKENS = 5
    PREFILL_DUTY = 6
    IDLE_ENGINES = 7
    RTT_SECONDS = 8
    DISPATCH_SECONDS = 9
    INTENSITY = 10
    PUE = 11
    LARGEST_SHARE = 12
    RECENT_SHARE = 13


STATES = len(State)


def state_of(regions: Regions) -> FloatMatrix:
    """A copy of the columns, shape (`STATES`, d)."""
    return np.array(
        (
            regions.engines,
            regions.batch_capacity,
            regions.running,
            regions.waiting,
            regions.waiting_tokens,
            regions.kv_tokens,
            regions.prefill_duty,
            regions.idle_engines,
            regions.rtt_seconds,
            regions.dispatch_seconds,
            regions.intensity_g_per_kwh,
            regions.pue,
            regions.largest_share,
            regions.recent_share,
        )
    )
