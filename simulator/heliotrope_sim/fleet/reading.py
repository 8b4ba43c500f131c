"""What the kernel's state says of engines at an instant that they have run up to."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from heliotrope_sim.engine.fixed_point import seconds
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.blocks import cached_tokens
from heliotrope_sim.fleet.layout import Fleet
from heliotrope_sim.fleet.topology import Site
from heliotrope_sim.fleet.view import SiteEngines

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def is_ready(table: Int64, now_ns: int) -> NDArray[np.bool_]:
    """Engines that do not still wake."""
    return np.asarray((table[:, layout.STATE] != layout.WAKING) | (table[:, layout.READY] <= now_ns))


def prefilled_ns(table: Int64, now_ns: int) -> Int64:
    """Time that engines have spent in prefill steps; one in progress counts as far as it has come."""
    ahead = np.where(table[:, layout.STEP_KIND] == layout.PREFILL_STEP, table[:, layout.SETTLED] - now_ns, 0)
    return table[:, layout.PREFILL_NS] - np.maximum(ahead, 0)


def site_engines(fleet: Fleet, site: Site, bounds: tuple[int, int], now_ns: int) -> SiteEngines:
    """A site's engines, from the first of the bounds to before the second; columns are copies."""
    first, end = bounds
    table = fleet.engines[first:end]
    blocks = fleet.charges[table[:, layout.ROW], layout.BLOCKS]
    head = table[:, layout.WAIT_HEAD]
    queued_ns = np.where(head >= 0, fleet.requests[head, layout.QUEUED], now_ns)
    return SiteEngines(
        site=site,
        running=table[:, layout.BATCH] + table[:, layout.PREFILL_COUNT],
        waiting=table[:, layout.WAIT_COUNT].copy(),
        queued_tokens=table[:, layout.WAIT_TOKENS] + table[:, layout.PREFILL_LEFT],
        kv_tokens=table[:, layout.KV_TOKENS] + table[:, layout.PREFILL_DONE],
        used_blocks=blocks - table[:, layout.FREE_BLOCKS] - table[:, layout.LRU_COUNT],
        takes_requests=(table[:, layout.TAKES] == 1) & (table[:, layout.ROLE] != layout.DECODES_ONLY),
        ready=is_ready(table, now_ns),
        depth=table[:, layout.DEPTH].copy(),
        clock_mhz=table[:, layout.CLOCK_MHZ].copy(),
        oldest_waiting_seconds=np.asarray(seconds(now_ns - queued_ns)),  # type: ignore[arg-type]
        prefill_seconds=np.asarray(seconds(prefilled_ns(table, now_ns))),  # type: ignore[arg-type]
        cached_tokens=_asker(fleet, first, end),
    )


def _asker(fleet: Fleet, first: int, end: int) -> Callable[[int], Float64]:
    def cached(request: int) -> Float64:
        return np.array([cached_tokens(fleet, e, request) for e in range(first, end)], dtype=np.float64)

    return cached
