"""Keeps numbers of replicas from moving too fast, too often and to and fro.

Replicas are added as soon as the dwell of scaling up allows. They are taken away only when every decision of a whole
dwell has asked for fewer, and then to the most that any of them asked for: one dip in a noisy load takes nothing away.
All that must be remembered is a `ScalingState`.
"""

from dataclasses import dataclass, replace

from heliotrope.scale.facts import Direction, ScalingRules, ScalingState, VariantFacts


@dataclass(frozen=True, slots=True)
class Reach:
    """Numbers that one decision may ask for; the user's bounds hold before steps do."""

    low: int
    high: int
    up_waits: bool = False
    """Whether the dwell of scaling up keeps `high` down."""


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of a wish."""

    desired: int
    state: ScalingState
    waits: bool = False
    """Whether fewer replicas were wished for, and the dwell holds them."""


def reach(variant: VariantFacts, rules: ScalingRules, now_unix_s: float) -> Reach:
    """What a decision may ask for.

    Args:
        variant: with known replicas and a maximum.
        rules: its group's.
        now_unix_s: the time.
    """
    if variant.replicas is None or variant.max_replicas is None:
        raise ValueError("only variants of known replicas and maximum are scaled")
    current = variant.replicas.wanted
    up_waits = not _dwelt(variant.state, rules.scale_up.dwell_seconds, now_unix_s)
    high = current if up_waits else current + rules.scale_up.max_replicas
    bottom, top = variant.min_replicas, max(variant.max_replicas, variant.min_replicas)
    # The user's own maximum takes effect at once, whatever is known; what is below it waits as everything does.
    low = top if current > top else max(current - rules.scale_down.max_replicas, 0)
    return Reach(low=min(max(low, bottom), top), high=min(max(high, bottom), top), up_waits=up_waits)


def settle(wished: int, current: int, bounds: Reach, rules: ScalingRules, state: ScalingState, now: float) -> Settled:
    """The number to ask for, and what to remember.

    Args:
        wished: what plan and guard ask for together.
        current: replicas that the target asks for now.
        bounds: see `reach`.
        rules: of the group.
        state: what was remembered.
        now: Unix seconds.
    """
    wished = min(max(wished, bounds.low), bounds.high)
    if wished >= current or bounds.high < current:
        kept = replace(state, lower_since_unix_s=None, lower_peak=None)
        return Settled(wished, changed(kept, current, wished, now))
    since = now if state.lower_since_unix_s is None else min(state.lower_since_unix_s, now)
    peak = wished if state.lower_since_unix_s is None else max(state.lower_peak or 0, wished)
    dwell = rules.scale_down.dwell_seconds
    if now - since < dwell or not _dwelt(state, dwell, now):
        held = min(max(current, bounds.low), bounds.high)
        return Settled(held, replace(state, lower_since_unix_s=since, lower_peak=peak), waits=True)
    desired = min(max(peak, bounds.low), bounds.high)
    if desired >= current:
        # They asked for as many as there are in between: what counts from now on is the newest wish.
        return Settled(current, replace(state, lower_since_unix_s=now, lower_peak=wished), waits=True)
    return Settled(desired, changed(replace(state, lower_since_unix_s=None, lower_peak=None), current, desired, now))


def changed(state: ScalingState, current: int, desired: int, now: float) -> ScalingState:
    """The state after a decision."""
    if desired == current:
        return state
    direction = Direction.UP if desired > current else Direction.DOWN
    return replace(state, last_change_unix_s=now, last_direction=direction)


def _dwelt(state: ScalingState, dwell_seconds: float, now: float) -> bool:
    """A change that lies in the future was written by a clock that is wrong: it holds nobody back for longer."""
    if state.last_change_unix_s is None or state.last_change_unix_s > now + dwell_seconds:
        return True
    return now - state.last_change_unix_s >= dwell_seconds
