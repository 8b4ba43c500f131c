"""Curves of equation 8: the solved break-even against both sides of it, and what they must be monotone in."""

from dataclasses import replace
from itertools import pairwise
from math import isinf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.cache.costs import pressure, recompute, transfer, worthwhile
from heliotrope.cache.crossover import Situation, break_even_tokens, compare
from heliotrope.cache.links import DEFAULT_LINKS, Link, LinkClass, Place, link_class
from heliotrope.engine.profiles import available, load
from heliotrope.errors import InvalidInputError

ENGINES = [load(name) for name in available()]

engines = st.sampled_from(ENGINES)
links = st.builds(
    Link,
    bytes_per_second=st.floats(1e7, 1e12),
    latency_seconds=st.floats(0.0, 0.5),
    network_joules_per_bit=st.floats(0.0, 1e-6),
    sender_joules_per_bit=st.floats(0.0, 1e-8),
    receiver_joules_per_bit=st.floats(0.0, 1e-8),
)
situations = st.builds(
    Situation,
    prefill_duty=st.floats(0.0, 0.9),
    transfers=st.integers(1, 8),
    memory_pressure=st.floats(0.0, 1.0),
    pressure_weight_joules=st.floats(0.0, 1000.0),
    sender_dirt=st.floats(0.0, 20.0),
)
lengths = st.floats(1.0, 200_000.0)
shares = st.floats(0.0, 1.0)


@settings(deadline=None)
@given(engines, links, situations)
def test_the_break_even_divides_what_is_recomputed_from_what_is_moved(e, link, situation) -> None:  # type: ignore[no-untyped-def]
    at = break_even_tokens(e, link, situation)
    if not isinf(at):
        assert compare(e, link, at * 1.01 + 1.0, situation).moves
    if at > 1.0:
        assert not compare(e, link, min(at * 0.99, 1e6), situation).moves


@settings(deadline=None)
@given(engines, links, situations, lengths, st.floats(1.0, 10.0))
def test_what_is_worth_moving_stays_so_when_it_is_longer(e, link, situation, tokens, factor) -> None:  # type: ignore[no-untyped-def]
    if compare(e, link, tokens, situation).moves:
        assert compare(e, link, tokens * factor, situation).moves


@settings(deadline=None)
@given(engines, links, situations, lengths, st.floats(1.0, 100.0))
def test_costs_grow_with_length(e, link, situation, tokens, factor) -> None:  # type: ignore[no-untyped-def]
    short, long = (compare(e, link, n, situation) for n in (tokens, tokens * factor))
    for less, more in (
        (short.moved.seconds, long.moved.seconds),
        (short.moved.joules, long.moved.joules),
        (short.moved_cost_joules, long.moved_cost_joules),
        (short.computed.seconds, long.computed.seconds),
        (short.computed.joules, long.computed.joules),
    ):
        assert less <= more


@settings(deadline=None)
@given(engines, links, situations, st.floats(1.0, 100.0))
def test_a_faster_link_moves_shorter_prefixes(e, link, situation, factor) -> None:  # type: ignore[no-untyped-def]
    faster = replace(link, bytes_per_second=link.bytes_per_second * factor)
    assert break_even_tokens(e, faster, situation) <= break_even_tokens(e, link, situation) * (1 + 1e-9)


@settings(deadline=None)
@given(engines, links, situations, shares, shares)
def test_pressure_and_its_weight_move_longer_prefixes_only(e, link, situation, a, b) -> None:  # type: ignore[no-untyped-def]
    low, high = (break_even_tokens(e, link, replace(situation, memory_pressure=m)) for m in sorted((a, b)))
    assert low <= high * (1 + 1e-9)
    weighted = replace(situation, pressure_weight_joules=situation.pressure_weight_joules + 100.0 * a)
    assert break_even_tokens(e, link, situation) <= break_even_tokens(e, link, weighted) * (1 + 1e-9)


@settings(deadline=None)
@given(engines, links, situations, st.floats(0.0, 0.9), st.floats(0.0, 0.9))
def test_a_busier_receiver_moves_shorter_prefixes(e, link, situation, a, b) -> None:  # type: ignore[no-untyped-def]
    idle, busy = (break_even_tokens(e, link, replace(situation, prefill_duty=d)) for d in sorted((a, b)))
    assert busy <= idle * (1 + 1e-9)


