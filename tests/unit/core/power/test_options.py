"""Clocks that may be set, in requests: hand-worked numbers, interpolation, ranges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.power.samples import spec

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import ClockRange
from heliotrope.power.options import Work, balanced_work, clock_options, option_at, peak_watts

WORK = Work(prompt_tokens=2_000.0, output_tokens=250.0)


def test_a_prefill_engine_by_hand() -> None:
    options = clock_options(spec(Role.PREFILL), WORK)
    top = options[-1]
    # 2,000 tokens at 38,579 tokens/s; 0.018015 J each.
    assert top.sm_clock_mhz == 1_980
    assert top.prompt_seconds == pytest.approx(2_000 / 38_579)
    assert (top.output_seconds, top.watts) == (0.0, pytest.approx(695, rel=1e-3))
    assert top.joules_per_request == pytest.approx(2_000 * 695 / 38_579, rel=1e-3)
    assert top.requests_per_second == pytest.approx(19.29, rel=1e-3)


def test_a_mixed_engine_does_one_phase_after_the_other() -> None:
    both, prefill, decode = (clock_options(spec(role), WORK)[-1] for role in (Role.BOTH, Role.PREFILL, Role.DECODE))
    assert both.busy_seconds == pytest.approx(prefill.busy_seconds + decode.busy_seconds)
    assert both.joules_per_request == pytest.approx(prefill.joules_per_request + decode.joules_per_request)
    assert decode.watts < both.watts < prefill.watts
    assert peak_watts(spec(), 1_980) == pytest.approx(695, rel=1e-3)


def test_between_measured_clocks_throughput_and_power_are_linear() -> None:
    middle = option_at(clock_options(spec(Role.PREFILL), WORK), 1_155)
    assert middle is not None
    assert middle.sm_clock_mhz == 1_155
    assert middle.prompt_seconds == pytest.approx(2_000 / ((17_500 + 27_473) / 2))
    assert middle.watts == pytest.approx((210 + 402) / 2, rel=1e-3)


@given(st.integers(600, 1_500), st.integers(0, 900))
def test_no_clock_is_outside_of_range_or_measurement(low: int, width: int) -> None:
    limits = ClockRange(min_mhz=low, max_mhz=low + width)
    clocks = [each.sm_clock_mhz for each in clock_options(spec(clock_range=limits), WORK)]
    assert clocks == sorted(set(clocks))
    assert all(max(low, 900) <= mhz <= min(low + width, 1_980) for mhz in clocks)
    assert bool(clocks) == (max(low, 900) <= min(low + width, 1_980))
    if clocks:
        assert (clocks[0], clocks[-1]) == (max(low, 900), min(low + width, 1_980))


def test_what_is_not_known_gives_no_clock() -> None:
    assert clock_options(spec(energy_profile=()), WORK) == ()
    assert clock_options(spec(clock_range=None), WORK) == ()
    assert clock_options(spec(clock_range=None), WORK, full_range=True)
    assert clock_options(spec(), Work(math.nan, 1.0)) == ()
    half = tuple(point for point in spec().energy_profile if point.phase.value == "decode")
    assert clock_options(spec(energy_profile=half), WORK) == ()
    with pytest.raises(ValueError, match="outside of what was measured"):
        peak_watts(spec(), 2_400)


def test_a_clock_that_is_none_of_them_counts_as_the_one_below() -> None:
    options = clock_options(spec(), WORK)
    found = [option_at(options, mhz) for mhz in (None, 1_980, 5_000, 901, 100)]
    assert [each.sm_clock_mhz for each in found if each is not None] == [1_980, 1_980, 1_980, 900, 900]
    assert option_at((), 900) is None


def test_balanced_work_keeps_pools_equally_busy() -> None:
    specs, replicas = [spec(Role.PREFILL), spec(Role.DECODE)], [1, 5]
    work = balanced_work(specs, replicas)
    rates = [
        count * clock_options(each, work)[-1].requests_per_second for each, count in zip(specs, replicas, strict=True)
    ]
    assert rates[0] == pytest.approx(rates[1])
    assert not balanced_work([spec(energy_profile=())], [3]).known
