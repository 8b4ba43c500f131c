"""Transfers that share links."""

from collections.abc import Callable
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine import Engine, ExternalKv, KvSource, Request, Sequence
from heliotrope_sim.engine.network import Flow, Network, Port, end_times

MS = 1_000_000
ENDS = ("out of a", "out of b", "into c", "into d")


def silent(end_ns: int) -> None:
    """Nobody listens."""


def flow(flowing_ns: int, alone_ns: int, *ends: str) -> Flow:
    return Flow(flowing_ns, flowing_ns, alone_ns, ends, flowing_ns + alone_ns, silent)


FLOWS = st.lists(
    st.builds(flow, st.integers(0, 100), st.integers(0, 100), st.sampled_from(ENDS[:2]), st.sampled_from(ENDS[2:])),
    min_size=1,
    max_size=7,
)


@given(FLOWS)
@settings(deadline=None)
def test_none_is_faster_for_another_ones_coming(flows: list[Flow]) -> None:
    together = end_times(flows)
    for gone in range(len(flows)):
        without = end_times(flows[:gone] + flows[gone + 1 :])
        # Floats are rounded up, so that two sums of one value may be one ns apart.
        assert all(a >= b - 1 for a, b in zip(together[:gone] + together[gone + 1 :], without, strict=True))
    for each, end in zip(flows, together, strict=True):
        assert end >= each.flowing_ns + each.alone_ns


@given(FLOWS)
@settings(deadline=None)
def test_a_link_moves_what_it_can_and_no_more(flows: list[Flow]) -> None:
    """On one shared end, busy time is the sum of the work of each busy period."""
    one = [flow(each.flowing_ns, each.alone_ns, "the link") for each in flows]
    free = 0
    for each in sorted(one, key=lambda f: f.flowing_ns):
        free = max(free, each.flowing_ns) + each.alone_ns
    last = max(each.flowing_ns for each in one)
    assert max(end_times(one)) == free or max(end_times(one)) == last


def test_equal_shares_of_the_more_crowded_end() -> None:
    assert end_times([flow(0, 10, "x")]) == [10]
    assert end_times([flow(0, 10, "x"), flow(0, 10, "x")]) == [20, 20]
    # The second has 5 ns for itself, when the first has gone.
    assert end_times([flow(0, 10, "x"), flow(0, 15, "x")]) == [20, 25]
    # Alone up to 6; then 4 and 4 of each in 8 ns; 6 are left.
    assert end_times([flow(0, 10, "x"), flow(6, 10, "x")]) == [14, 20]
    # Two at the source, three at one target.
    crowded = [flow(0, 6, "x", "t"), flow(0, 6, "x", "u"), flow(0, 6, "y", "t"), flow(0, 6, "z", "t")]
    assert end_times(crowded) == [18, 12, 18, 18]
    assert end_times([flow(0, 10, "x"), flow(0, 10, "y"), flow(0, 10)]) == [10, 10, 10]


def test_the_order_of_telling_changes_nothing() -> None:
    asked = [(0, 3, 20, ENDS[0], ENDS[2]), (5, 0, 12, ENDS[0], ENDS[3]), (9, 1, 7, ENDS[1], ENDS[3])]
    found = set()
    for order in permutations(range(3)):
        network, begun = Network(), {}
        for i in order:
            start, latency, alone, *ends = asked[i]
            begun[i] = network.begin(start, latency, alone, ends, silent)
        found.add(tuple(begun[i].end_ns for i in range(3)))
    assert len(found) == 1


def test_those_that_are_slowed_down_are_told_and_what_was_taken_stays() -> None:
    network, told = Network(), []
    first = network.begin(0, 0, 10, ["x"], told.append)
    network.begin(5, 0, 10, ["x"], silent)
    assert told == [15] == [first.end_ns]
    network.take(first)
    network.begin(6, 0, 100, ["x"], silent)
    assert told == [15]
    assert first.end_ns == 15


def test_what_is_broken_off_makes_room() -> None:
    network, told = Network(), []
    kept = network.begin(0, 0, 10, ["x"], told.append)
    gone = network.begin(0, 0, 1_000, ["x"], silent)
    assert told == [20]
    network.break_off(gone, 8)
    assert kept.end_ns == 14, "4 ns of work done by then, 6 are left"
    network.take(kept)
    assert network.flows == []


def test_a_network_does_not_grow_with_what_has_been() -> None:
    network = Network()
    for i in range(1_000):
        network.take(network.begin(20 * i, 0, 10, ["x"], silent))
    assert network.flows == []


