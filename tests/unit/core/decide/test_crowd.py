"""Pairs whose transfers share links with others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, THREE, pool
from tests.unit.core.decide.test_phases import LINK, LONG, busy, idle, paired, pairs_of

from heliotrope.cache.crowd import Crowd, side_of
from heliotrope.cache.links import LinkClass
from heliotrope.decide.compared import Planned
from heliotrope.decide.estimate import estimate
from heliotrope.decide.standing import Standing

NETWORK = side_of(LinkClass.REGION)


def crowd(n: int, *, into: float = 0.0, out: float = 0.0) -> Crowd:
    made = Crowd.none(n)
    made.into[NETWORK] = into
    made.out[NETWORK] = out
    return made


@given(st.integers(0, 20), st.integers(0, 20))
@settings(max_examples=30, deadline=None)
def test_a_pairs_transfer_takes_what_the_more_crowded_end_leaves(into: int, out: int) -> None:
    decode, prefill = busy(), idle(["a"])
    made = paired(
        decode,
        prefill,
        standing=Standing(crowd=crowd(1, into=into)),
        prefill_standing=Standing(crowd=crowd(1, out=out)),
    )
    alone = paired(decode, prefill)
    if made.pairs is None:
        return
    flowing = 8_000.0 * ENGINE.kv_bytes_per_token / LINK.bytes_per_second
    assert made.transfer_seconds[-1] == pytest.approx(LINK.latency_seconds + flowing * (1 + max(into, out)))
    assert made.transfer_joules[-1] == alone.transfer_joules[-1]


def test_more_transfers_make_no_pair_faster_and_at_last_none() -> None:
    decode, prefill = pool(["c", "c"], THREE, running=28.0, waiting=4.0, waiting_tokens=20_000.0), idle(["c", "c"])
    last = 0.0
    for others in (0, 1, 10, 100):
        made = paired(decode, prefill, prefill_standing=Standing(crowd=crowd(2, out=others)))
        if made.pairs is None:
            assert others > 0
            continue
        e = estimate(LONG, made, POLICY, NOW)
        ttft = float(np.min(e.ttft_seconds[-len(made.pairs) :]))
        assert ttft >= last
        last = ttft
    none = paired(decode, prefill, prefill_standing=Standing(crowd=crowd(2, out=1e9)))
    assert none.pairs is None


def test_what_is_not_known_is_as_it_was() -> None:
    links = pairs_of(busy(), idle())
    assert links.crowded(None, None) is links.planes
    np.testing.assert_array_equal(links.crowded(crowd(1), None), links.planes)


def test_blocks_of_a_pair_move_after_its_prefill() -> None:
    made = paired(busy(), idle())
    assert made.pairs is not None
    e = estimate(LONG, made, POLICY, NOW)
    pair, alone = Planned(made, e, len(made) - 1), Planned(made, e, 0)
    assert alone.transfer_begins_seconds == 0.0
    assert alone.kv_from is None
    assert pair.kv_from == "p0"
    assert 0.0 < pair.transfer_begins_seconds < e.ttft_seconds[-1]
