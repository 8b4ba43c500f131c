"""A window on its way through the placer: what it is decided on, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.objective import Placement as PlacementSpec
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.place.assignment import Assignment
from heliotrope.place.estimate import Estimates
from heliotrope.place.policy import PlacementPolicy
from heliotrope.place.regions import Regions
from heliotrope.place.window import IntColumn, Window
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.tracing.placement import Placement


@dataclass(frozen=True, slots=True)
class Resources:
    """What the source of resources says at one moment."""

    policy: DecisionPolicy | None
    spec: PlacementSpec
    views: Mapping[str, RegionView]
    profiles: Mapping[str, RegionProfile]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A window ready to be assigned."""

    number: int
    batch: Sequence[Waiting]
    resources: Resources
    window: Window
    """As the policy wants it assigned."""
    free: Window
    """Without its pins: under `Advise` sessions are not held anywhere."""
    regions: Regions
    policy: PlacementPolicy
    estimates: Estimates | None
    """Made where sessions need them."""
    blind: bool
    now_s: float
    now_unix_s: float


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """A window that was assigned."""

    prepared: Prepared
    scheduler: str
    assignment: Assignment
    places: IntColumn
    """After the session gate; what is carried out."""
    advised: IntColumn | None
    """What the policy would have had under `Enforce`; None: it is carried out, or there is no policy."""
    placements: Sequence[Placement]
    solver_seconds: float
    fallback: str | None


class Settled(Protocol):
    """Who carries assignments out."""

    def settled(self, decided: Decided) -> None:
        """Send every request of the window where it is to go."""
        ...

    def failed(self, batch: Sequence[Waiting]) -> None:
        """A defect: answer those that have no answer."""
        ...
