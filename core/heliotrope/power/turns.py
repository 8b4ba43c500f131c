"""Clock and replica changes take turns.

A lower clock makes engines look busier, which makes an autoscaler add replicas; a replica that goes makes the others
busier, which raises their clocks. Both at once, and neither knows what it has caused. So after a change of one kind the
other waits until its effect can be seen. What protects the promise never waits: clocks may always go up, and replicas
may always be added.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

NEVER = float("-inf")

SETTLE_SECONDS = 120.0
"""Time in which the effect of a change shows in load and latency, start of an engine left aside."""
SETTLE_DWELLS = 2.0


def settle_seconds(minimum_dwell_seconds: float) -> float:
    """How long a policy's changes settle: two of its dwell times, and no longer than `SETTLE_SECONDS`."""
    return min(SETTLE_DWELLS * minimum_dwell_seconds, SETTLE_SECONDS)


class Turn(StrEnum):
    """Why something may not be reduced now."""

    FREE = "Free"
    DWELL = "Dwell"
    """It changed a short while ago."""
    OTHERS_TURN = "OthersTurn"
    """The other of clocks and replicas changed a short while ago."""
    IN_TRANSITION = "InTransition"
    """Replicas are starting or ending."""
    SATURATED = "Saturated"
    """The engines work at their limit."""


@dataclass(frozen=True, slots=True)
class Recent:
    """What changed last, Unix seconds; `NEVER` where nothing did."""

    clocks_changed_unix_s: float = NEVER
    replicas_changed_unix_s: float = NEVER
    replicas_in_transition: bool = False
    """Whether wanted and ready replicas differ."""


def may_lower_clocks(
    recent: Recent, now_unix_s: float, *, dwell_seconds: float, settle_seconds: float = SETTLE_SECONDS
) -> Turn:
    """Whether clocks may go down to save energy. A budget does not ask, nor does a clock that goes up."""
    if recent.replicas_in_transition:
        return Turn.IN_TRANSITION
    if _since(recent.replicas_changed_unix_s, now_unix_s) < settle_seconds:
        return Turn.OTHERS_TURN
    if _since(recent.clocks_changed_unix_s, now_unix_s) < dwell_seconds:
        return Turn.DWELL
    return Turn.FREE


def may_remove_replicas(
    recent: Recent,
    now_unix_s: float,
    *,
    dwell_seconds: float,
    utilizations: Iterable[float] = (),
    scale_down_below: float = 0.7,
    settle_seconds: float = SETTLE_SECONDS,
) -> Turn:
    """Whether replicas may be taken away; adding never asks.

    Args:
        recent: what changed last.
        now_unix_s: the time.
        dwell_seconds: time that a number of replicas holds at least.
        utilizations: of the engines at their present clocks; NaN is unknown and counts as saturated.
        scale_down_below: utilization below which they may go.
        settle_seconds: how long a change of clocks is waited for.
    """
    if recent.replicas_in_transition:
        return Turn.IN_TRANSITION
    if any(not each <= scale_down_below for each in utilizations):
        return Turn.SATURATED
    if _since(recent.clocks_changed_unix_s, now_unix_s) < settle_seconds:
        return Turn.OTHERS_TURN
    if _since(recent.replicas_changed_unix_s, now_unix_s) < dwell_seconds:
        return Turn.DWELL
    return Turn.FREE


def _since(changed_unix_s: float, now_unix_s: float) -> float:
    """Seconds since a change; a change in the future, by a clock that was set back, is one of just now."""
    return max(now_unix_s - changed_unix_s, 0.0)
