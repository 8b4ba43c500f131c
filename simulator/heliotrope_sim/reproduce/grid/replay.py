"""Places a year's load hour by hour with the library's own schedulers.

An hour is one window. Its requests are cohorts: equal parts of the load. Every zone has as many engines, so many that
an even split fills their batches as `Run.batch` says, and room for as many cohorts as the study lets it have. Nothing
is late: the study has no SLO.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from heliotrope.engine.coefficients import coefficients
from heliotrope.engine.profiles import load
from heliotrope.place.assignment import NOWHERE
from heliotrope.place.policy import PlacementPolicy, WorkLimit
from heliotrope.place.regions import Regions
from heliotrope.place.registry import scheduler_named, shipped
from heliotrope.place.window import NO_HOME, Window
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.demand import demand
from heliotrope_sim.reproduce.grid.rates import Rates, credited, rates
from heliotrope_sim.reproduce.grid.runs import CONTINUING_SHARE, SATURATION, SOFT_MULTIPLIER, Run, Sessions
from heliotrope_sim.reproduce.grid.tranches import Tranches, tranches
from heliotrope_sim.reproduce.grid.views import seen, with_unknown

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]

PROFILE = "llama-3.1-8b-h100"
PROMPT_TOKENS = 600.0
OUTPUT_TOKENS = 192.0
"""Of every request: near the means that the paper's classes have (§4)."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Cohorts by hour and zone, shape (hours, d)."""

    loads: NDArray[np.int16]
    moved: NDArray[np.int16]
    """Of those, later turns whose session was elsewhere."""
    unplaced: int
    """Cohorts that no zone took."""
    by_carbon: Flags
    """Hours in which all rates were known, so that carbon counted; length hours."""


def place(run: Run) -> Placed:
    """The run's year."""
    truth = credited(run.folder, run.credit)
    view = with_unknown(seen(truth.g_per_kwh, run.view), run.unknown, run.seed)
    if run.by_pue:
        view = view * np.array([zone.pue for zone in truth.zones])
    return place_hours(run, truth, view, tranches(run, rates(run.folder), demand(truth).total))


def place_hours(run: Run, truth: Rates, view: Floats, steps: Tranches) -> Placed:
    """Place every hour.

    Args:
        run: what is asked for.
        truth: zones and hours; its rates are not read.
        view: what the dispatcher knows, shape (hours, d).
        steps: the zones' supply: one or two prices each.
    """
    hours, zones = view.shape
    n = run.cohorts
    continuing = round(CONTINUING_SHARE * n)
    scheduler = scheduler_named(shipped(), run.scheduler)
    policy = PlacementPolicy(carbon_weight=run.weight, share_cap=run.cap, limit=WorkLimit(None, None))
    offsets: Counts = np.random.default_rng(run.seed).integers(0, n, size=(hours,))
    local = _local(demand(truth).by_zone, n) if run.local else None
    columns = _columns(n, zones * steps.per_zone)
    fleet = _regions(truth, steps.per_zone, run)
    # In cohorts, not in sequences: a fraction of an engine is as good as many.
    engines = n / zones / run.batch
    loads, moved = np.zeros((hours, zones), np.int16), np.zeros((hours, zones), np.int16)
    by_carbon, unplaced, memory = np.zeros(hours, np.bool_), 0, None
    before = np.bincount(np.arange(n) % zones, minlength=zones)
    for hour in range(hours):
        homes = _homes(before, continuing, int(offsets[hour]))
        stays = _stays(run, view[hour], homes)
        window = _window(columns, run, steps, hour, homes, stays)
        if local is not None:
            window = _with_local(window, local[hour])
        regions = replace(
            fleet,
            engines=np.where(steps.cohorts[hour] > 0, engines, 0.0),
            batch_capacity=steps.cohorts[hour] / engines,
            intensity_g_per_kwh=steps.prices(view, hour),
        )
        found = scheduler(window, regions, policy, hour * SECONDS_PER_HOUR, memory)
        memory = found.memory
        taken = found.regions != NOWHERE
        places = found.regions % zones
        before = np.bincount(places[taken], minlength=zones)
        loads[hour] = before
        gone = taken[:continuing] & (places[:continuing] != homes)
        moved[hour] = np.bincount(places[:continuing][gone], minlength=zones)
        unplaced += int(n - taken.sum())
        by_carbon[hour] = found.carbon_counts
    return Placed(loads, moved, unplaced, by_carbon)


