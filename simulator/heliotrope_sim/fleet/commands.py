"""What engines are told: clocks and depths of sleep, written into the kernel's state."""

from heliotrope.units import nanoseconds_from_seconds
from heliotrope_sim.engine.fixed_point import milliwatts
from heliotrope_sim.fleet import layout
from heliotrope_sim.fleet.layout import Fleet
from heliotrope_sim.fleet.members import settle_member
from heliotrope_sim.fleet.settings import Depth
from heliotrope_sim.fleet.state import Rows
from heliotrope_sim.fleet.topology import Site


def set_clock(fleet: Fleet, rows: Rows, e: int, site: Site, mhz: int) -> Fleet:
    """Run an engine at another SM clock from its next step on; returns the state with the costs of that clock."""
    engines = fleet.engines
    # What members were charged so far holds at the old clock.
    r = int(engines[e, layout.DECODE_HEAD])
    while r != layout.NOBODY:
        settle_member(fleet, e, r)
        r = int(fleet.requests[r, layout.NEXT])
    model = site.model.at_clock(mhz)
    engines[e, layout.ROW] = rows.of(model, site.capacity)
    engines[e, layout.CLOCK_MHZ] = model.clock_mhz
    engines[e, layout.IDLE_MILLIWATTS] = milliwatts(_idle_watts(site, model.clock_mhz, engines[e, layout.DEPTH]))
    return fleet._replace(rates=rows.rates, charges=rows.charges)


def set_depth(fleet: Fleet, e: int, site: Site, depth: Depth, now_ns: int) -> None:
    """Send an engine to sleep when it has finished what is in flight, or wake it; it has run up to now."""
    engines = fleet.engines
    before = Depth(int(engines[e, layout.DEPTH]))
    if depth is before:
        return
    engines[e, layout.DEPTH] = depth
    idle = milliwatts(_idle_watts(site, int(engines[e, layout.CLOCK_MHZ]), depth))
    if depth >= Depth.SLEEP:
        engines[e, layout.TAKES] = 0
        engines[e, layout.SLEEP_MILLIWATTS] = milliwatts(_asleep_watts(site, depth))
        if engines[e, layout.STATE] in (layout.ASLEEP, layout.WAKING):
            engines[e, layout.STATE] = layout.ASLEEP
            engines[e, layout.ASLEEP_MILLIWATTS] = engines[e, layout.SLEEP_MILLIWATTS]
            engines[e, layout.SLEPT] = now_ns
        else:
            engines[e, layout.STATE] = layout.DRAINING
        return
    engines[e, layout.TAKES] = 1
    engines[e, layout.IDLE_MILLIWATTS] = idle
    if engines[e, layout.STATE] == layout.ASLEEP:
        engines[e, layout.STATE] = layout.WAKING
        engines[e, layout.READY] = now_ns + round(nanoseconds_from_seconds(_wake_seconds(site, before)))
        engines[e, layout.ASLEEP_MILLIWATTS] = idle
    elif engines[e, layout.STATE] == layout.DRAINING:
        engines[e, layout.STATE] = layout.AWAKE


def _idle_watts(site: Site, mhz: int, depth: int) -> float:
    clock = site.model.clock.min_mhz if depth == Depth.IDLE_CLOCK else mhz
    return site.model.at_clock(clock).idle_watts


def _asleep_watts(site: Site, depth: Depth) -> float:
    if depth is Depth.NODE_OFF:
        return 0.0
    unloaded = site.model.unloaded_watts
    return site.model.sleep_watts if depth is Depth.SLEEP or unloaded is None else unloaded


def _wake_seconds(site: Site, depth: Depth) -> float:
    wake = site.wake
    return {
        Depth.IDLE_CLOCK: wake.idle_clock_seconds,
        Depth.SLEEP: wake.sleep_seconds,
        Depth.EXIT: wake.exit_seconds,
        Depth.NODE_OFF: wake.node_off_seconds,
    }.get(depth, 0.0)
