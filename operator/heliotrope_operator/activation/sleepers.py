"""Puts engines to sleep and wakes them, each in its own time.

A pod is marked by a label before its engine is touched, and the mark goes only when the engine is seen awake: whatever
dies in between, the next pass finds every engine that Heliotrope may have put to sleep. Whether it sleeps is asked of
the engine itself, never remembered.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from random import Random
from typing import Any

from heliotrope.api.v1alpha1.common import RESTING_LABEL
from heliotrope.api.v1alpha1.controls import ActivationDepth
from heliotrope.errors import HeliotropeError
from heliotrope_operator.activation.engines import Engines
from heliotrope_operator.activation.gather import Engine
from heliotrope_operator.activation.metrics import ActivationMetrics
from heliotrope_operator.errors import NotFoundError
from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.parts import Context
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.workqueue import Backoff

_log = logging.getLogger(__name__)

AT_ONCE = 16
CLOSE_S = 20.0
"""For waking all at the end."""


class Sleepers:
    """One task per engine at most; what fails is tried again by a later pass, after a growing pause."""

    def __init__(
        self,
        context: Context,
        engines: Engines,
        metrics: ActivationMetrics,
        clock: Callable[[], float],
        on_woken: Callable[[Key], None],
    ) -> None:
        """`clock` is monotonic; `on_woken` hears of pods whose engines were seen awake."""
        self._on_woken = on_woken
        self._context = context
        self._engines = engines
        self._metrics = metrics
        self._clock = clock
        self._tasks: dict[Key, asyncio.Task[None]] = {}
        self._failures: dict[Key, tuple[int, float]] = {}
        """(in a row, when to try again)"""
        self._backoff = Backoff(1.0, 60.0)
        self._rng = Random()
        self._places = asyncio.Semaphore(AT_ONCE)

    def rest(self, engine: Engine) -> None:
        """Have an engine sleep as soon as it has nothing to do."""
        if engine.address is not None and not (engine.asleep and engine.marked):
            self._start(engine.pod, self._rest(engine.pod, engine.address, marked=engine.marked is not None))

    def wake(self, pod: Key, address: str | None) -> None:
        """Have a marked engine awake; without an address the mark alone goes."""
        self._start(pod, self._wake(pod, address))

    def keep(self, pods: Iterable[Key]) -> None:
        """Forget failures of other pods."""
        kept = set(pods)
        self._failures = {pod: each for pod, each in self._failures.items() if pod in kept}

    async def close(self, marked: Iterable[tuple[Key, str | None]]) -> None:
        """End what goes on and wake these, for as long as there is time and this replica leads."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        if self._context.writes.allowed:
            waking = [self._wake(pod, address) for pod, address in marked]
            try:
                async with asyncio.timeout(CLOSE_S):
                    for error in await asyncio.gather(*waking, return_exceptions=True):
                        if isinstance(error, Exception):
                            _log.warning("an engine was not woken; a next start will: %s", error)
            except TimeoutError:
                _log.warning("not all engines could be woken in time; a next start will")
        await self._engines.close()

    def _start(self, pod: Key, work: Coroutine[Any, Any, None]) -> None:
        running = self._tasks.get(pod)
        waits = self._failures.get(pod, (0, 0.0))[1] > self._clock()
        if (running is not None and not running.done()) or waits:
            work.close()
            return
        self._tasks[pod] = asyncio.create_task(self._counted(pod, work), name=f"activation {pod}")
        self._tasks = {key: task for key, task in self._tasks.items() if not task.done()}

    async def _counted(self, pod: Key, work: Coroutine[Any, Any, None]) -> None:
        try:
            async with self._places:
                await work
        except HeliotropeError as error:
            failures = self._failures.get(pod, (0, 0.0))[0] + 1
            self._failures[pod] = failures, self._clock() + self._backoff.delay_s(failures, self._rng)
            self._metrics.failures.inc()
            _log.log(logging.WARNING if failures == 1 else logging.INFO, "%s: %s", pod, error)
        else:
            self._failures.pop(pod, None)

    async def _rest(self, pod: Key, address: str, *, marked: bool) -> None:
        if not marked:
            # The first look tells whether the engine can sleep at all: without that it is not kept from requests.
            await self._engines.look(address)
            await self._mark(pod, ActivationDepth.ENGINE_SLEEP.value)
            return  # pickers need a moment to see the mark; the next pass goes on
        looked = await self._engines.look(address)
        if looked.asleep or looked.requests != 0.0:
            return
        await self._engines.sleep(address)
        self._metrics.moves.labels("sleep").inc()
        _log.info("%s sleeps", pod)

    async def _wake(self, pod: Key, address: str | None) -> None:
        if address is not None:
            await self._engines.wake(address)
            self._on_woken(pod)
            self._metrics.moves.labels("wake").inc()
            _log.info("%s is awake", pod)
        await self._mark(pod, None)

    async def _mark(self, pod: Key, value: str | None) -> None:
        path = RESOURCES[Kind.POD].path(pod.namespace, pod.name)
        try:
            changed = await self._context.writes.set(path, {"metadata": {"labels": {RESTING_LABEL: value}}})
        except NotFoundError:
            return
        self._context.cluster.observe(Kind.POD, changed)


def is_marked(pod: Pod) -> bool:
    """Whether Heliotrope may have put its engine to sleep."""
    return RESTING_LABEL in dict(pod.labels)
