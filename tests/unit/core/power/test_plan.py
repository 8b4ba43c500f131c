"""Settings of a policy's variants: least energy, budgets, dwell, what is unknown, recovery."""

from dataclasses import replace
from math import inf, isnan, nan
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.power.samples import spec

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import Accelerator, WattRange
from heliotrope.power.clocks import ClockRules
from heliotrope.power.latency import Promise
from heliotrope.power.options import Work
from heliotrope.power.plan import PowerPlan, PowerRules, VariantFacts, plan_power
from heliotrope.power.split import Verdict
from heliotrope.power.turns import Recent, Turn

NOW = 10_000.0
RULES = PowerRules(ClockRules(Promise(1.0, 0.05)))
WORK = Work(2_000.0, 250.0)
FULL = {Role.PREFILL: 695.0, Role.DECODE: 432.0}


def facts(role: Role, *, awake: int = 2, rate: float = 6.0, **changes: Any) -> VariantFacts:
    variant = spec(role, **changes.pop("spec", {}))
    values: dict[str, Any] = {
        "name": f"llm/{role.value}",
        "spec": variant,
        "awake": awake,
        "requests_per_second": rate,
        "ttft_seconds": 0.1,
        "tpot_seconds": 0.012,
        "work": WORK,
    }
    return VariantFacts(**(values | changes))


PAIR = (facts(Role.PREFILL), facts(Role.DECODE, awake=4))
UNKNOWN = tuple(replace(each, work=None, requests_per_second=nan, ttft_seconds=nan, tpot_seconds=nan) for each in PAIR)


def clocks(plan: PowerPlan) -> dict[str, int | None]:
    return {name.partition("/")[2]: setting.sm_clock_mhz for name, setting in plan.settings.items()}


def test_each_phase_gets_its_own_clock_and_power_falls() -> None:
    plan = plan_power(PAIR, RULES, inf, NOW)
    assert plan.verdict is Verdict.UNLIMITED
    assert clocks(plan) == {"prefill": 900, "decode": 900}
    assert plan.full_watts == pytest.approx(2 * 695 + 4 * 432, rel=1e-3)
    assert plan.projected_watts == pytest.approx(2 * 210 + 4 * 320, rel=1e-3)
    assert plan.settings["llm/prefill"].utilization == pytest.approx(3.0 * 2_000 / 17_500)
    assert {setting.watts for setting in plan.settings.values()} == {None}


def test_clock_per_phase_off_sets_clocks_for_a_budget_only() -> None:
    rules = replace(RULES, clock_per_phase=False)
    plan = plan_power(PAIR, rules, inf, NOW)
    assert (clocks(plan), plan.settings["llm/decode"].reason) == ({"prefill": None, "decode": None}, "OnlyForBudget")
    capped = plan_power(PAIR, rules, 2_500.0, NOW)
    assert capped.verdict is Verdict.WITHIN
    assert capped.projected_watts <= 2_500.0


def test_an_unknown_load_leaves_clocks_and_a_budget_holds_all_the_same() -> None:
    free = plan_power(UNKNOWN, RULES, inf, NOW)
    assert (set(clocks(free).values()), free.settings["llm/decode"].reason) == ({None}, "LoadUnknown")
    held = plan_power([replace(each, present_mhz=1_200) for each in UNKNOWN], RULES, inf, NOW)
    assert set(clocks(held).values()) == {1_200}
    capped = plan_power(UNKNOWN, RULES, 2_400.0, NOW)
    assert capped.verdict is Verdict.WITHIN
    assert 2_300.0 < capped.projected_watts <= 2_400.0


def test_after_a_budget_clocks_go_back_even_where_the_load_is_unknown() -> None:
    low = [replace(each, present_mhz=1_000, for_budget=True) for each in UNKNOWN]
    assert set(clocks(plan_power(low, RULES, inf, NOW)).values()) == {None}


