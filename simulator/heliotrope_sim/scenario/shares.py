"""Largest shares of regions in a simulation: a scheduler that knows where its recent requests went."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from heliotrope.decide.shares import WINDOW_REQUESTS
from heliotrope.place.assignment import Assignment, Scheduler
from heliotrope.place.from_resources import largest_shares
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatColumn, Window


@dataclass(frozen=True, slots=True)
class _Memory:
    """The inner scheduler's, and what each site got of about the last `WINDOW_REQUESTS`."""

    inner: Any
    counts: FloatColumn


def with_largest_shares(scheduler: Scheduler, by_policy: float, by_site: tuple[float, ...]) -> Scheduler:
    """The same scheduler where no site may get more than its share of the recent requests.

    Args:
        scheduler: what decides.
        by_policy: share in (0, 1] that holds for all sites.
        by_site: each site's own, in (0, 1].
    """

    def limited(
        window: Window, regions: Regions, policy: PlacementPolicy, now_unix_s: float, memory: Any
    ) -> Assignment:
        before = _Memory(None, np.zeros(len(regions))) if memory is None else memory
        total = float(before.counts.sum())
        seen = replace(
            regions,
            largest_share=largest_shares(by_policy, by_site, [bool(up) for up in regions.engines > 0.0]),
            recent_share=before.counts / total if total > 0.0 else np.full(len(regions), np.nan),
        )
        assignment = scheduler(window, seen, policy, now_unix_s, before.inner)
        placed = assignment.regions[assignment.regions >= 0]
        kept = (1.0 - 1.0 / WINDOW_REQUESTS) ** len(placed)
        counts = before.counts * kept + np.bincount(placed, minlength=len(regions))
        return replace(assignment, memory=_Memory(assignment.memory, counts))

    return limited
