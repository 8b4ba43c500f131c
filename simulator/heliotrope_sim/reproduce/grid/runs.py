"""What a year's replay is asked for."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path

from heliotrope_sim.reproduce.grid.views import View

ROUND_ROBIN = "RoundRobin"
LEAST_LOADED = "LeastLoaded"
SOFT_MULTIPLIER = "SoftMultiplier"
CLEANEST_FIRST = "CleanestFirst"

CONTINUING_SHARE = 0.4
"""Of an hour's load: later turns of sessions that began before."""
SHARE_CAP = 0.5
"""Of an hour's load, in one zone."""
NEAR_SATURATION = 48.0
"""Sequences in an engine's batch at an even split; 64 are the most that its profile runs."""
SATURATION = 1.1
"""Of a zone's mean load: beyond it the blind balancer serves no more locally."""


class Sessions(StrEnum):
    """Where later turns of a session go."""

    STAY = "pinned"
    """To where the turn before was served, as the paper's."""
    FREE = "free"
    """Anywhere, at whatever that costs."""
    PRICED = "priced"
    """Away only where that emits less with the history computed again: `Run.recompute_ratio`."""


@dataclass(frozen=True, slots=True)
class Run:
    """One year under one policy. Hashable and picklable."""

    scheduler: str
    """A name of `heliotrope.place.registry`."""
    cohorts: int
    """Equal parts of an hour's load: the requests of its window."""
    seed: int
    folder: Path | None = None
    """Of the user's rates; None: the illustration's."""
    weight: float = 1.0
    """w of the soft multiplier."""
    batch: float = NEAR_SATURATION
    """Sequences in an engine's batch at an even split: what pressure is counted from."""
    cap: float = SHARE_CAP
    sessions: Sessions = Sessions.STAY
    local: bool = False
    """Whether load is served where it arises, and only what saturates a zone is placed."""
    credit: float = 0.0
    """α, for what the dispatcher sees and for settlement."""
    view: View = View.FORESIGHT
    unknown: float = 0.0
    """Share of readings that the dispatcher does not get."""
    headroom: float = inf
    """Load that a zone's curtailed power serves, over the zone's mean load; the rest has the zone's median rate."""
    by_pue: bool = False
    """Whether zones are ranked by rate times PUE."""
    recompute_ratio: float = 0.0
    """Energy of computing a session's history again over that of a turn, for `Sessions.PRICED`."""
