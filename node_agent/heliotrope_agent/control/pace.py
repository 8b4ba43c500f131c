"""How soon a group may change again. Slowing down waits; promises of latency do not."""

import math
from collections.abc import Sequence

from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_agent.control.memory import GpuMemory
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.state.records import Knob, Levels


def paced(
    wanted: Levels,
    present: Sequence[Levels],
    memories: Sequence[GpuMemory],
    now_s: float,
    rules: Rules,
    *,
    room: bool,
) -> Levels | None:
    """The levels that a group may have now on its way to what is wanted.

    While it may not be slowed down, each knob is the higher of what is wanted and what is set, so that the half of a
    change that makes faster happens at once. A knob that is not set counts as infinitely high.

    Args:
        wanted: of the group.
        present: of its GPUs that have been set; the others join these.
        memories: of all its GPUs.
        now_s: on the clock of the memories.
        rules: the waits.
        room: whether the node may slow down so many GPUs now.

    Returns:
        The levels; None: leave the group as it is.
    """
    changed_at_s = max(each.changed_at_s for each in memories)
    if present and now_s - changed_at_s < rules.raise_dwell_s and any(each != wanted for each in present):
        return None
    often = any(each.lowerings(now_s, SECONDS_PER_HOUR) >= rules.gpu_changes_per_hour for each in memories)
    if room and not often and now_s - changed_at_s >= rules.lower_dwell_s:
        return wanted
    if not present:
        return None
    levels = wanted
    for knob in Knob:
        highest = max(each.of(knob) or math.inf for each in (wanted, *present))
        levels = levels.with_level(knob, None if highest == math.inf else int(highest))
    return levels
