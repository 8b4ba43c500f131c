"""Pulls that share links: against the formula, and never faster for more of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.cache.test_plans import ALL, LARGE, LINKS, view

from heliotrope.cache.crowd import SIDES, Crowd, sharers, side_of
from heliotrope.cache.links import LinkClass, Place, Tier, link_class
from heliotrope.cache.plans import KvPlans, kv_pool, plans_of
from heliotrope.units import bits_from_bytes

NODE, NETWORK = side_of(LinkClass.NODE), side_of(LinkClass.REGION)
PLACES = [Place("n1", None, "r"), Place("n1", None, "r"), Place("n2", None, "r"), Place("n3", None, "s")]
POOL = kv_pool([LARGE] * 4, PLACES, [True] * 4, LINKS, [None, None, Tier.CPU, None])
COUNTS = st.lists(st.integers(0, 6), min_size=4 * SIDES, max_size=4 * SIDES).map(
    lambda given: np.array(given, dtype=np.float64).reshape(SIDES, 4)
)


def plans(crowd: Crowd | None) -> KvPlans:
    """The first is busy and caches most of the prompt; the third has some of it in CPU memory."""
    busy = view([8000.0, 0.0, 64.0, 0.0], [8000.0, 0.0, 2000.0, 0.0], running=[32.0, 1.0, 1.0, 1.0])
    return plans_of(replace(busy, crowd=crowd), POOL, 9000.0, ALL)


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    plans(None)


def by_way(found: KvPlans) -> dict[tuple[int, int | None], float]:
    ways = zip(found.rows.tolist(), found.sources, strict=True)
    return dict(zip(ways, found.transfer_seconds.tolist(), strict=True))


def test_none_on_their_way_is_nothing_known() -> None:
    assert by_way(plans(Crowd.none(4))) == by_way(plans(None)) != {}
    assert side_of(LinkClass.WAN) == side_of(LinkClass.RACK) == NETWORK != NODE


@given(COUNTS, COUNTS)
@settings(max_examples=60, deadline=None)
def test_each_takes_the_rate_that_the_more_crowded_end_leaves(
    into: np.ndarray[tuple[int, int], np.dtype[np.float64]], out: np.ndarray[tuple[int, int], np.dtype[np.float64]]
) -> None:
    crowd = Crowd(into, out)
    alone = plans(None)
    joules = dict(zip(by_way(alone), alone.transfer_joules.tolist(), strict=True))
    found = plans(crowd)
    for (row, source), seconds in by_way(found).items():
        if source is None:
            continue
        kind = link_class(PLACES[row], PLACES[source])
        assert kind is not None
        link = LINKS.between[kind]
        held = float(found.cached_tokens[found.rows.tolist().index(row)]) - (64.0 if row == 2 else 0.0)
        size_bytes = held * LARGE.kv_bytes_per_token
        shared = sharers(side_of(kind), crowd, row, crowd, source)
        assert seconds == pytest.approx(link.latency_seconds + size_bytes * shared / link.bytes_per_second)
    # Sharing takes time, not joules.
    for way, drawn in zip(by_way(found), found.transfer_joules.tolist(), strict=True):
        assert way not in joules or drawn == pytest.approx(joules[way])
    assert bits_from_bytes(1.0) == 8.0


@given(COUNTS, COUNTS, COUNTS, COUNTS)
@settings(max_examples=80, deadline=None)
def test_more_pulls_make_none_faster_and_no_plan_appear(
    into: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    out: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    more_into: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    more_out: np.ndarray[tuple[int, int], np.dtype[np.float64]],
) -> None:
    few, many = plans(Crowd(into, out)), plans(Crowd(into + more_into, out + more_out))
    before, after = by_way(few), by_way(many)
    assert {row for row, _ in after} <= {row for row, _ in before}
    for way, seconds in after.items():
        if way in before:
            assert seconds >= before[way]
    saved = [dict(zip(p.rows.tolist(), p.saved_joules.tolist(), strict=True)) for p in (few, many)]
    assert all(saved[0][row] >= joules for row, joules in saved[1].items())


def test_a_pull_that_comes_too_late_is_no_plan() -> None:
    way = (2, 0)
    assert way in by_way(plans(None))
    crowd = Crowd.none(4)
    crowd.out[NETWORK, 0] = 1e6
    found = by_way(plans(crowd))
    assert way not in found
    assert (1, 0) in found, "on the same host blocks take another link"