def test_limits_hold_within_the_range_and_are_of_one_accelerator() -> None:
    four = {"accelerator": Accelerator(type="H100", count=4)}
    (mixed,) = [facts(Role.BOTH, awake=1, spec=four)]
    plan = plan_power([mixed], replace(RULES, clock_per_phase=False), 400.0, NOW)
    setting = plan.settings["llm/both"]
    assert setting.watts == 200  # a quarter of the prefill phase's peak, raised to wattRange.minWatts
    only_watts = facts(
        Role.DECODE, awake=1, spec={"clock_range": None, "watt_range": WattRange(min_watts=300, max_watts=500)}
    )
    capped = plan_power([only_watts], RULES, 400.0, NOW)
    assert (capped.settings["llm/decode"].sm_clock_mhz, capped.verdict) == (None, Verdict.WITHIN)
    assert 380 < (capped.settings["llm/decode"].watts or 0) <= 400
    assert capped.projected_watts <= 400.0


def test_what_cannot_be_moved_counts_and_what_is_unknown_is_named() -> None:
    fixed = facts(Role.BOTH, awake=1, spec={"clock_range": None, "watt_range": None})
    plan = plan_power([*PAIR, fixed], replace(RULES, clock_per_phase=False), 2_300.0, NOW)
    assert plan.settings["llm/both"].sm_clock_mhz is None
    assert plan.verdict is Verdict.WITHIN
    assert plan.projected_watts <= 2_300.0
    blank = replace(fixed, name="llm/blank", spec=spec(energy_profile=()))
    unknown = plan_power([*PAIR, blank], RULES, 2_200.0, NOW)
    assert unknown.without_profile == ("llm/blank",)
    assert isnan(unknown.projected_watts)
    assert unknown.settings["llm/blank"].reason == "NoEnergyProfile"


def test_a_budget_lowers_at_once_and_raises_after_the_dwell_time() -> None:
    recent = Recent(clocks_changed_unix_s=NOW - 10.0)
    busy = [replace(each, requests_per_second=16.0) for each in PAIR]
    low = [replace(each, present_mhz=900, for_budget=True, recent=recent) for each in busy]
    rules = replace(RULES, clock_per_phase=False)
    waiting = plan_power(low, rules, 2_500.0, NOW)
    assert set(clocks(waiting).values()) == {900}
    assert Turn.DWELL in {setting.turn for setting in waiting.settings.values()}
    later = plan_power(low, rules, 2_500.0, NOW + 60.0)
    assert max(mhz or 0 for mhz in clocks(later).values()) > 900
    high = [replace(each, present_mhz=1_980, recent=recent) for each in PAIR]
    assert plan_power(high, rules, 2_000.0, NOW).projected_watts <= 2_000.0


def test_replicas_at_rest_draw_power_too() -> None:
    resting = replace(PAIR[1], resting=3, resting_watts=100.0)
    assert plan_power([resting], RULES, inf, NOW).full_watts == pytest.approx(4 * 432 + 300, rel=1e-3)
    assert plan_power([replace(resting, resting_watts=None)], RULES, inf, NOW).full_watts > 4 * 432 + 3 * 300


def test_an_infeasible_budget_is_best_effort_and_says_by_how_much() -> None:
    plan = plan_power(PAIR, RULES, 1_000.0, NOW)
    assert plan.verdict is Verdict.INFEASIBLE
    assert set(clocks(plan).values()) == {900}
    assert plan.split is not None
    assert plan.split.excess_watts == pytest.approx(2 * 210 + 4 * 320 - 1_000, rel=0.01)


@settings(deadline=None)
@given(
    st.floats(0.0, 20.0) | st.just(nan),
    st.floats(0.001, 2.0),
    st.sampled_from([None, 900, 1_410, 1_980]),
    st.floats(1_000.0, 4_000.0),
    st.booleans(),
)
def test_no_plan_draws_more_than_a_budget_that_can_be_kept(
    rate: float, ttft: float, present: int | None, budget: float, per_phase: bool
) -> None:
    seen = [replace(each, requests_per_second=rate, ttft_seconds=ttft, present_mhz=present) for each in PAIR]
    plan = plan_power(seen, replace(RULES, clock_per_phase=per_phase), budget, NOW)
    assert (plan.projected_watts <= budget + 1e-6) == (plan.verdict is not Verdict.INFEASIBLE)
    for each in seen:
        mhz = plan.settings[each.name].sm_clock_mhz
        assert mhz is None or 900 <= mhz <= 1_980
