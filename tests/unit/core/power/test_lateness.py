"""Who waits, by the exact formula; and watts beyond what is asked go where they make fewest requests late."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import exp, inf, nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.power.samples import option

from heliotrope.api.v1alpha1.common import Role
from heliotrope.power.latency import Promise, carried_within, waiting_share
from heliotrope.power.lateness import ENOUGH, kept_per_second, with_fewest_late
from heliotrope.power.pools import Point, PowerPool, goodput, points_of, watts_of
from heliotrope.power.split import split

PROMISE = Promise(ttft_seconds=2.0, tpot_seconds=0.08)


def erlang_c(servers: int, utilization: float) -> float:
    """Exact, by the recursion of Erlang's B."""
    offered, blocked = servers * utilization, 1.0
    for count in range(1, servers + 1):
        blocked = offered * blocked / (count + offered * blocked)
    return blocked / (1.0 - utilization * (1.0 - blocked))


@pytest.mark.parametrize("servers", [1, 4, 16, 64, 256])
@pytest.mark.parametrize("utilization", [0.05, 0.3, 0.6, 0.8, 0.9, 0.97])
def test_who_waits_is_near_erlangs_formula(servers: int, utilization: float) -> None:
    assert waiting_share(servers, utilization) == pytest.approx(erlang_c(servers, utilization), abs=0.05)


@given(st.floats(1.0, 300.0), st.floats(0.01, 0.98))
def test_more_places_and_less_load_let_fewer_wait(slots: float, utilization: float) -> None:
    waits = waiting_share(slots, utilization)
    assert 0.0 <= waits <= 1.0
    assert waiting_share(slots + 1.0, utilization) <= waits
    assert waiting_share(slots, utilization + 0.01) >= waits
    assert waiting_share(slots, 1.0) == 1.0


@given(st.floats(0.02, 20.0), st.floats(1.0, 200.0) | st.just(nan), st.floats(0.05, 10.0))
def test_a_decode_engine_carries_what_waits_no_longer_than_the_promise(
    seconds: float, slots: float, ttft: float
) -> None:
    decode = option(900, 0.0, seconds, 300.0)
    carried = carried_within(decode, Promise(ttft, 0.1), slots=slots)
    capacity, places = 1.0 / seconds, max(slots, 1.0) if slots == slots else 1.0
    assert 0.0 <= carried <= capacity
    if carried > 1e-4 * capacity:
        wait = waiting_share(places, carried / capacity) / (capacity - carried)
        assert wait <= ttft * (1.0 + 1e-9)
    more = carried + 1e-4 * capacity
    assert more >= capacity or waiting_share(places, more / capacity) / (capacity - more) >= ttft * (1.0 - 1e-6)


def pool(name: str, role: Role, *options: tuple[float, float], slots: float = 1.0, replicas: int = 1) -> PowerPool:
    """Engine seconds of a request and watts, by clock."""
    made = tuple(
        option(
            100 * (i + 1),
            0.0 if role is Role.DECODE else seconds,
            0.0 if role is Role.PREFILL else (seconds / 2 if role is Role.BOTH else seconds),
            watts,
        )
        for i, (seconds, watts) in enumerate(options)
    )
    return PowerPool(name, "a", role, replicas, made, slots=slots)


def best_whole(
    pools: Sequence[PowerPool], points: dict[str, list[Point]], asked: dict[str, float], budget: float, least: float
) -> float:
    """Most that is kept of all choices that carry no less, by trying each."""
    names = [each.name for each in pools]
    choices = (dict(zip(names, each, strict=True)) for each in product(*(points[name] for name in names)))
    return max(
        kept_per_second(pools, chosen, asked, PROMISE)
        for chosen in choices
        if watts_of(chosen.values()) <= budget and goodput(pools, chosen, asked) >= least - 1e-9
    )


@st.composite
def fleets(draw: st.DrawFn) -> list[PowerPool]:
    made = []
    for index, role in enumerate(
        draw(st.sampled_from([(Role.PREFILL, Role.DECODE), (Role.BOTH, Role.BOTH), tuple(Role)]))
    ):
        count = draw(st.integers(2, 12))
        slowest, lowest = draw(st.floats(0.1, 1.0)), draw(st.floats(100.0, 300.0))
        shape, more = draw(st.floats(0.1, 1.0)), draw(st.floats(5.0, 40.0))
        made.append(
            pool(
                f"p{index}",
                role,
                *((slowest / (1.0 + i * shape / 5.0), lowest + more * i) for i in range(count)),
                slots=draw(st.sampled_from([1.0, 8.0, 64.0])),
                replicas=draw(st.integers(1, 3)),
            )
        )
    return made


