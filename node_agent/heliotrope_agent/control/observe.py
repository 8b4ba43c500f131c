"""Judges from readings whether what was set holds, and whether somebody else sets it too.

The driver cannot tell whether a clock is locked. A clock above its lock cannot be; one below may idle, and is a sign
only under load. A power limit can be read exactly.
"""

from dataclasses import replace

from heliotrope_agent.control.memory import Drift, GpuMemory
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.driver.interface import Reading
from heliotrope_agent.pods.claims import PodName
from heliotrope_agent.state.records import Knob, Ownership

THROTTLE_BITS = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""NVML's clock event reasons SwPowerCap, HwSlowdown, SwThermalSlowdown, HwThermalSlowdown, HwPowerBrakeSlowdown."""


def observe(memory: GpuMemory, owned: Ownership | None, reading: Reading, now_s: float, rules: Rules) -> GpuMemory:
    """What is remembered of a GPU after one more reading.

    Args:
        memory: before it.
        owned: what was set; None: nothing was.
        reading: taken after the last change.
        now_s: on the agent's clock.
        rules: what it takes to believe.
    """
    if owned is None:
        return replace(memory, drift=Drift())
    foreign, lost = set[Knob](), False
    limit, limit_set = reading.power_limit_milliwatts, owned.set.power_limit_milliwatts
    if limit_set is not None and limit is not None and limit != limit_set:
        if limit == owned.original.power_limit_milliwatts:
            lost = True
        else:
            foreign.add(Knob.POWER_LIMIT)
    drift = _clock(memory.drift, owned, reading, now_s, rules)
    above = drift.above >= rules.readings and drift.confirmed
    lost = lost or above
    if lost and now_s - memory.reapplied_at_s < rules.lost_window_s:
        foreign |= _above(owned, reading, rules) if above else {Knob.POWER_LIMIT}
    memory = replace(memory, drift=replace(drift, lost=lost and not foreign))
    if not foreign:
        return memory
    return replace(
        memory,
        foreign=frozenset(foreign),
        foreign_until_s=now_s + rules.foreign_hold_s,
        foreign_pod=PodName(owned.namespace, owned.pod),
    )


def not_effective(drift: Drift, rules: Rules) -> bool:
    """Whether the device does not do what it was told."""
    return drift.below >= rules.readings or (drift.above >= rules.readings and not drift.confirmed)


def throttled(drift: Drift, now_s: float) -> bool:
    """Whether heat or power hold its clock below what was set."""
    return now_s < drift.throttled_until_s


def _clock(drift: Drift, owned: Ownership, reading: Reading, now_s: float, rules: Rules) -> Drift:
    lock, clock = owned.set.sm_clock_mhz, reading.sm_clock_mhz
    if _above(owned, reading, rules):
        return replace(drift, above=drift.above + 1, below=0, throttled=0)
    if lock is None or clock is None:
        return replace(drift, above=0, below=0, throttled=0)
    if clock >= lock - rules.clock_tolerance_mhz:
        return replace(drift, above=0, below=0, throttled=0, confirmed=True)
    if (reading.clock_event_reasons or 0) & THROTTLE_BITS:
        count = drift.throttled + 1
        until_s = now_s + rules.throttled_s if count >= rules.readings else drift.throttled_until_s
        return replace(drift, above=0, below=0, throttled=count, throttled_until_s=until_s, confirmed=True)
    below = drift.below + 1 if reading.utilization_percent else 0
    return replace(drift, above=0, below=below, throttled=0, confirmed=True)


def _above(owned: Ownership, reading: Reading, rules: Rules) -> set[Knob]:
    """Clocks that run above their locks."""
    pairs = (
        (Knob.SM_CLOCK, owned.set.sm_clock_mhz, reading.sm_clock_mhz),
        (Knob.MEMORY_CLOCK, owned.set.memory_clock_mhz, reading.memory_clock_mhz),
    )
    return {
        knob
        for knob, lock, clock in pairs
        if lock is not None and clock is not None and clock > lock + rules.clock_tolerance_mhz
    }
