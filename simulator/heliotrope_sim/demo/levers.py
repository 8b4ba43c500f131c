"""What Heliotrope saves with, and how a user's own policy takes each of it away."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from heliotrope.errors import InvalidInputError


class Lever(StrEnum):
    """One thing that an ablation arm does without."""

    CARBON = "carbon"
    KV = "kv"
    SESSIONS = "sessions"
    CONSOLIDATION = "consolidation"
    NOTHING = "nothing"
    """The policy unchanged: what two runs of the same thing differ by."""


@dataclass(frozen=True, slots=True)
class Ablation:
    """How an arm does without a lever."""

    title: str
    how: str
    """What the policy says instead, for the reader of a report."""
    spec: Mapping[str, Any]
    """Fields of the CarbonPolicy that take the place of the demo's."""


ABLATIONS: Mapping[Lever, Ablation] = MappingProxyType(
    {
        Lever.CARBON: Ablation(
            "carbon signals",
            "objective.order: [energy, cost, latency]",
            {"objective": {"order": ["energy", "cost", "latency"]}},
        ),
        Lever.KV: Ablation(
            "KV reuse",
            "kvActions.allowed: [Recompute]",
            {"kvActions": {"allowed": ["Recompute"]}},
        ),
        Lever.SESSIONS: Ablation(
            "sessions",
            "kvActions.allowed without LocalHit, placement.sessionGate.mode: Off",
            {
                "kvActions": {"allowed": ["RouteToOwner", "PeerTransfer", "OffloadReload", "Recompute"]},
                "placement": {"sessionGate": {"mode": "Off"}},
            },
        ),
        Lever.CONSOLIDATION: Ablation(
            "consolidation",
            "objective.order: [carbon, latency]",
            {"objective": {"order": ["carbon", "latency"]}},
        ),
        Lever.NOTHING: Ablation("nothing: a second run", "the same policy", {}),
    }
)


def parse(text: str) -> tuple[Lever, ...]:
    """`all`, `none`, or names with commas between them, each once and in the order of `Lever`.

    Raises:
        InvalidInputError: naming what is no lever.
    """
    if text == "none":
        return ()
    if text == "all":
        return tuple(Lever)
    names = {name.strip() for name in text.split(",")}
    if unknown := sorted(names - set(Lever)):
        known = ", ".join(Lever)
        raise InvalidInputError("ablations", f"'{unknown[0]}' is none of all, none, {known}")
    return tuple(lever for lever in Lever if lever in names)
