"""The queue: nothing is lost, nothing is done twice at once, failures wait longer and longer."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.virtual import run_virtual

from heliotrope_operator.workqueue import PASSED_OVER, Backoff, WorkQueue

pytestmark = pytest.mark.looptime


def queue(capacity: int = 1_000, **options: object) -> WorkQueue[str]:
    return WorkQueue(capacity=capacity, rng=random.Random(1), **options)  # type: ignore[arg-type]


async def wait_of(work: WorkQueue[str]) -> float:
    """How long the next key takes to come out; it is taken."""
    clock = asyncio.get_running_loop().time
    started = clock()
    await work.get()
    return clock() - started


async def test_keys_come_out_once_in_the_order_of_their_first_adding() -> None:
    work = queue()
    work.add_all(["a", "b", "a", "c", "b"])

    assert [await work.get() for _ in range(3)] == ["a", "b", "c"]
    assert len(work) == 0


async def test_a_key_added_in_work_comes_again_only_after_it() -> None:
    work = queue()
    work.add("a")
    await work.get()
    work.add("a")
    work.add("a")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await work.get()
    work.done("a")
    assert await work.get() == "a"
    work.done("a")
    assert len(work) == 0


async def test_a_waiting_worker_is_woken() -> None:
    work = queue()
    waiting = asyncio.create_task(wait_of(work))
    await asyncio.sleep(5)
    work.add("a")

    assert await waiting == pytest.approx(5)


async def test_failures_wait_longer_each_time_and_start_over_after_a_success() -> None:
    work = queue(backoff=Backoff(first_s=1.0, longest_s=20.0))
    work.add("a")
    await work.get()
    for ceiling in (1, 2, 4, 8, 16, 20, 20, 20):
        told = work.retry("a")
        waited = await wait_of(work)
        assert waited == pytest.approx(told, abs=1e-3)
        assert ceiling / 2 <= waited <= ceiling

    work.done("a", again_after_s=0)
    await work.get()

    assert work.retry("a") <= 1


def test_the_jitter_of_many_keys_spreads_over_the_upper_half() -> None:
    backoff, rng = Backoff(first_s=1.0, longest_s=60.0), random.Random(3)

    delays = [backoff.delay_s(4, rng) for _ in range(500)]

    assert min(delays) < 4.2
    assert max(delays) > 7.8
    assert 4 <= min(delays) <= max(delays) <= 8


def test_the_longest_delay_holds_for_any_number_of_failures() -> None:
    assert Backoff(1.0, 60.0).delay_s(10_000, random.Random(1)) <= 60.0


async def test_a_reason_to_look_now_overrides_a_later_time() -> None:
    work = queue()
    work.add("a")
    await work.get()
    work.done("a", again_after_s=1_000)
    assert (len(work), work.scheduled) == (0, 1)
    work.add("a")

    assert await wait_of(work) == 0
    work.done("a")
    with pytest.raises(TimeoutError):  # the later time is void
        async with asyncio.timeout(10_000):
            await work.get()


async def test_a_time_that_comes_while_the_key_is_worked_on_has_been_replaced() -> None:
    work = queue()
    work.add("a")
    await work.get()
    work.done("a", again_after_s=10)
    work.add("a")
    await work.get()
    await asyncio.sleep(20)
    work.done("a", again_after_s=5)

    assert await wait_of(work) == pytest.approx(5)


async def test_a_full_queue_drops_new_keys_says_so_and_keeps_the_old() -> None:
    dropped: list[None] = []
    work = queue(2, on_drop=lambda: dropped.append(None))

    assert [work.add(key) for key in "abcab"] == [True, True, False, True, True]
    assert len(dropped) == 1
    assert await work.get() == "a"
    assert work.add("c") is False  # a key in work may come back, so it keeps its place
    assert work.add("a") is True
    work.done("a")
    assert [await work.get(), await work.get()] == ["b", "a"]


async def test_what_a_cancelled_worker_was_woken_for_goes_to_another() -> None:
    work = queue()
    first, second = asyncio.create_task(work.get()), asyncio.create_task(work.get())
    await asyncio.sleep(0)
    work.add("a")
    first.cancel()  # after it was woken, before it has run

    async with asyncio.timeout(1):
        assert await second == "a"


async def test_times_that_are_overridden_again_and_again_take_no_memory() -> None:
    work = queue()
    for _ in range(2_000):
        work.add("a")
        await work.get()
        work.done("a", again_after_s=100_000)

    assert len(work._heap) < 200


def by_letter(key: str) -> int:
    """A lane for each first letter."""
    return ord(key[0]) - ord("a")


async def test_an_earlier_lane_goes_first_and_within_one_whoever_waits_longest() -> None:
    work = queue(lane=by_letter)
    work.add_all(["c1", "b1", "c2", "a1", "b2", "a2"])

    assert [await work.get() for _ in range(6)] == ["a1", "a2", "b1", "b2", "c1", "c2"]


async def test_a_burst_in_a_limited_lane_leaves_a_worker_for_the_others() -> None:
    work = queue(lane=by_letter, limits={1: 3})
    work.add_all([f"b{n}" for n in range(1_000)])
    took: list[float] = []

    async def worker() -> None:
        while True:
            key = await work.get()
            if key == "a":
                took.append(asyncio.get_running_loop().time() - added)
            await asyncio.sleep(30.0 if key[0] == "b" else 0.0)
            work.done(key)

    added = 100.0
    workers = [asyncio.create_task(worker()) for _ in range(4)]
    started = asyncio.get_running_loop().time()
    await asyncio.sleep(100.0)
    added = asyncio.get_running_loop().time()
    assert work.working == 3
    work.add("a")
    await asyncio.sleep(1.0)
    assert took == [0.0]
    while len(work) or work.working:
        await asyncio.sleep(1.0)
    # Nothing stood still meanwhile: three at a time, all of them.
    assert asyncio.get_running_loop().time() - started == pytest.approx(30.0 * 1_000 / 3, rel=0.01)
    for each in workers:
        each.cancel()


async def test_a_lane_that_was_passed_over_often_enough_has_its_turn() -> None:
    work = queue(lane=by_letter)
    work.add("b")
    order = []
    for n in range(3 * PASSED_OVER):
        work.add_all([f"a{n}", f"a{n}x"])
        key = await work.get()
        order.append(key)
        work.done(key)

    assert order.index("b") == PASSED_OVER


async def test_added_again_a_waiting_key_goes_over_to_an_earlier_lane_but_never_to_a_later_one() -> None:
    lanes = {"x": 2, "y": 1}
    work = queue(lane=lambda key: lanes[key])
    work.add_all(["y", "x"])
    lanes["x"], lanes["y"] = 0, 5
    work.add_all(["x", "y"])
    lanes["z"] = 2
    work.add("z")

    assert [await work.get() for _ in range(3)] == ["x", "y", "z"]


async def test_a_key_that_comes_back_comes_in_the_lane_that_it_has_then() -> None:
    lanes = {"x": 0, "y": 1}
    work = queue(lane=lambda key: lanes[key])
    work.add("x")
    await work.get()
    work.add_all(["x", "y"])
    lanes["x"] = 2
    work.done("x")

    assert [await work.get(), await work.get()] == ["y", "x"]


Step = tuple[float, str]


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(st.tuples(st.floats(0, 5), st.sampled_from("abcdef")), max_size=60),
    seed=st.integers(0, 1_000_000),
    workers=st.integers(1, 4),
)
def test_every_adding_is_followed_by_a_reconcile_and_no_key_has_two_workers(
    steps: list[Step], seed: int, workers: int
) -> None:
    run_virtual(_check(steps, seed, workers))


async def _check(steps: list[Step], seed: int, workers: int) -> None:
    rng = random.Random(seed)
    work: WorkQueue[str] = WorkQueue(
        capacity=100,
        rng=rng,
        backoff=Backoff(0.1, 5.0),
        lane=lambda key: rng.choice((by_letter(key) % 3, 0)),
        limits={2: 1},
    )
    in_work: set[str] = set()
    unseen: dict[str, int] = {}
    """Addings since the key was last taken."""

    async def worker() -> None:
        while True:
            key = await work.get()
            assert key not in in_work, "two workers on one key"
            in_work.add(key)
            unseen.pop(key, None)
            await asyncio.sleep(rng.choice((0.0, 0.0, rng.uniform(0, 3))))
            in_work.remove(key)
            match rng.randrange(4):
                case 0:
                    unseen[key] = unseen.get(key, 0) + 1  # a failure is a reason to look again
                    work.retry(key)
                case 1:
                    work.done(key, again_after_s=rng.uniform(0, 500))
                case _:
                    work.done(key)

    tasks = [asyncio.create_task(worker()) for _ in range(workers)]
    for pause, key in steps:
        await asyncio.sleep(pause)
        unseen[key] = unseen.get(key, 0) + 1
        work.add(key)
        if rng.random() < 0.1:
            victim = rng.randrange(workers)
            if not in_work:  # only idle workers are ended early
                tasks[victim].cancel()
                tasks.append(asyncio.create_task(worker()))
    await asyncio.sleep(200)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert not [each for each in results if isinstance(each, AssertionError)]
    assert work._taken.total() == work.working
    # A key that fails for ever is retried for ever; what must not be is one that nobody will look at.
    assert all(key in work._due or key in work._ready or key in in_work for key in unseen), unseen
