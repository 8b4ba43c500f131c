"""The regions as a window sees them: the last states, grids, distances and shares, as columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan

import numpy as np

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.engine.coefficients import Coefficient, unknown_coefficients
from heliotrope.place.from_resources import largest_shares
from heliotrope.place.regions import Regions
from heliotrope.place.window import FloatColumn
from heliotrope_epp.datalayer.region_state import EngineStep, RegionLoad
from heliotrope_epp.region.feed import RegionFeed

EXPECTED_SERVICE_S = 60.0
"""What forecasts of intensity are averaged over."""


@dataclass(frozen=True, slots=True)
class Known:
    """What columns are made of, in the order of `feeds`."""

    feeds: Sequence[RegionFeed]
    up: Sequence[bool]
    views: Mapping[str, RegionView]
    """Grid and distance by region; one that is missing here has no RegionProfile."""
    profiles: Mapping[str, RegionProfile]
    shares: Mapping[str | None, float]
    """This scheduler's recent requests by region."""
    policy: DecisionPolicy | None
    now_s: float
    now_unix_s: float
    blind: bool = False
    """No region tells anything: each counts as there and unknown, for refusing everybody would be worse."""


def regions_of(known: Known) -> Regions:
    """The columns. A region that is down has no engines; what is not known of one that is up is NaN."""
    feeds, count = known.feeds, len(known.feeds)
    loads = [feed.load if up and not known.blind else None for feed, up in zip(feeds, known.up, strict=True)]
    engines = np.full(count, nan) if known.blind else np.array([_engines(load) for load in loads])
    views = [known.views.get(feed.name) for feed in feeds]
    total = sum(known.shares.get(feed.name, 0.0) for feed in feeds)
    return Regions(
        names=tuple(feed.name for feed in feeds),
        engine_rows=np.array([_row(None if load is None else load.engine) for load in loads]),
        engines=engines,
        batch_capacity=np.array([_batch_capacity(known, i, loads[i], float(engines[i])) for i in range(count)]),
        running=_column(loads, "running"),
        waiting=_column(loads, "waiting"),
        waiting_tokens=_column(loads, "waiting_tokens"),
        kv_tokens=_column(loads, "kv_tokens"),
        prefill_duty=np.minimum(_column(loads, "prefill_duty"), 0.999),
        idle_engines=np.array([nan if load is None else float(load.idle_engines) for load in loads]),
        intensity_g_per_kwh=intensities(views, known.now_unix_s),
        pue=np.array([nan if view is None else view.pue for view in views]),
        rtt_seconds=np.array([nan if view is None else view.rtt_seconds for view in views]),
        dispatch_seconds=np.array([feed.entry.dispatch for feed in feeds]),
        age_seconds=np.array([known.now_s - feed.received_s for feed in feeds]),
        largest_share=largest_shares_of(known),
        recent_share=np.array([known.shares.get(feed.name, 0.0) / total if total else nan for feed in feeds]),
    )


def intensities(views: Sequence[RegionView | None], now_unix_s: float) -> FloatColumn:
    """Expected g/kWh of each region; NaN where it is not fresh, and for all where signals are of several types."""
    if len(signal_types(views)) > 1:
        return np.full(len(views), nan)
    expected = [None if v is None else v.signal.expected_g_per_kwh(now_unix_s, EXPECTED_SERVICE_S) for v in views]
    return np.array([nan if value is None else value for value in expected])


def signal_types(views: Sequence[RegionView | None]) -> frozenset[tuple[SignalType, EmissionFactor]]:
    """Of the regions that have a reading; values of different types are never compared."""
    readings = (None if view is None else view.signal.reading for view in views)
    return frozenset((r.signal_type, r.emission_factor) for r in readings if r is not None)


def largest_shares_of(known: Known) -> FloatColumn:
    """The policy's and the profile's, as `heliotrope.place.from_resources.largest_shares` has them."""
    by_policy = 1.0 if known.policy is None else known.policy.largest_region_share
    return largest_shares(by_policy, [_by_profile(known.profiles.get(feed.name)) for feed in known.feeds], known.up)


def _by_profile(profile: RegionProfile | None) -> float:
    return 1.0 if profile is None else profile.spec.largest_share_percent / 100.0


def _engines(load: RegionLoad | None) -> float:
    if load is None:
        return 0.0
    return nan if load.engines == 0 and load.unknown_engines > 0 else float(load.engines)


def _batch_capacity(known: Known, index: int, load: RegionLoad | None, engines: float) -> float:
    """Of one engine, within what its region may carry at once."""
    if load is None:
        return nan
    feed = known.feeds[index]
    told = nan if load.batch_capacity is None else load.batch_capacity
    capacity = told if feed.entry.batch_capacity is None else float(feed.entry.batch_capacity)
    profile = known.profiles.get(feed.name)
    most = None if profile is None else profile.spec.capacity.max_concurrent_requests
    if most is None or not engines > 0.0:
        return capacity
    return float(np.fmin(capacity, most / engines))


def _column(loads: Sequence[RegionLoad | None], name: str) -> FloatColumn:
    values = (None if load is None else getattr(load, name) for load in loads)
    return np.array([nan if value is None else float(value) for value in values])


def _row(engine: EngineStep | None) -> FloatColumn:
    if engine is None:
        return unknown_coefficients()
    return np.array([engine.coefficients.get(c.name.lower(), nan) for c in Coefficient])
