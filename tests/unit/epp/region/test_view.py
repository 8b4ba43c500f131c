"""Columns of regions and windows: unknown stays unknown, limits are the smaller ones, shares yield."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.region.bench import policy as carbon_policy
from tests.unit.epp.region.bench import profile
from tests.unit.epp.region.builders import NOW_UNIX_S, Client, load, page, tier, view

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.signal import SignalType
from heliotrope.decide.asked import Asked
from heliotrope.decide.from_resources import decision_policy
from heliotrope.decide.resolve import policy_for
from heliotrope.engine.coefficients import Coefficient
from heliotrope.place.regions import Regions
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.region.batch import window_of
from heliotrope_epp.region.feed import RegionFeed
from heliotrope_epp.region.placed import Waiting
from heliotrope_epp.region.prefixes import RegionPrefixes
from heliotrope_epp.region.view import Known, regions_of
from heliotrope_epp.tracing.tracer import UNTRACED

NOW_S = 50.0


def seen(loads: dict[str, Any], *, profiles: dict[str, RegionProfile] | None = None, **options: Any) -> Regions:
    """Regions by name, with what was polled two seconds ago; None: nothing ever."""
    feeds = []
    for entry in tier(*loads).regions:
        feed = RegionFeed(entry)
        if loads[entry.name] is not None:
            feed.accept(page(loads[entry.name]), NOW_S - 2.0, NOW_UNIX_S - 2.0)
        feeds.append(feed)
    values: dict[str, Any] = {
        "feeds": feeds,
        "up": [feed.load is not None for feed in feeds],
        "views": {name: view(name, 100.0) for name in loads},
        "profiles": profiles or {},
        "shares": {},
        "policy": None,
        "now_s": NOW_S,
        "now_unix_s": NOW_UNIX_S,
    }
    return regions_of(Known(**values | options))


def test_what_was_told_is_what_is_seen() -> None:
    regions = seen({"a": load("a", running=3.0, prefill_duty=1.0), "b": None})
    assert regions.names == ("a", "b")
    assert regions.engines.tolist() == [2.0, 0.0]
    assert (regions.running[0], regions.age_seconds[0]) == (3.0, 2.0)
    assert regions.prefill_duty[0] < 1.0
    assert regions.engine_rows[0, Coefficient.MAX_NUM_SEQS] > 0.0
    assert np.isnan(regions.running[1])
    assert np.isnan(regions.engine_rows[1]).all()


def test_null_is_nan_and_engines_that_nobody_read_are_unknown_and_not_none() -> None:
    regions = seen(
        {
            "a": load("a", running=None, engine=None),
            "b": load("b", engines=0, unknown_engines=2),
            "c": load("c", engines=0),
        }
    )
    assert np.isnan(regions.running[0])
    assert np.isnan(regions.engine_rows[0]).all()
    assert np.isnan(regions.engines[1])
    assert regions.engines[2] == 0.0


def test_a_coefficient_that_is_missing_is_unknown() -> None:
    step = load("a").engine
    assert step is not None
    step.coefficients.pop("prefill_base")
    regions = seen({"a": load("a", engine=step)})
    assert np.isnan(regions.engine_rows[0, Coefficient.PREFILL_BASE])
    assert regions.engine_rows[0, Coefficient.IDLE_WATTS] > 0.0


@pytest.mark.parametrize(("most", "capacity"), [(40, 20.0), (1000, 64.0)])
def test_what_a_region_may_carry_bounds_its_batches(most: int, capacity: float) -> None:
    regions = seen({"a": load("a")}, profiles={"a": profile("a", capacity={"maxConcurrentRequests": most})})
    assert regions.batch_capacity[0] == capacity


def test_without_a_profile_grid_and_distance_are_unknown() -> None:
    regions = seen({"a": load("a")}, views={})
    assert np.isnan(regions.intensity_g_per_kwh[0])
    assert np.isnan(regions.pue[0])
    assert np.isnan(regions.rtt_seconds[0])


def test_signals_of_two_types_are_none() -> None:
    views = {"a": view("a", 1.0), "b": view("b", 2.0, kind=SignalType.MARGINAL)}
    assert np.isnan(seen({"a": load("a"), "b": load("b")}, views=views).intensity_g_per_kwh).all()


@given(
    percents=st.lists(st.integers(1, 100), min_size=1, max_size=6),
    up=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_regions_that_are_up_may_always_take_everything_together(percents: list[int], up: list[bool]) -> None:
    names = [f"r{i}" for i in range(len(percents))]
    profiles = {n: profile(n, largestSharePercent=p) for n, p in zip(names, percents, strict=True)}
    there = up[: len(names)]
    regions = seen({name: load(name) for name in names}, profiles=profiles, up=there)
    assert (regions.largest_share <= 1.0).all()
    assert (regions.largest_share >= np.array(percents) / 100.0 - 1e-12).all()
    if any(there):
        assert regions.largest_share[np.array(there)].sum() >= min(1.0, sum(percents) / 100.0) - 1e-9
        assert regions.largest_share[np.array(there)].sum() >= 1.0 - 1e-9


def test_shares_are_of_these_regions() -> None:
    regions = seen({"a": load("a"), "b": load("b")}, shares={"a": 30.0, "b": 10.0, "gone": 60.0})
    assert regions.recent_share.tolist() == [0.75, 0.25]
    assert np.isnan(seen({"a": load("a")}).recent_share[0])


def waiting(asked: Asked | None = None, **options: Any) -> Waiting:
    policy = decision_policy(carbon_policy(spec=options.pop("spec", {})))
    own = asked or Asked()
    llm = LlmRequest(
        "r", "/v1/completions", "m", b"", 100, None, 20.0, True,
        ttft_slo_seconds=own.ttft_slo_seconds, tpot_slo_seconds=own.tpot_slo_seconds, asked=own,
    )  # fmt: skip
    return Waiting(Client(), llm, policy_for(policy, own, NOW_UNIX_S), UNTRACED, NOW_S - 1.0, **options)


def test_promises_are_the_policys_or_the_requests_own_where_it_may() -> None:
    own = Asked(ttft_slo_seconds=0.5)
    window = window_of(
        [
            waiting(),
            waiting(own),
            waiting(own, spec={"overrides": {"allowed": ["Regions"]}}),
            waiting(deadline_unix_s=NOW_UNIX_S + 900.0, held_s=0.9),
        ],
        ("a", "b"),
        (True, False),
        RegionPrefixes(),
        NOW_S,
        NOW_UNIX_S,
    )
    assert window.ttft_slo_seconds.tolist() == [2.0, 0.5, 2.0, 900.0]
    assert window.tpot_slo_seconds.tolist() == [0.1] * 4
    assert window.waited_seconds == pytest.approx([1.0, 1.0, 1.0, 0.1])
    assert window.allowed.tolist() == [[True, False]] * 4


def test_without_a_policy_nothing_is_promised() -> None:
    each = waiting()
    each.policy = None
    window = window_of([each], ("a",), (True,), RegionPrefixes(), NOW_S, NOW_UNIX_S)
    assert np.isinf(window.ttft_slo_seconds[0])
    assert np.isinf(window.tpot_slo_seconds[0])
