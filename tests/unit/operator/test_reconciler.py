"""Workers: what fails comes back, what hangs is cut off, what is not ours to write is left, and a heartbeat tells."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.unit.operator.memory import UNAVAILABLE, Held, metrics

from heliotrope_operator.errors import ConflictError, NotLeaderError
from heliotrope_operator.reconciler import BEAT_S, RECONCILE_TIMEOUT_S, Reconciler
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.workqueue import Backoff, WorkQueue

pytestmark = pytest.mark.looptime

KEY = Key(Kind.CARBON_POLICY, "ns", "green")


class Controller:
    def __init__(self, *outcomes: Exception | float | None, takes_s: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.takes_s = takes_s
        self.times: list[float] = []
        self.ended = 0

    async def reconcile(self, key: Key) -> float | None:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.takes_s)
        self.ended += 1
        outcome = self.outcomes.pop(0) if self.outcomes else None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


class Bench:
    def __init__(self, controller: Controller, *, workers: int = 2) -> None:
        self.queue: WorkQueue[Key] = WorkQueue(capacity=100, rng=random.Random(1), backoff=Backoff(1.0, 60.0))
        self.leadership = Held()
        self.metrics = metrics()
        self.reconciler = Reconciler(self.queue, {Kind.CARBON_POLICY: controller}, self.leadership, self.metrics)
        self.workers = [asyncio.create_task(self.reconciler.work()) for _ in range(workers)]

    def value(self, name: str, **labels: str) -> float:
        return (
            self.metrics.registry.get_sample_value(f"heliotrope_reconcile_{name}", {"kind": KEY.kind, **labels}) or 0.0
        )


@asynccontextmanager
async def running(controller: Controller, **options: int) -> AsyncIterator[Bench]:
    bench = Bench(controller, **options)
    try:
        yield bench
    finally:
        for worker in bench.workers:
            worker.cancel()
        await asyncio.gather(*bench.workers, return_exceptions=True)


async def test_an_object_is_looked_at_again_when_its_controller_says() -> None:
    controller = Controller(30.0, 5.0)
    async with running(controller) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(1_000)

        assert controller.times == pytest.approx([0, 30, 35], abs=0.01)
        assert bench.value("total", outcome="success") == 3
        assert bench.value("duration_seconds_count") == 3
        assert bench.value("last_success_timestamp_seconds") > 0


async def test_failures_come_back_later_and_later_and_a_defect_is_no_end() -> None:
    controller = Controller(UNAVAILABLE, KeyError("a defect"), UNAVAILABLE)
    async with running(controller) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(1_000)

        pauses = [later - earlier for earlier, later in zip(controller.times, controller.times[1:], strict=False)]
        assert len(pauses) == 3
        assert all(ceiling / 2 <= pause <= ceiling for pause, ceiling in zip(pauses, (1, 2, 4), strict=True))
        assert bench.value("errors_total", error="UnavailableError") == 2
        assert bench.value("errors_total", error="KeyError") == 1
        assert bench.value("retries_total") == 3
        assert bench.queue.failures(KEY) == 0


async def test_a_lost_race_is_retried_and_is_no_error() -> None:
    async with running(Controller(ConflictError("changed"))) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(100)

        assert bench.value("total", outcome="conflict") == 1
        assert bench.value("total", outcome="success") == 1
        assert bench.value("errors_total", error="ConflictError") == 0


async def test_a_reconcile_that_hangs_is_cut_off_and_retried() -> None:
    controller = Controller(takes_s=10_000.0)
    async with running(controller, workers=1) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(RECONCILE_TIMEOUT_S + 2)

        assert len(controller.times) == 2
        assert bench.value("errors_total", error="TimeoutError") == 1


async def test_a_replica_that_stands_by_reconciles_nothing_and_keeps_nothing() -> None:
    controller = Controller()
    async with running(controller) as bench:
        bench.leadership.held = False
        bench.queue.add(KEY)
        await asyncio.sleep(10)

        assert controller.times == []
        assert (len(bench.queue), bench.queue.working, bench.queue.scheduled) == (0, 0, 0)


async def test_an_object_whose_write_was_not_ours_to_make_is_left() -> None:
    controller = Controller(NotLeaderError("lost"))
    async with running(controller) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(1_000)

        assert len(controller.times) == 1
        assert bench.value("retries_total") == 0


async def test_the_heartbeat_comes_through_the_queue_also_on_standby() -> None:
    async with running(Controller()) as bench:
        beating = asyncio.create_task(bench.reconciler.keep_beating())
        bench.leadership.held = False
        await asyncio.sleep(100)
        assert bench.reconciler.silent_s <= BEAT_S
        beating.cancel()


async def test_workers_that_are_gone_or_stuck_silence_the_heartbeat() -> None:
    async with running(Controller()) as bench:
        beating = asyncio.create_task(bench.reconciler.keep_beating())
        await asyncio.sleep(100)
        for worker in bench.workers:
            worker.cancel()
        await asyncio.sleep(100)
        assert bench.reconciler.silent_s >= 100
        beating.cancel()


async def test_draining_ends_idle_workers_at_once_and_waits_for_the_busy_ones() -> None:
    controller = Controller(takes_s=2.0)
    async with running(controller, workers=3) as bench:
        clock = asyncio.get_running_loop().time
        bench.queue.add(KEY)
        await asyncio.sleep(0.5)
        other = Key(Kind.CARBON_POLICY, "ns", "other")
        started = clock()
        draining = asyncio.create_task(bench.reconciler.drain(bench.workers, 3.0))
        await asyncio.sleep(0.1)
        bench.queue.add(other)
        await draining

        assert clock() - started == pytest.approx(1.5, abs=0.05)
        assert controller.ended == 1
        assert all(worker.done() for worker in bench.workers)


async def test_draining_does_not_wait_for_ever() -> None:
    async with running(Controller(takes_s=40.0)) as bench:
        bench.queue.add(KEY)
        await asyncio.sleep(0.5)
        started = asyncio.get_running_loop().time()
        await bench.reconciler.drain(bench.workers, 3.0)

        assert asyncio.get_running_loop().time() - started == pytest.approx(3.0, abs=0.05)
