"""A snapshot of regions carried forward by what was sent since: schedulers do not act on what they have outdated.

Beyond paper carbon-slo-tension, whose schedulers all act on the last poll and herd between polls (§V-C). A request that
was sent is on its way, waits and is prefilled, runs and leaves as `heliotrope.place.dispatches` expects. A line of the
load now is

    snapshot + (1 + p) · Σ over own requests (what it adds now − what it added when the region was measured) / engines

so requests that the snapshot has already counted are taken away when they leave, and what others sent stays as it was.
p is how many requests other schedulers are expected to send for each own one: they act on the same snapshot by the same
policy, so like us. Nothing falls below 0; NaN is unknown and stays so.
"""

from dataclasses import replace

import numpy as np

from heliotrope.place.dispatches import DUTY_SECONDS
from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatColumn, FloatMatrix, IntColumn, Window


def project(
    snapshot: Regions, measured_at_s: FloatColumn, dispatches: FloatMatrix, now_s: float, peers: float = 0.0
) -> Regions:
    """The regions now.

    Args:
        snapshot: as it was received.
        measured_at_s: when each region was measured, Unix, length d; NaN: never.
        dispatches: own requests (`heliotrope.place.dispatches.Dispatch`): at least all since the oldest measurement.
        now_s: Unix.
        peers: p, see above.
    """
    from heliotrope.place.projection_kernel import LINES, write_projection

    load = np.array(
        (
            snapshot.running,
            snapshot.waiting,
            snapshot.waiting_tokens,
            snapshot.kv_tokens,
            snapshot.prefill_duty,
            snapshot.idle_engines,
        )
    )
    change = np.zeros((len(snapshot), LINES))
    write_projection(snapshot.engines, measured_at_s, dispatches, now_s, peers, DUTY_SECONDS, change, load)
    running, waiting, waiting_tokens, kv_tokens, prefill_duty, idle_engines = load
    return replace(
        snapshot,
        running=running,
        waiting=waiting,
        waiting_tokens=waiting_tokens,
        kv_tokens=kv_tokens,
        prefill_duty=prefill_duty,
        idle_engines=idle_engines,
        age_seconds=np.maximum(now_s - measured_at_s, 0.0),
    )


def peers_seen(snapshot: Regions, measured_at_s: FloatColumn, dispatches: FloatMatrix, otherwise: float) -> float:
    """How many requests of others the regions had for each of ours when they were measured.

    Args:
        snapshot: see `project`; so are the next two.
        measured_at_s: see there.
        dispatches: see there; of before the measurements, too.
        otherwise: the answer where none of ours was there, or no load is known.
    """
    from heliotrope.place.projection_kernel import present

    seen = snapshot.engines * (snapshot.running + snapshot.waiting)
    known = np.isfinite(seen)
    own = np.zeros(len(snapshot))
    present(dispatches, measured_at_s, own)
    ours, all_of_them = float(own[known].sum()), float(seen[known].sum())
    if ours < 1.0:
        return otherwise
    return max(all_of_them / ours - 1.0, 0.0)


def with_assigned(window: Window, regions: Regions, places: IntColumn) -> Regions:
    """The regions as if a window's requests were in the queues of where they are assigned (paper, §IV-B).

    Args:
        window: the requests.
        regions: without them.
        places: `Assignment.regions`; requests that are nowhere add nothing.
    """
    from heliotrope.place.projection_kernel import join_all
    from heliotrope.place.state import State, state_of

    state = state_of(regions)
    join_all(state, window.prompt_tokens, window.cached_tokens, places)
    return replace(
        regions,
        waiting=state[State.WAITING],
        waiting_tokens=state[State.WAITING_TOKENS],
        idle_engines=state[State.IDLE_ENGINES],
    )
