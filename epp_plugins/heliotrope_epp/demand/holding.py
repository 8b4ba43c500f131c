"""Requests of a pool without awake engines: held, first come first served, until one appears or wakes.

One line per flow (model and tenant); flows take turns when they are let go, so that one with a thousand requests in
front does not keep another waiting. Bounded in requests, bytes and time: what does not fit is refused at once.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

LOOK_EVERY_S = 0.05
"""How soon after an engine has woken the first request goes there."""
BURST = 32
"""Requests that are let go before the loop turns to others."""

T = TypeVar("T")


class End(StrEnum):
    """Why a request waits no longer, or never did."""

    RELEASED = "released"
    EXPIRED = "expired"
    LEFT = "left"
    DRAINING = "draining"
    FULL_REQUESTS = "full-requests"
    FULL_BYTES = "full-bytes"


DROPS = (End.EXPIRED, End.DRAINING, End.FULL_REQUESTS, End.FULL_BYTES)
"""Ends in which the picker refuses the request."""


@dataclass(frozen=True, slots=True)
class HoldSettings:
    """Bounds of the queue."""

    max_requests: int = 1_000
    """0: nothing is held."""
    max_bytes: int = 64 * 1024 * 1024
    """Of all bodies together."""
    ttl_s: float = 180.0
    """Longest wait; the gateway must wait longer (`message_timeout`)."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Whose turn it is."""

    model: str
    tenant: str


@dataclass(slots=True, eq=False)
class Held(Generic[T]):
    """One waiting request; `what` is the holder's."""

    what: T
    flow: Flow
    body_bytes: int
    since_s: float
    end: End | None = field(default=None)
    """None: it still waits."""


class HoldQueue(Generic[T]):
    """Owned by the loop's thread.

    `is_open` says whether any request could be served now, `can_go` whether this one could, `go` serves it, `refuse`
    answers it for the given reason. None of them may block.
    """

    def __init__(
        self,
        settings: HoldSettings,
        *,
        is_open: Callable[[], bool],
        can_go: Callable[[Held[T]], bool],
        go: Callable[[Held[T]], None],
        refuse: Callable[[Held[T], End], None],
        monotonic: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._open = is_open
        self._can_go = can_go
        self._go = go
        self._refuse = refuse
        self._monotonic = monotonic
        self._flows: OrderedDict[Flow, OrderedDict[int, Held[T]]] = OrderedDict()
        """In the order in which they take turns; each in the order of arrival. A flow is never empty."""
        self._by_age: OrderedDict[int, Held[T]] = OrderedDict()
        self._filled = asyncio.Event()
        self._draining = False
        self.held_bytes = 0
        self.ends: Counter[End] = Counter()
        self.held_seconds_total = 0.0

    def __len__(self) -> int:
        return len(self._by_age)

    def offer(self, what: T, flow: Flow, body_bytes: int) -> Held[T] | End:
        """Hold a request, or say why not; then the caller answers it."""
        end = self._why_not(body_bytes)
        if end is not None:
            self.ends[end] += 1
            return end
        held = Held(what, flow, body_bytes, self._monotonic())
        self._flows.setdefault(flow, OrderedDict())[id(held)] = held
        self._by_age[id(held)] = held
        self.held_bytes += body_bytes
        self._filled.set()
        return held

    def left(self, held: Held[T]) -> bool:
        """Its client has gone; False if it did not wait any more."""
        if held.end is not None:
            return False
        self._take(held, End.LEFT)
        return True

    def look(self) -> int:
        """Refuse what has waited too long, and let go what can be served, at most a burst; returns how many went."""
        now_s = self._monotonic()
        for held in self._expired(now_s):
            self._take(held, End.EXPIRED)
            self._refuse(held, End.EXPIRED)
        turns, released = (list(self._flows) if self._open() else []), 0
        while turns:
            again = []
            for flow in turns:
                first = next(iter(self._flows[flow].values())) if flow in self._flows else None
                if first is None or not self._can_go(first):
                    continue
                self._flows.move_to_end(flow)
                self._take(first, End.RELEASED)
                self._go(first)
                again.append(flow)
                released += 1
                if released == BURST:
                    return released
            turns = again
        return released

    def drain(self) -> None:
        """Refuse everything, now and from now on."""
        self._draining = True
        for held in list(self._by_age.values()):
            self._take(held, End.DRAINING)
            self._refuse(held, End.DRAINING)

    async def run(self) -> None:
        """Look again and again while something waits."""
        while True:
            await self._filled.wait()
            # After a full burst others get a turn of the loop, but nobody waits.
            await asyncio.sleep(0.0 if self.look() == BURST else LOOK_EVERY_S)
            if not self._by_age:
                self._filled.clear()

    def held_by(self, name: Callable[[str], str]) -> dict[str, tuple[int, float]]:
        """Requests that wait, and the seconds that the oldest has waited, by `name` of the model."""
        now_s = self._monotonic()
        found: dict[str, tuple[int, float]] = {}
        for flow, line in self._flows.items():
            model = name(flow.model)
            count, oldest_s = found.get(model, (0, 0.0))
            first = next(iter(line.values()))
            found[model] = count + len(line), max(oldest_s, now_s - first.since_s)
        return found

    def _why_not(self, body_bytes: int) -> End | None:
        settings = self._settings
        if self._draining:
            return End.DRAINING
        if len(self._by_age) >= settings.max_requests:
            return End.FULL_REQUESTS
        return End.FULL_BYTES if self.held_bytes + body_bytes > settings.max_bytes else None

    def _expired(self, now_s: float) -> Iterable[Held[T]]:
        """Arrival is the order of age, as all wait equally long at most."""
        expired = []
        for held in self._by_age.values():
            if now_s - held.since_s < self._settings.ttl_s:
                break
            expired.append(held)
        return expired

    def _take(self, held: Held[T], end: End) -> None:
        line = self._flows[held.flow]
        del line[id(held)]
        if not line:
            del self._flows[held.flow]
        del self._by_age[id(held)]
        self.held_bytes -= held.body_bytes
        held.end = end
        self.ends[end] += 1
        self.held_seconds_total += self._monotonic() - held.since_s
