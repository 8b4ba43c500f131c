"""What is asked of a pool in demand response, and how its power follows: down before the start, back after the end.

An answer is a small record that outlives the process in the policy's status: the power before the event (the baseline,
against which a reduction in percent is meant) must not be measured again once the answer has begun to lower it. Events
that follow each other without a pause share one baseline.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from heliotrope.power.budget import Limit, LimitSource

FOREVER = math.inf


@dataclass(frozen=True, slots=True)
class Event:
    """A request of the grid to draw less."""

    name: str
    start_unix_s: float
    end_unix_s: float
    """`FOREVER` where it is not known."""
    watts: float | None = None
    """Power that the pool may draw."""
    reduction: float | None = None
    """Share of the power before the event to give up, in (0, 1], where no watts are stated; None: the policy's."""


@dataclass(frozen=True, slots=True)
class Ramps:
    """How a policy answers."""

    in_seconds: float = 0.0
    out_seconds: float = 0.0
    reduction: float = 0.3
    """Where an event states neither watts nor a reduction."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The event that is being answered, up to the end of its ramp out."""

    event: str
    since_unix_s: float
    """When power began to go down."""
    start_unix_s: float
    """When the reduction must be reached."""
    end_unix_s: float
    """When it may end; `FOREVER` where it is not known."""
    baseline_watts: float | None
    """Power before the event; None: unknown."""
    target_watts: float | None
    """Power during the event; None: unknown, as the baseline is."""

    def holds(self, now_unix_s: float) -> bool:
        """Whether the event's comparison of plans holds: until its end, not while power comes back."""
        return self.since_unix_s <= now_unix_s < self.end_unix_s


def answer(
    previous: Answer | None, events: Sequence[Event], now_unix_s: float, ramps: Ramps, power_watts: float | None
) -> Answer | None:
    """The answer at a time.

    Args:
        previous: the answer so far, as the status keeps it.
        events: all that are known; one that `previous` answers and that is gone has been ended by whoever asked.
        now_unix_s: the time.
        ramps: how the policy answers.
        power_watts: power of the pool now; None: unknown. It becomes the baseline of an answer that begins now.

    Returns:
        None if nothing is asked, and nothing comes back any more.
    """
    going = [each for each in events if each.start_unix_s - ramps.in_seconds <= now_unix_s < each.end_unix_s]
    baseline = None if previous is None else previous.baseline_watts
    if baseline is None and (previous is None or previous.target_watts is None):
        baseline = power_watts  # nothing has been lowered yet
    if going:
        began = [_begun(event, previous, now_unix_s, ramps, baseline) for event in going]
        return min(began, key=lambda each: (_watts_at(each, now_unix_s, ramps), each.start_unix_s, each.event))
    if previous is None:
        return None
    ended = replace(previous, end_unix_s=min(previous.end_unix_s, now_unix_s))
    over = ended.end_unix_s + ramps.out_seconds <= now_unix_s or limit_at(ended, now_unix_s, ramps) is None
    return None if over else ended


def limit_at(given: Answer | None, now_unix_s: float, ramps: Ramps) -> Limit | None:
    """The watts that an answer leaves at a time; None: it limits nothing."""
    if given is None or given.target_watts is None:
        return None
    watts = _watts_at(given, now_unix_s, ramps)
    return Limit(watts, LimitSource.DEMAND, given.event) if math.isfinite(watts) else None


def _begun(event: Event, previous: Answer | None, now_unix_s: float, ramps: Ramps, baseline: float | None) -> Answer:
    since = event.start_unix_s - ramps.in_seconds
    if previous is not None and previous.event == event.name:
        since = min(previous.since_unix_s, now_unix_s)
    elif since < now_unix_s:
        since = now_unix_s  # it was not known in time
    target = event.watts
    if target is None and baseline is not None:
        reduction = ramps.reduction if event.reduction is None else event.reduction
        target = baseline * (1.0 - reduction)
    return Answer(event.name, since, event.start_unix_s, event.end_unix_s, baseline, target)


def _watts_at(given: Answer, now_unix_s: float, ramps: Ramps) -> float:
    """Linear ramps between baseline and target; without a baseline there is nothing to ramp from."""
    target, baseline = given.target_watts, given.baseline_watts
    if target is None:
        return math.inf
    if now_unix_s < given.end_unix_s:
        if now_unix_s >= given.start_unix_s or baseline is None or baseline <= target:
            return target
        # An event that became known late goes down in the time that is left.
        length = given.start_unix_s - given.since_unix_s
        return baseline + (target - baseline) * min(max((now_unix_s - given.since_unix_s) / length, 0.0), 1.0)
    if baseline is None or baseline <= target or ramps.out_seconds <= 0.0:
        return math.inf
    share = (now_unix_s - given.end_unix_s) / ramps.out_seconds
    return math.inf if share >= 1.0 else target + (baseline - target) * share
