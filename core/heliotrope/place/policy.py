"""How a window is to be assigned: what the CarbonPolicy says, as numbers."""

from dataclasses import dataclass
from enum import StrEnum


class CapacityUnit(StrEnum):
    """What a region's headroom H_d is counted in."""

    REQUESTS = "Requests"
    """Free batch slots. The assignment is a transport problem: some feasible one is always found where there is one."""
    TOKENS = "Tokens"
    """Free KV memory. Feasibility itself is bin packing then: the best found within the limits."""


class Fallback(StrEnum):
    """Where a request goes that no region with headroom serves within its SLO."""

    LEAST_LATE = "LeastLate"
    """The region with the least expected TTFT."""
    ROUND_ROBIN = "RoundRobin"
    """Each in turn, as in the paper."""


@dataclass(frozen=True, slots=True)
class WorkLimit:
    """When a solver stops and gives its best so far. Without either limit it proves the optimum."""

    seconds: float | None = 0.25
    """Wall clock; None in simulations, which must not depend on the machine."""
    nodes: int | None = None
    """Branch-and-bound nodes, or evaluations of a local search."""


@dataclass(frozen=True, slots=True)
class PlacementPolicy:
    """Fixed for the time of a decision."""

    latency_weight: float = 0.0
    """α of the greedy scheduler, from 0 (carbon alone) to 1 (latency alone)."""
    carbon_weight: float = 1.0
    """w of the soft multiplier."""
    share_cap: float = 0.5
    """Most of a window's load that capped cleanest-first gives one region."""
    window_seconds: float = 0.1
    """Longest time that requests are collected: what f_d's energy is drawn over."""
    iterations: int = 3
    """T_max of the iterative ILP."""
    capacity_unit: CapacityUnit = CapacityUnit.REQUESTS
    limit: WorkLimit = WorkLimit()
    standard_deviations: float = 0.0
    """Room that a latency estimate leaves to its SLO, in deviations of the engine model's error; 0: as the paper."""
    fallback: Fallback = Fallback.LEAST_LATE
    unknown_output_tokens: float = 256.0
    """What an answer is taken to be long where nobody knows."""
    projects: bool = True
    """Whether a request sees those before it in its window; False: as the paper's greedy, which herds."""
    peers: int = 0
    """Other schedulers that place on the same regions: what lasts an hour is shared with them."""
