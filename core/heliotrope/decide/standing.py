"""What a picker knows beside its candidates' load: how they have fared, and where it has sent lately.

Estimates follow from the state of engines; this follows from the picker's own recent past. A decision without it (the
simulator's, a notebook's) takes everything here as unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from heliotrope.cache.crowd import Crowd
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn


@dataclass(frozen=True, slots=True)
class Standing:
    """Columns with one value per endpoint, in the candidates' order; NaN is unknown, None unknown for all."""

    failure_rate: FloatColumn | None = None
    """Chance that a request fails there, in [0, 1]; `heliotrope.decide.risk`."""
    preemptions_per_request: FloatColumn | None = None
    """Lately, 0 or more."""
    headroom_watts: FloatColumn | None = None
    """Power limit less draw, of all accelerators of the endpoint together; may be below 0."""
    throttled: FloatColumn | None = None
    """1 where an accelerator is slowed down by power or heat, 0 where none is."""
    region_counts: Mapping[str | None, float] = field(default_factory=dict)
    """This picker's recent requests by region (`heliotrope.decide.shares`)."""
    session_region: str | None = None
    """Where the request's session was last: its next turn takes no new place there, whatever the region's share."""
    crowd: Crowd | None = None
    """Transfers of KV that this picker caused and that are on their way; None: none is known."""
    draw_seed: int = 0
    """Tells this picker's draws from those of others (`heliotrope.decide.draw`)."""


UNKNOWN_STANDING = Standing()


def of_rows(column: FloatColumn | None, candidates: Candidates) -> FloatColumn | None:
    """A column of endpoints as one of plans: a plan has the value of the endpoint that serves it."""
    if column is None or len(column) == len(candidates):
        return column
    position = {name: i for i, name in enumerate(candidates.endpoints[: len(column)])}
    rows = np.fromiter((position[name] for name in candidates.endpoints), dtype=np.intp, count=len(candidates))
    return column[rows]


def enough_power(
    candidates: Candidates, standing: Standing, least_watts: float, *, avoid_throttled: bool
) -> BoolColumn:
    """Whether each plan's endpoint has power left. What does not tell is not ruled out: unknown is not zero."""
    enough = np.ones(len(candidates), dtype=np.bool_)
    headroom = of_rows(standing.headroom_watts, candidates)
    if headroom is not None:
        enough &= ~(headroom < least_watts)  # NaN compares false
    throttled = of_rows(standing.throttled, candidates)
    if avoid_throttled and throttled is not None:
        enough &= ~(throttled > 0.0)
    return enough