def test_nor_while_somebody_does_not_take_what_came() -> None:
    network = Network()
    waits = network.begin(0, 0, 10, ["x"], silent)
    for i in range(1, 200):
        network.take(network.begin(20 * MS * i, 0, 10 * MS, ["x"], silent))
    assert waits.end_ns == 10
    assert len(network.flows) <= 1


def test_many_at_once_on_one_link() -> None:
    network = Network()
    begun = [network.begin(i, 0, 1_000, ["x"], silent) for i in range(100)]
    assert max(flow.end_ns for flow in begun) == 100 * 1_000
    assert begun == sorted(begun, key=lambda flow: flow.end_ns)


def load(engine: Engine, name: str, links: tuple[str, ...], now_ns: int = 0, hash_: int = 1) -> Sequence:
    external = ExternalKv(16, 12 * MS, 1_001, KvSource.P2P, 10 * MS, links)
    return engine.submit(Request(name, 20, 1, tuple(range(hash_, hash_ + 5)), external), now_ns)


def settle(engine: Engine) -> None:
    now = engine.energy.settled_ns
    while (work := engine.next_work_ns) is not None:
        now = max(now, work, engine.energy.settled_ns)
        engine.step(now)


def engines(model: EngineModel, count: int, told: Callable[[], None] = lambda: None) -> list[Engine]:
    network = Network()
    made = [Engine(model) for _ in range(count)]
    for i, engine in enumerate(made):
        engine.share_links(Port(network, 7 * i), told)
    return made


def test_two_readers_of_one_source_wait_twice_as_long_for_its_bytes(model: EngineModel) -> None:
    told: list[int] = []
    a, b = engines(model, 2, lambda: told.append(1))
    one = load(a, "one", ("out of s", "into a"))
    a.step(0)
    assert a.next_work_ns == 12 * MS
    assert not told
    other = load(b, "other", ("out of s", "into b"))
    b.step(0)
    assert told
    # Latency is nobody's to share; the clocks are 7 ns apart.
    assert (one.loaded_ns, other.loaded_ns) == (22 * MS - 7, 22 * MS - 7)
    assert a.next_work_ns == one.loaded_ns
    for engine in (a, b):
        settle(engine)
        assert engine.transfers.picojoules(10**12) == 1_001
        assert engine.external.load_ns == pytest.approx(22 * MS, abs=7)
    assert one.scheduled_ns == one.loaded_ns


def test_loads_of_one_engine_share_its_end_and_an_abort_gives_it_back(model: EngineModel) -> None:
    (engine,) = engines(model, 1)
    kept = load(engine, "kept", ("out of s", "into a"))
    gone = load(engine, "gone", ("out of t", "into a"), hash_=11)
    engine.step(0)
    assert kept.loaded_ns == gone.loaded_ns == 22 * MS
    assert engine.transfers.picojoules(6 * MS) == 2 * (1_001 * 6 // 22)
    engine.abort("gone", 6 * MS)
    # 2 ms of latency, 4 ms at half speed, 8 ms alone.
    assert kept.loaded_ns == engine.next_work_ns == 14 * MS
    settle(engine)
    assert engine.transfers.picojoules(10**12) == 2 * 1_001


def test_a_load_that_is_given_up_leaves_the_link_to_others(model: EngineModel) -> None:
    (engine,) = engines(model, 1)
    kept = load(engine, "kept", ("into a",))
    load(engine, "lost", ("into a",), hash_=11)
    engine.step(0)
    assert engine.give_up_load("lost", 2 * MS)
    assert kept.loaded_ns == 12 * MS
    settle(engine)
    assert kept.external_tokens == 16


@given(st.lists(st.tuples(st.integers(0, 5 * MS), st.sampled_from(["load", "load", "abort", "read"])), max_size=25))
@settings(deadline=None)
def test_metered_energy_only_grows_while_ends_move(model: EngineModel, events: list[tuple[int, str]]) -> None:
    (engine,) = engines(model, 1)
    now, before, everyone = 0, 0, []
    for i, (gap, what) in enumerate(events):
        now = max(now + gap, engine.energy.settled_ns)
        if what == "load":
            everyone.append(load(engine, str(i), ("into a",), now, hash_=10 * i + 10))
        elif what == "abort" and everyone:
            engine.abort(everyone[i % len(everyone)].request.request_id, now)
        engine.step(now)
        present = engine.transfers.picojoules(now)
        assert present >= before
        before = present
    settle(engine)
    assert engine.transfers.picojoules(10**15) == sum(s.load_picojoules for s in everyone)
