"""The queue in front of a pool that sleeps: bounds, order, turns, and that nothing is ever lost or answered twice."""

import asyncio
from collections import Counter, defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.demand.holding import BURST, DROPS, End, Flow, Held, HoldQueue, HoldSettings


class Bench:
    """A queue with a clock and a gate that a test moves."""

    def __init__(self, settings: HoldSettings) -> None:
        self.now_s = 0.0
        self.closed: set[str] = set()
        self.open = False
        self.gone: list[str] = []
        self.refused: list[tuple[str, End]] = []
        self.queue: HoldQueue[str] = HoldQueue(
            settings,
            is_open=lambda: self.open,
            can_go=lambda held: held.flow.model not in self.closed,
            go=lambda held: self.gone.append(held.what),
            refuse=lambda held, end: self.refused.append((held.what, end)),
            monotonic=lambda: self.now_s,
        )

    def offer(self, what: str, model: str = "m", tenant: str = "", body_bytes: int = 10) -> Held[str] | End:
        return self.queue.offer(what, Flow(model, tenant), body_bytes)


def test_nothing_goes_before_an_engine_is_awake_then_all_in_order() -> None:
    bench = Bench(HoldSettings())
    for i in range(5):
        bench.offer(str(i))
    assert bench.queue.look() == 0
    bench.open = True
    assert bench.queue.look() == 5
    assert bench.gone == ["0", "1", "2", "3", "4"]
    assert (len(bench.queue), bench.queue.held_bytes, bench.queue.ends) == (0, 0, Counter({End.RELEASED: 5}))


def test_flows_take_turns() -> None:
    bench = Bench(HoldSettings())
    for i in range(3):
        bench.offer(f"a{i}", tenant="a")
    bench.offer("b0", tenant="b")
    bench.offer("c0", model="other")
    bench.open = True
    bench.queue.look()
    assert bench.gone == ["a0", "b0", "c0", "a1", "a2"]


def test_a_model_that_cannot_go_yet_keeps_no_other_waiting() -> None:
    bench = Bench(HoldSettings())
    bench.offer("big", model="big")
    bench.offer("small", model="small")
    bench.open, bench.closed = True, {"big"}
    assert bench.queue.look() == 1
    assert bench.gone == ["small"]
    bench.closed = set()
    bench.queue.look()
    assert bench.gone == ["small", "big"]


def test_a_burst_leaves_the_rest_for_the_next_turn() -> None:
    bench = Bench(HoldSettings())
    for i in range(BURST + 3):
        bench.offer(str(i))
    bench.open = True
    assert bench.queue.look() == BURST
    assert bench.queue.look() == 3


@pytest.mark.parametrize(
    ("settings", "end"),
    [(HoldSettings(max_requests=2), End.FULL_REQUESTS), (HoldSettings(max_bytes=29), End.FULL_BYTES)],
)
def test_what_does_not_fit_is_refused_at_once_and_a_leaver_makes_room(settings: HoldSettings, end: End) -> None:
    bench = Bench(settings)
    first = bench.offer("0")
    bench.offer("1")
    assert bench.offer("2") is end
    assert isinstance(first, Held)
    assert bench.queue.left(first)
    assert not bench.queue.left(first), "it has left already"
    assert isinstance(bench.offer("3"), Held)
    assert bench.queue.ends[End.LEFT] == 1


def test_the_oldest_expire_first_and_no_other_does() -> None:
    bench = Bench(HoldSettings(ttl_s=10.0))
    bench.offer("old")
    bench.now_s = 5.0
    bench.offer("young")
    assert bench.queue.held_by(str.upper) == {"M": (2, 5.0)}
    bench.now_s = 10.0
    bench.queue.look()
    assert bench.refused == [("old", End.EXPIRED)]
    assert len(bench.queue) == 1


def test_draining_refuses_what_waits_and_what_comes() -> None:
    bench = Bench(HoldSettings())
    bench.offer("0")
    bench.queue.drain()
    assert bench.refused == [("0", End.DRAINING)]
    assert bench.offer("1") is End.DRAINING


async def test_run_lets_go_soon_after_an_engine_wakes_and_idles_without_requests() -> None:
    bench = Bench(HoldSettings())
    task = asyncio.create_task(bench.queue.run())
    bench.offer("0")
    await asyncio.sleep(0)
    assert bench.gone == []
    bench.open = True
    async with asyncio.timeout(5.0):
        while not bench.gone:
            await asyncio.sleep(0.01)
    bench.offer("1")
    async with asyncio.timeout(5.0):
        while len(bench.gone) < 2:
            await asyncio.sleep(0.01)
    task.cancel()


OFFER = st.tuples(st.just("offer"), st.sampled_from("abc"), st.integers(0, 40))
STEP = st.one_of(
    OFFER,
    OFFER,
    st.tuples(st.just("leave"), st.integers(0, 30)),
    st.tuples(st.just("look"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.0, 7.0)),
)


@given(st.lists(STEP, max_size=60))
def test_every_request_ends_exactly_once_within_bounds_and_in_its_flows_order(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    settings = HoldSettings(max_requests=6, max_bytes=100, ttl_s=10.0)
    bench = Bench(settings)
    offered: list[Held[str]] = []
    refused = 0
    for step in steps:
        match step:
            case ("offer", model, size):
                held = bench.offer(f"{model}{len(offered)}", model=model, body_bytes=size)
                if isinstance(held, Held):
                    offered.append(held)
                else:
                    refused += 1
            case ("leave", which) if which < len(offered):
                bench.queue.left(offered[which])
            case ("look", is_open):
                bench.open = is_open
                bench.queue.look()
            case ("wait", seconds):
                bench.now_s += seconds
        waiting = [h for h in offered if h.end is None]
        assert len(bench.queue) == len(waiting) <= settings.max_requests
        assert bench.queue.held_bytes == sum(h.body_bytes for h in waiting) <= settings.max_bytes
    bench.queue.drain()
    assert all(h.end is not None for h in offered)
    assert bench.queue.ends.total() == len(offered) + refused
    by_flow = defaultdict(list)
    for what in bench.gone:
        by_flow[what[0]].append(int(what[1:]))
    assert all(numbers == sorted(numbers) for numbers in by_flow.values())
    assert len(bench.refused) == sum(bench.queue.ends[end] for end in DROPS) - refused
