"""What a scheduler decides, and why."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import IntColumn, Window

NOWHERE = -1
"""In `Assignment.regions`: no allowed region is up."""


class Reason(IntEnum):
    """Why a request is where it is."""

    OBJECTIVE = 0
    """The scheduler's own objective among feasible regions with headroom."""
    CLEANEST_WITH_HEADROOM = 1
    """The solver had no place for it: the feasible region of least carbon that has headroom (greedy, α = 0)."""
    LEAST_LATE = 2
    """No possible region with headroom keeps its SLO: the one with the least expected TTFT, as best effort."""
    ROUND_ROBIN = 3
    """Nothing distinguishes the regions: each in turn."""
    NOWHERE = 4
    """No allowed region is up."""


class Outcome(StrEnum):
    """How the scheduler came to its assignment."""

    HEURISTIC = "Heuristic"
    """No solver was asked."""
    OPTIMAL = "Optimal"
    """Proven within the solver's tolerance."""
    BEST_SO_FAR = "BestSoFar"
    """A limit came first; `Assignment.gap` says how far off it may be."""
    FELL_BACK = "FellBack"
    """The solver failed or found nothing in time; greedy decided."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One window's result; columns of length n."""

    regions: IntColumn
    """Index of each request's region, or `NOWHERE`."""
    reasons: IntColumn
    """`Reason` of each."""
    outcome: Outcome
    objective: float
    """Of the assignment, in the scheduler's own unit (grams where carbon counts); NaN where it has none."""
    gap: float
    """Relative distance to the proven bound, 0 where proven, NaN where nothing bounds it."""
    work: int
    """Nodes or evaluations that the solver spent: what simulations model its time by."""
    carbon_counts: bool
    """Whether intensities were known for all regions, so that carbon was part of the decision."""
    memory: Any = None
    """Give it back with the next window: a cursor, a plan, a warm start. Frozen; of the scheduler that made it."""


Scheduler = Callable[[Window, Regions, PlacementPolicy, float, Any], Assignment]
"""(window, regions, policy, now in Unix seconds, memory of its last assignment or None) → assignment. Pure."""
