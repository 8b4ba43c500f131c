"""The queue: nothing is lost, nothing is done twice at once, failures wait longer and longer."""

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.operator.virtual import run_virtual

from heliotrope_operator.workqueue import Backoff, WorkQueue

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
    work: WorkQueue[str] = WorkQueue(capacity=100, rng=rng, backoff=Backoff(0.1, 5.0))
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
    # A key that fails for ever is retried for ever; what must not be is one that nobody will look at.
    assert all(key in work._due or key in work._ready or key in in_work for key in unseen), unseen