def _homes(before: Counts, continuing: int, offset: int) -> Counts:
    """Regions of the sessions that go on: an even sample of the hour before, drawn by its offset."""
    served = np.repeat(np.arange(len(before)), before)
    if not len(served):
        return np.full(continuing, NO_HOME)
    sample: Counts = served[(np.arange(continuing) * len(served) // continuing + offset) % len(served)]
    return sample


def _stays(run: Run, view: Floats, homes: Counts) -> Flags:
    """Which of the sessions that go on are kept where they are. Where a rate is unknown, moving pays for none."""
    somewhere: Flags = homes != NO_HOME
    if run.sessions is Sessions.FREE:
        return np.zeros(len(homes), np.bool_)
    if run.sessions is Sessions.STAY or not np.isfinite(view).all():
        return somewhere
    # Under the cap the load fills so many zones: what moves may find room in the dirtiest of them only.
    filled = min(round(np.ceil(1.0 / run.cap)), len(view)) - 1
    target = float(np.partition(view, filled)[filled])
    return somewhere & ~(target * (1.0 + run.recompute_ratio) < view[homes])


def _columns(n: int, places: int) -> Window:
    endless = np.full(n, np.inf)
    return Window(
        prompt_tokens=np.full(n, PROMPT_TOKENS),
        output_tokens=np.full(n, OUTPUT_TOKENS),
        waited_seconds=np.zeros(n),
        ttft_slo_seconds=endless,
        tpot_slo_seconds=endless,
        cached_tokens=np.zeros((n, places)),
        allowed=np.ones((n, places), np.bool_),
        home=np.full(n, NO_HOME),
    )


def _window(columns: Window, run: Run, steps: Tranches, hour: int, homes: Counts, stays: Flags) -> Window:
    """The hour's window: sessions that stay have a home, or are allowed only there if the scheduler knows none."""
    if not stays.any():
        return columns
    kept = np.flatnonzero(stays)
    home = columns.home.copy()
    home[kept] = steps.of_homes(homes[kept], hour)
    if run.scheduler != SOFT_MULTIPLIER:
        return replace(columns, home=home)
    allowed = columns.allowed.copy()
    allowed[kept] = False
    allowed[kept, home[kept]] = True
    return replace(columns, allowed=allowed)


def _local(by_zone: Floats, n: int) -> Counts:
    """Origin of every cohort that its own zone has room for, else `NO_HOME`; shape (hours, n)."""
    hours, zones = by_zone.shape
    shares = by_zone / by_zone.sum(axis=1, keepdims=True)
    edges = np.concatenate([np.zeros((hours, 1)), np.cumsum(shares, axis=1)], axis=1)
    counts = np.diff(np.round(edges * n).astype(np.int64), axis=1)
    room = np.floor(SATURATION * n / zones / by_zone.mean(axis=1)).astype(np.int64)
    served = np.minimum(counts, room[:, None])
    origins = np.full((hours, n), NO_HOME)
    for hour in range(hours):
        own = np.repeat(np.arange(zones), served[hour])
        origins[hour, : len(own)] = own
    return origins


def _with_local(window: Window, origins: Counts) -> Window:
    allowed = window.allowed.copy()
    own = np.flatnonzero(origins != NO_HOME)
    allowed[own] = False
    allowed[own, origins[own]] = True
    return replace(window, allowed=allowed)


def _regions(truth: Rates, per_zone: int, run: Run) -> Regions:
    places = len(truth.zones) * per_zone
    nothing, one = np.zeros(places), np.ones(places)
    capped = run.scheduler == SOFT_MULTIPLIER
    return Regions(
        names=tuple(zone.name for zone in truth.zones) * per_zone,
        engine_rows=np.tile(coefficients(load(PROFILE)), (places, 1)),
        engines=one,
        batch_capacity=one,
        running=nothing,
        waiting=nothing,
        waiting_tokens=nothing,
        kv_tokens=nothing,
        prefill_duty=nothing,
        idle_engines=one,
        intensity_g_per_kwh=nothing,
        pue=one,
        rtt_seconds=nothing,
        dispatch_seconds=nothing,
        age_seconds=nothing,
        largest_share=np.full(places, run.cap if capped else 1.0),
        recent_share=np.full(places, np.nan),
    )