@settings(deadline=None)
@given(engines, links, lengths, st.floats(1.0, 800.0), st.floats(1.0, 800.0), st.floats(1.0, 800.0))
def test_emissions_saved_grow_with_the_receivers_intensity_and_fall_with_the_senders(  # type: ignore[no-untyped-def]
    e, link, tokens, sender, one, other
) -> None:
    moved, computed = transfer(tokens, e.kv_bytes_per_token, link), recompute(e, 0.0, tokens)
    low, high = sorted((one, other))

    def saved(sender_g_per_kwh: float, receiver_g_per_kwh: float) -> float:
        grams = moved.grams_co2e(sender_g_per_kwh=sender_g_per_kwh, receiver_g_per_kwh=receiver_g_per_kwh)
        return receiver_g_per_kwh * computed.joules / 3.6e6 - grams

    assert saved(high, sender) <= saved(low, sender) + 1e-12
    if computed.joules > moved.receiver_joules + 0.5 * moved.network_joules:
        assert saved(sender, low) <= saved(sender, high) + 1e-12
    # The same in units of the receiver's joules.
    compared = compare(e, link, tokens, Situation(sender_dirt=sender / one))
    assert saved(sender, one) * 3.6e6 / one == pytest.approx(
        compared.computed.joules - compared.moved_cost_joules, rel=1e-6, abs=1e-6
    )
    cleaner, dirtier = (break_even_tokens(e, link, Situation(sender_dirt=ci / sender)) for ci in (low, high))
    assert cleaner <= dirtier * (1 + 1e-9)


def test_joules_of_a_hand_worked_transfer() -> None:
    # 1000 tokens of 131,072 bytes: 131.072 MB, 1.048576 Gbit.
    link = Link(1e9, 0.01, 1e-9, 2e-9, 3e-9)
    moved = transfer(1000.0, 131_072.0, link)
    assert moved.seconds == pytest.approx(0.141072)
    assert moved.network_joules == pytest.approx(1.048576)
    assert moved.joules == pytest.approx(6.291456)
    # 360 g/kWh is 1e-4 g/J: (2 + 0.5) · 1.048576 J at the sender, (3 + 0.5) at the receiver of twice the intensity.
    grams = moved.grams_co2e(sender_g_per_kwh=360.0, receiver_g_per_kwh=720.0, receiver_pue=1.5)
    assert grams == pytest.approx(1.048576e-4 * (2.5 + 3.5 * 2.0 * 1.5))
    assert transfer(0.0, 131_072.0, link).seconds == 0.0


def test_attention_makes_later_tokens_dearer() -> None:
    e = ENGINES[0]
    assert recompute(e, 8000.0, 9000.0).joules > recompute(e, 0.0, 1000.0).joules
    whole, parts = recompute(e, 0.0, 9000.0), (recompute(e, 0.0, 4000.0), recompute(e, 4000.0, 9000.0))
    assert whole.joules == pytest.approx(sum(part.joules for part in parts))
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))


def test_unknown_pressure_decides_against_a_transfer_where_it_is_charged() -> None:
    e, link = ENGINES[0], DEFAULT_LINKS[LinkClass.NODE]
    moved, computed = transfer(9000.0, e.kv_bytes_per_token, link), recompute(e, 0.0, 9000.0)
    unknown = float(pressure(float("nan"), 100.0, 1000.0))
    assert worthwhile(moved, computed, 0.0, unknown)
    assert not worthwhile(moved, computed, 1.0, unknown)
    assert pressure(900.0, 200.0, 1000.0) == 1.0


def test_links_from_near_to_far() -> None:
    here = Place("n", "k", "r")
    assert link_class(here, Place("n", None, None)) is LinkClass.NODE
    assert link_class(here, Place("m", "k", "r")) is LinkClass.RACK
    assert link_class(here, Place("m", "j", "r")) is LinkClass.REGION
    assert link_class(here, Place("m", "k", "s")) is LinkClass.WAN
    assert link_class(here, Place("m", "k", None)) is None
    assert link_class(Place(), Place()) is None
    near_to_far = [DEFAULT_LINKS[kind] for kind in LinkClass]
    for near, far in pairwise(near_to_far):
        assert near.bytes_per_second > far.bytes_per_second
        assert near.latency_seconds < far.latency_seconds
        assert near.network_joules_per_bit < far.network_joules_per_bit


@pytest.mark.parametrize(
    "field", ["bytes_per_second", "latency_seconds", "network_joules_per_bit", "sender_joules_per_bit"]
)
@pytest.mark.parametrize("value", [-1.0, float("nan")])
def test_links_that_cannot_be_are_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidInputError, match=field):
        replace(DEFAULT_LINKS[LinkClass.RACK], **{field: value})
