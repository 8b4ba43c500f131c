"""The policies that the paper compares, as schedulers of `heliotrope.place` with their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

ROUND_ROBIN = "Round robin"
LEAST_LOADED = "Least loaded"
GREEDY_0 = "Greedy α=0"
GREEDY_5 = "Greedy α=0.5"
GREEDY_9 = "Greedy α=0.9"
ILP = "ILP"
ITERATIVE = "Iterative ILP"
FACILITY = "Facility MILP"
GREEN_LLM = "Green-LLM-like"
MOER = "MOER routing"

WINDOW_SECONDS = 0.1
SINGLE_SECONDS = 0.05
"""Policies that place each request when it comes get windows so short: 25 ms of waiting on average."""


class Sight(StrEnum):
    """What a scheduler knows of a region's load between two polls."""

    POLLS = "polls only"
    """The last poll."""
    OWN = "own dispatches"
    """And what it sent since then."""
    ALL = "own and peers'"
    """And as much again for each other scheduler: how Heliotrope's schedulers run."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One policy."""

    scheduler: str
    """Name in `heliotrope.place.registry`."""
    latency_weight: float = 0.0
    window_seconds: float = WINDOW_SECONDS


POLICIES: Mapping[str, Kind] = MappingProxyType(
    {
        ROUND_ROBIN: Kind("RoundRobin", window_seconds=SINGLE_SECONDS),
        LEAST_LOADED: Kind("LeastLoaded", window_seconds=SINGLE_SECONDS),
        GREEDY_0: Kind("Greedy", 0.0, SINGLE_SECONDS),
        GREEDY_5: Kind("Greedy", 0.5, SINGLE_SECONDS),
        GREEDY_9: Kind("Greedy", 0.9, SINGLE_SECONDS),
        ILP: Kind("ILP"),
        ITERATIVE: Kind("IterativeILP"),
        FACILITY: Kind("Facility"),
        GREEN_LLM: Kind("HourlyLP"),
        MOER: Kind("LowestIntensity", 0.0, SINGLE_SECONDS),
    }
)
COMPARED = tuple(name for name in POLICIES if name != MOER)
"""MOER routing is greedy at α = 0 (§V-A): one run shows it."""
CARBON_AWARE = tuple(name for name in COMPARED if name not in {ROUND_ROBIN, LEAST_LOADED})
