"""Workers: take a key, have its controller reconcile it, and put it back with back-off when that fails."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Protocol

from heliotrope.errors import HeliotropeError
from heliotrope_operator.errors import ConflictError, NotLeaderError
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.workqueue import WorkQueue
from heliotrope_operator.writes import Leadership

_log = logging.getLogger(__name__)

RECONCILE_TIMEOUT_S = 45.0
BEAT_S = 5.0
HEARTBEAT = Key(Kind.HEARTBEAT, "", "")


class Controller(Protocol):
    """Brings one object's reported state up to date."""

    async def reconcile(self, key: Key) -> float | None:
        """Returns the seconds after which to look again; None if only when something changes.

        Raises:
            HeliotropeError: if it has to be tried again.
        """
        ...


class Reconciler:
    """The queue, its workers, and the heartbeat that shows that they work."""

    def __init__(
        self,
        queue: WorkQueue[Key],
        controllers: Mapping[Kind, Controller],
        leadership: Leadership,
        metrics: Metrics,
    ) -> None:
        self._queue = queue
        self._controllers = controllers
        self._leadership = leadership
        self._metrics = metrics
        self._beat = float("-inf")
        self._stopping = False
        self._busy: set[asyncio.Task[object]] = set()

    @property
    def silent_s(self) -> float:
        """Seconds since the heartbeat last came through the queue."""
        return asyncio.get_running_loop().time() - self._beat

    async def keep_beating(self) -> None:
        """Send the heartbeat through the queue until cancelled."""
        self._beat = asyncio.get_running_loop().time()
        while True:
            self._queue.add(HEARTBEAT)
            await asyncio.sleep(BEAT_S)

    async def work(self) -> None:
        """One worker, until cancelled."""
        while not self._stopping:
            key = await self._queue.get()
            task = asyncio.current_task()
            assert task is not None, "a worker is a task"
            self._busy.add(task)
            try:
                await self._process(key)
            finally:
                self._busy.discard(task)
            self._metrics.queue_depth.set(len(self._queue))
            self._metrics.queue_scheduled.set(self._queue.scheduled)

    async def drain(self, workers: Sequence[asyncio.Task[object]], longest_s: float) -> None:
        """End the workers: idle ones at once, the others when their reconcile has ended or time is up."""
        self._stopping = True
        busy = [worker for worker in workers if worker in self._busy]
        for worker in workers:
            if worker not in self._busy:
                worker.cancel()
        if busy:
            await asyncio.wait(busy, timeout=longest_s)

    async def _process(self, key: Key) -> None:
        clock = asyncio.get_running_loop().time
        if key.kind is Kind.HEARTBEAT:
            self._beat = clock()
            self._queue.done(key)
            return
        if not self._leadership.held:
            self._queue.done(key)  # whoever takes over the Lease looks at every object
            return
        controller = self._controllers.get(key.kind)
        if controller is None:
            self._queue.done(key)  # of a part that is switched off
            return
        started = clock()
        try:
            async with asyncio.timeout(RECONCILE_TIMEOUT_S):
                again_after_s = await controller.reconcile(key)
        except NotLeaderError:
            self._queue.done(key)
        except asyncio.CancelledError:
            self._queue.done(key)
            raise
        except Exception as error:  # noqa: BLE001 - a defect in one object's reconcile must not stop the others
            self._failed(key, clock() - started, error)
        else:
            self._metrics.succeeded(key.kind, clock() - started)
            self._queue.done(key, again_after_s=again_after_s)

    def _failed(self, key: Key, seconds: float, error: Exception) -> None:
        conflict = isinstance(error, ConflictError)
        self._metrics.failed(key.kind, seconds, error, conflict=conflict)
        delay_s = self._queue.retry(key)
        if conflict:
            _log.debug("%s has changed meanwhile, again in %.1f s", key, delay_s)
        elif isinstance(error, HeliotropeError | TimeoutError):
            problem = str(error) or f"took longer than {RECONCILE_TIMEOUT_S:.0f} s"
            _log.warning("%s: %s; again in %.1f s", key, problem, delay_s)
        else:
            _log.error("%s: unexpected; again in %.1f s", key, delay_s, exc_info=error)
