"""A queue of keys to reconcile: each key waits once, is worked on by one worker at a time, and is never lost.

Level-triggered: a key says "look at this object", not what happened to it, so any number of reasons make one entry. A
key that is added while a worker holds it is handed out again afterwards. Time is the event loop's.

Keys stand in lanes. An earlier lane goes first, so that a burst in a later one holds up nothing that cannot wait; a
lane that was passed over often enough has its turn, so that none is starved; and a lane may be limited to so many
workers.
"""

import asyncio
import heapq
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

_VOID_ENTRIES = 64
"""Entries of the heap without a meaning that are put up with."""
PASSED_OVER = 16
"""Keys of earlier lanes that go before one that waits in a later lane."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential delays with jitter: half of each is fixed, half is drawn."""

    first_s: float = 0.2
    longest_s: float = 60.0

    def delay_s(self, failures: int, rng: random.Random) -> float:
        """The delay after so many failures in a row, at least one."""
        ceiling: float = min(self.first_s * 2.0 ** min(failures - 1, 32), self.longest_s)
        return ceiling * rng.uniform(0.5, 1.0)


class WorkQueue(Generic[K]):
    """Keys that wait now, keys that wait for a time, and keys in work.

    Workers call `get`, then exactly one of `done` and `retry` with the key.
    """

    def __init__(
        self,
        *,
        capacity: int,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
        on_drop: Callable[[], None] = lambda: None,
        lane: Callable[[K], int] = lambda _: 0,
        limits: Mapping[int, int] | None = None,
    ) -> None:
        """Hold at most `capacity` keys, those in work included.

        Args:
            capacity: keys.
            backoff: after failures.
            rng: of its jitter.
            on_drop: hears of each key that did not fit.
            lane: of a key, asked each time that it begins to wait; lower ones go first. Added again while it waits, a
                key goes over to an earlier lane, never to a later one.
            limits: most keys of a lane that are in work at once, at least 1; a lane without one has all workers.
        """
        self._capacity = capacity
        self._backoff = backoff or Backoff()
        self._rng = rng or random.Random()
        self._on_drop = on_drop
        self._lane = lane
        self._limits = limits or {}
        self._ready: dict[K, int] = {}
        """Keys that wait to be worked on now, with their lanes."""
        self._lanes: dict[int, dict[K, None]] = {}
        """The same keys by lane, longest waiting first."""
        self._passed: Counter[int] = Counter()
        """Keys that went before those of a lane since it had its last turn."""
        self._working: dict[K, int] = {}
        """With the lane that each came from."""
        self._taken: Counter[int] = Counter()
        """Keys in work by lane."""
        self._again: set[K] = set()
        """In work, and to be handed out once more."""
        self._due: dict[K, int] = {}
        """Keys that wait for a time, with the serial number of their entry in the heap."""
        self._heap: list[tuple[float, int, K]] = []
        """Time, serial number, key; an entry that `_due` does not name is void."""
        self._serial = 0
        self._failures: dict[K, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._wakers: dict[asyncio.Future[None], None] = {}
        """Waiting workers, longest first."""

    def __len__(self) -> int:
        """Keys that wait to be worked on now."""
        return len(self._ready) + len(self._again)

    @property
    def scheduled(self) -> int:
        """Keys that wait for a time."""
        return len(self._due)

    @property
    def working(self) -> int:
        """Keys that workers hold."""
        return len(self._working)

    def failures(self, key: K) -> int:
        """Failures in a row of a key."""
        return self._failures.get(key, 0)

    def add(self, key: K) -> bool:
        """Hand the key out as soon as possible; False if there was no room and it was dropped."""
        if key in self._working:
            self._again.add(key)
            return True
        if key in self._ready:
            self._promote(key)
            return True
        if key not in self._due and not self._has_room():
            self._on_drop()
            return False
        self._due.pop(key, None)
        self._put(key)
        self._wake()
        return True

    def add_all(self, keys: Iterable[K]) -> None:
        """Add each of them."""
        for key in keys:
            self.add(key)

    async def get(self) -> K:
        """Wait for a key and take it: no other worker gets it until `done` or `retry`."""
        while (lane := self._next()) is None:
            waker = asyncio.get_running_loop().create_future()
            self._wakers[waker] = None
            try:
                await waker
            except asyncio.CancelledError:
                if waker.done() and not waker.cancelled():
                    self._wakers.pop(waker, None)
                    self._wake()  # what this worker was woken for goes to another
                raise
            finally:
                self._wakers.pop(waker, None)
        key = next(iter(self._lanes[lane]))
        self._drop(key)
        self._working[key] = lane
        self._taken[lane] += 1
        del self._passed[lane]
        for other in self._lanes:
            self._passed[other] += other > lane
        return key

    def done(self, key: K, *, again_after_s: float | None = None) -> None:
        """The key was reconciled; look at it again after a while, if given."""
        self._failures.pop(key, None)
        self._release(key, again_after_s)

    def retry(self, key: K) -> float:
        """Reconciling failed: hand the key out again after a back-off, which is returned in seconds."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay_s(failures, self._rng)
        self._release(key, delay)
        return delay

    def _release(self, key: K, after_s: float | None) -> None:
        self._taken[self._working.pop(key)] -= 1
        if key in self._again:
            self._again.remove(key)
            self._put(key)
        elif after_s is not None:
            self._schedule(key, after_s)
        self._wake()  # for its lane, too, if that was limited

    def _put(self, key: K) -> None:
        lane = self._ready[key] = self._lane(key)
        self._lanes.setdefault(lane, {})[key] = None

    def _drop(self, key: K) -> None:
        lane = self._ready.pop(key)
        del self._lanes[lane][key]
        if not self._lanes[lane]:
            del self._lanes[lane], self._passed[lane]

    def _promote(self, key: K) -> None:
        if self._lane(key) < self._ready[key]:
            self._drop(key)
            self._put(key)
            self._wake()

    def _next(self) -> int | None:
        """The lane whose turn it is; None where nothing waits that may be taken."""
        able = sorted(lane for lane in self._lanes if self._taken[lane] < self._limits.get(lane, self._capacity))
        overdue = (lane for lane in reversed(able) if self._passed[lane] >= PASSED_OVER)
        return next(overdue, able[0] if able else None)

    def _takeable(self) -> int:
        """Keys that workers could take now."""
        return sum(
            min(len(keys), max(self._limits.get(lane, self._capacity) - self._taken[lane], 0))
            for lane, keys in self._lanes.items()
        )

    def _has_room(self) -> bool:
        return len(self._ready) + len(self._due) + len(self._working) < self._capacity

    def _schedule(self, key: K, after_s: float) -> None:
        due = asyncio.get_running_loop().time() + max(after_s, 0.0)
        self._serial += 1
        self._due[key] = self._serial
        heapq.heappush(self._heap, (due, self._serial, key))
        self._set_timer()

    def _set_timer(self) -> None:
        if len(self._heap) > 2 * len(self._due) + _VOID_ENTRIES:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[1]]
            heapq.heapify(self._heap)
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][1]:
            heapq.heappop(self._heap)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._heap:
            self._timer = asyncio.get_running_loop().call_at(self._heap[0][0], self._release_due)

    def _release_due(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._heap and self._heap[0][0] <= now:
            _, serial, key = heapq.heappop(self._heap)
            if self._due.get(key) == serial:
                del self._due[key]
                self._put(key)
        self._wake()
        self._set_timer()

    def _wake(self) -> None:
        for waker in list(self._wakers)[: self._takeable()]:
            if not waker.done():
                waker.set_result(None)