@settings(max_examples=150, deadline=None)
@given(fleets(), st.floats(0.0, 1.0), st.floats(0.1, 12.0))
def test_moved_choices_carry_no_less_hold_the_budget_and_come_near_the_best(
    pools: list[PowerPool], share: float, rate: float
) -> None:
    points = {each.name: points_of(each, PROMISE) for each in pools}
    low = {name: of[0] for name, of in points.items()}
    budget = watts_of(low.values()) + share * (watts_of(of[-1] for of in points.values()) - watts_of(low.values()))
    asked = {"a": rate}
    found = with_fewest_late(pools, points, low, asked, budget, PROMISE)
    assert watts_of(found.values()) <= budget + 1e-6
    assert goodput(pools, found, asked) >= goodput(pools, low, asked) - 1e-6
    kept = kept_per_second(pools, found, asked, PROMISE)
    assert kept >= kept_per_second(pools, low, asked, PROMISE) - 1e-9
    assert 0.0 <= kept <= rate * (1.0 + 1e-9)


PREFILL = pool("prefill", Role.PREFILL, *((0.2 / (1.0 + i / 10.0), 400.0 + 20.0 * i) for i in range(12)))
DECODE = pool("decode", Role.DECODE, *((0.14 / (1.0 + i / 200.0), 500.0 + 20.0 * i) for i in range(12)), slots=60.0)


@pytest.mark.parametrize("rate", [1.0, 3.0, 4.5, 5.5, 6.0])
def test_in_a_pair_fewest_are_late(rate: float) -> None:
    pair, asked, budget = [PREFILL, DECODE], {"a": rate}, 1_120.0
    points = {each.name: points_of(each, PROMISE) for each in pair}
    found = split(pair, asked, budget, PROMISE)
    chosen = {
        name: next(each for each in of if each.option.sm_clock_mhz == found.shares[name].sm_clock_mhz)
        for name, of in points.items()
    }
    kept = kept_per_second(pair, chosen, asked, PROMISE)
    assert kept >= best_whole(pair, points, asked, budget, found.goodput_per_second) - ENOUGH * rate


def test_watts_beyond_what_is_asked_go_to_the_phase_that_is_late() -> None:
    """Decode hardly slows down with its clock, so both carry 5 requests per second in many ways; prefill queues."""
    found = split([PREFILL, DECODE], {"a": 5.0}, 1_120.0, PROMISE)
    assert found.shares["prefill"].sm_clock_mhz > 800  # 600 carries the same as decode does at 600
    assert found.goodput_per_second == pytest.approx(5.0)


def test_present_clocks_stay_while_another_split_keeps_hardly_more() -> None:
    present = [replace(PREFILL, present_mhz=1_100), replace(DECODE, present_mhz=200)]
    stays = split(present, {"a": 3.0}, 1_120.0, PROMISE)
    assert {name: share.sm_clock_mhz for name, share in stays.shares.items()} == {"prefill": 1_100, "decode": 200}
    # Prefill is too slow for more requests, and above a smaller budget.
    loaded = split(
        [replace(PREFILL, present_mhz=100), replace(DECODE, present_mhz=1_200)], {"a": 5.5}, 1_120.0, PROMISE
    )
    assert loaded.shares["prefill"].sm_clock_mhz > 900
    smaller = split(present, {"a": 3.0}, 1_000.0, PROMISE)
    assert smaller.projected_watts <= 1_000.0


def test_no_small_model_is_starved_by_clocks_that_stay() -> None:
    small = [replace(PREFILL, name="small", model="b", present_mhz=100), replace(DECODE, name="b", model="b")]
    large = [replace(each, replicas=400, present_mhz=600) for each in (PREFILL, DECODE)]
    budget = 400 * 1_120.0 + 1_120.0
    found = split([*large, *small], {"a": 1_000.0, "b": 4.9}, budget, PROMISE)
    assert found.goodput_per_second == pytest.approx(1_004.9)
    assert found.shares["small"].sm_clock_mhz > 100


def test_where_nothing_is_known_of_the_load_the_choice_stays() -> None:
    points = {each.name: points_of(each, PROMISE) for each in (PREFILL, DECODE)}
    low = {name: of[0] for name, of in points.items()}
    assert with_fewest_late([PREFILL, DECODE], points, low, {"a": inf}, 5_000.0, PROMISE) == low


def test_a_nearly_full_batch_is_late_as_a_queue_of_prompts_is() -> None:
    points = {"decode": points_of(DECODE, PROMISE)}
    capacity = points["decode"][0].option.requests_per_second
    chosen = {"decode": points["decode"][0]}

    def late(rate: float, slots: float) -> float:
        own = [replace(DECODE, slots=slots)]
        return 1.0 - kept_per_second(own, chosen, {"a": rate}, PROMISE) / rate

    assert late(0.5 * capacity, 60.0) < 1e-3
    assert 0.05 < late(0.95 * capacity, 60.0) < 0.9
    assert late(0.95 * capacity, 4.0) > late(0.95 * capacity, 60.0)
    assert late(3.0 * capacity, 60.0) == 1.0
    assert exp(-1.0) < late(capacity, 60.0) < 1.0
