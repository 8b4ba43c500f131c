"""The clock of least energy within the promise; what is unknown lowers nothing."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.power.samples import spec

from heliotrope.api.v1alpha1.common import Role
from heliotrope.engine import profiles
from heliotrope.power.clocks import ClockReason, ClockRules, choose_clock
from heliotrope.power.latency import (
    Observed,
    Promise,
    carried_within,
    modelled,
    predicted_tpot,
    predicted_ttft,
    utilization,
)
from heliotrope.power.options import Work, clock_options, option_at

WORK = Work(2_000.0, 250.0)
PROMISE = Promise(ttft_seconds=1.0, tpot_seconds=0.05)
RULES = ClockRules(PROMISE)
PREFILL, DECODE, BOTH = (clock_options(spec(role), WORK) for role in (Role.PREFILL, Role.DECODE, Role.BOTH))
QUIET = Observed(requests_per_second=1.0, ttft_seconds=0.06, tpot_seconds=0.012)
rates = st.floats(0.0, 30.0)
latencies = st.floats(0.001, 2.0)


def test_latency_is_carried_over_by_hand() -> None:
    slow, fast = PREFILL[0], PREFILL[-1]
    rate = 4.0
    observed = Observed(rate, ttft_seconds=0.1)
    now, then = rate * fast.prompt_seconds, rate * slow.prompt_seconds
    expected = 0.1 * (slow.prompt_seconds / (1 - then)) / (fast.prompt_seconds / (1 - now))
    assert predicted_ttft(slow, fast, observed) == pytest.approx(expected)
    assert predicted_ttft(slow, fast, replace(observed, requests_per_second=9.0)) == math.inf
    assert predicted_tpot(DECODE[0], DECODE[-1], Observed(1.0, math.nan, 0.01)) == pytest.approx(0.01 * 2_856 / 2_600)
    assert predicted_tpot(PREFILL[0], PREFILL[-1], observed) == 0.0
    assert predicted_ttft(DECODE[0], DECODE[-1], observed) == 0.0


def test_what_is_carried_within_the_promise_by_hand() -> None:
    slow = PREFILL[0]  # 2,000 tokens at 17,500/s: 0.114 s of a second
    assert carried_within(slow, PROMISE) == pytest.approx((1 - 2_000 / 17_500) * 17_500 / 2_000)
    assert carried_within(slow, Promise(0.1, 0.05)) == 0.0
    assert carried_within(DECODE[0], PROMISE, 0.051) == 0.0
    most, places = 2_600 / 250, PROMISE.ttft_seconds * 2_600 / 250  # a wait of ρ / (most - carried) within the TTFT
    assert carried_within(DECODE[0], PROMISE, math.nan) == pytest.approx(most * places / (1 + places))
    assert most * places / (1 + places) < carried_within(DECODE[0], PROMISE, math.nan, slots=64.0) < most


def test_a_quiet_engine_goes_to_the_clock_of_least_energy() -> None:
    for options in (PREFILL, DECODE, BOTH):
        least = min(options, key=lambda each: each.joules_per_request)
        found = choose_clock(options, None, QUIET, RULES)
        assert (found.sm_clock_mhz, found.reason) == (least.sm_clock_mhz, ClockReason.EFFICIENT)


@pytest.mark.parametrize("options", [PREFILL, DECODE, BOTH])
@pytest.mark.parametrize("missing", ["requests_per_second", "ttft_seconds", "tpot_seconds"])
@pytest.mark.parametrize("present", [None, 1_200])
def test_unknown_load_or_latency_leaves_the_clock(
    options: tuple[object, ...], missing: str, present: int | None
) -> None:
    needed = {"ttft_seconds": options is not DECODE, "tpot_seconds": options is not PREFILL}.get(missing, True)
    found = choose_clock(options, present, replace(QUIET, **{missing: math.nan}), RULES)  # type: ignore[arg-type]
    if needed:
        assert (found.sm_clock_mhz, found.reason) == (present, ClockReason.LOAD_UNKNOWN)
    else:
        assert found.reason is ClockReason.EFFICIENT


def test_without_a_profile_there_is_no_clock() -> None:
    assert choose_clock((), 1_200, QUIET, RULES).reason is ClockReason.NO_PROFILE


@given(
    st.sampled_from([PREFILL, DECODE, BOTH]), st.sampled_from([None, 900, 1_410, 1_980]), rates, latencies, latencies
)
def test_a_chosen_lower_clock_keeps_the_headroom(
    options: tuple[object, ...], present_mhz: int | None, rate: float, ttft: float, tpot: float
) -> None:
    observed = Observed(rate, ttft, tpot)
    present = option_at(options, present_mhz)  # type: ignore[arg-type]
    assert present is not None
    found = choose_clock(options, present_mhz, observed, RULES)  # type: ignore[arg-type]
    chosen = option_at(options, found.sm_clock_mhz)  # type: ignore[arg-type]
    assert chosen is not None
    if chosen.sm_clock_mhz < present.sm_clock_mhz:
        assert found.reason is ClockReason.EFFICIENT
        assert utilization(chosen, rate) <= RULES.saturation
        assert predicted_ttft(chosen, present, observed) <= 0.85 * PROMISE.ttft_seconds
        assert predicted_tpot(chosen, present, observed) <= 0.85 * PROMISE.tpot_seconds
        assert chosen.joules_per_request < 0.981 * present.joules_per_request
    held = choose_clock(options, present_mhz, observed, RULES, may_lower=False)  # type: ignore[arg-type]
    assert held.sm_clock_mhz == present_mhz or held.raised or held.sm_clock_mhz == present.sm_clock_mhz


@given(st.sampled_from([PREFILL, DECODE, BOTH]), rates, latencies, latencies)
def test_a_second_look_changes_nothing(options: tuple[object, ...], rate: float, ttft: float, tpot: float) -> None:
    """What is predicted of the chosen clock, once it is there, lets it stay."""
    observed = Observed(rate, ttft, tpot)
    first = choose_clock(options, None, observed, RULES)  # type: ignore[arg-type]
    chosen, present = option_at(options, first.sm_clock_mhz), option_at(options, None)  # type: ignore[arg-type]
    assert chosen is not None
    assert present is not None
    after = Observed(
        rate,
        predicted_ttft(chosen, present, observed) if chosen.prompt_seconds else ttft,
        predicted_tpot(chosen, present, observed) if chosen.output_seconds else tpot,
    )
    second = choose_clock(options, first.sm_clock_mhz, after, RULES)  # type: ignore[arg-type]
    if first.reason is ClockReason.EFFICIENT:
        assert second.sm_clock_mhz == first.sm_clock_mhz


def test_used_up_headroom_raises_at_once_and_half_of_it_is_hysteresis() -> None:
    present = 900
    assert choose_clock(PREFILL, present, replace(QUIET, ttft_seconds=0.90), RULES).sm_clock_mhz == present
    found = choose_clock(PREFILL, present, replace(QUIET, ttft_seconds=0.95), RULES, may_lower=False)
    assert (found.reason, found.raised) == (ClockReason.SLO, True)
    hopeless = choose_clock(PREFILL, present, replace(QUIET, ttft_seconds=9.0), RULES)
    assert (hopeless.sm_clock_mhz, hopeless.reason) == (1_980, ClockReason.SLO)


def test_saturation_raises_even_where_latency_is_kept() -> None:
    busy = Observed(requests_per_second=8.0, ttft_seconds=0.01, tpot_seconds=0.01)
    assert utilization(PREFILL[0], 8.0) > RULES.saturation
    found = choose_clock(PREFILL, 900, busy, RULES)
    assert found.raised
    assert utilization(option_at(PREFILL, found.sm_clock_mhz), 8.0) <= RULES.saturation  # type: ignore[arg-type]


def test_modelled_latency_follows_clock_and_load() -> None:
    engine = profiles.load("llama-3.1-8b-h100")
    fast = modelled(engine, Role.BOTH, WORK, 2.0)
    slow = modelled(engine.at_clock(900), Role.BOTH, WORK, 2.0)
    busier = modelled(engine, Role.BOTH, WORK, 6.0)
    assert 0.0 < fast.ttft_seconds < min(slow.ttft_seconds, busier.ttft_seconds)
    assert 0.0 < fast.tpot_seconds < min(slow.tpot_seconds, busier.tpot_seconds)
    alone = modelled(engine, Role.DECODE, WORK, 1e-6)
    assert alone.tpot_seconds == pytest.approx(float(engine.decode_seconds(1.0, 2_125.0)))
    assert alone.ttft_seconds == 0.0
    assert math.isnan(modelled(engine, Role.BOTH, WORK, 1_000.0).ttft_seconds)
    assert math.isnan(modelled(engine, Role.BOTH, WORK, math.nan).tpot_seconds)
