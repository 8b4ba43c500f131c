"""The emulated serving backends of the paper's §4.1: places for sessions and KV memory, by region and GPU type.

A region holds K = c·P sessions and K times the mean context in KV tokens, split equally over its three GPU types.
Caches expire a TTL after their turn ended; when a new one does not fit, idle ones give way: first those of sessions
that have left, then the least recently used, the last of them only as far as needed, from its end.
"""

import heapq
import math
from itertools import chain

from heliotrope_sim.reproduce.context.profiles import GPUS, POOL_OF, POOLS

POOL = tuple(int(p) for p in POOL_OF)
Key = tuple[int, int]
"""Session and deployment."""
Cache = tuple[float, float]
"""Tokens, and when the turn that wrote them last ends."""


class Backend:
    """State that changes with every turn; `copy` branches it."""

    __slots__ = ("_leaving", "caches", "held", "homes", "kv_tokens", "place", "slots", "ttl_seconds", "used")

    def __init__(self, peak_sessions: int, mean_context_tokens: float, capacity: float, ttl_seconds: float) -> None:
        per_pool = capacity * peak_sessions / len(GPUS)
        self.slots = math.ceil(per_pool)
        """Of a pool, rounded up, so that all regions together never hold fewer than 4·c·P."""
        self.kv_tokens = per_pool * mean_context_tokens
        self.ttl_seconds = ttl_seconds
        self.held = [0] * POOLS
        self.used = [0.0] * POOLS
        self.caches: list[dict[Key, Cache]] = [{} for _ in range(POOLS)]
        """By pool, least recently used first."""
        self.homes: dict[int, tuple[int, ...]] = {}
        """Deployments that an active session has been at."""
        self.place: dict[int, int] = {}
        """The pool that holds an active session."""
        self._leaving: list[tuple[float, int]] = []

    def copy(self) -> "Backend":
        """An independent one in the same state."""
        twin = Backend.__new__(Backend)
        twin.slots, twin.kv_tokens, twin.ttl_seconds = self.slots, self.kv_tokens, self.ttl_seconds
        twin.held, twin.used = list(self.held), list(self.used)
        twin.caches = [dict(each) for each in self.caches]
        twin.homes, twin.place, twin._leaving = dict(self.homes), dict(self.place), list(self._leaving)
        return twin

    def advance(self, now: float) -> None:
        """Let sessions go whose last turn has ended."""
        while self._leaving and self._leaving[0][0] <= now:
            session = heapq.heappop(self._leaving)[1]
            self.held[self.place.pop(session)] -= 1
            self.homes.pop(session, None)

    def cached(self, session: int, now: float) -> list[tuple[int, float]]:
        """Deployments that cache something of a session, with the tokens."""
        found = []
        for deployment in self.homes.get(session, ()):
            cache = self.caches[POOL[deployment]].get((session, deployment))
            if cache is not None and now - cache[1] <= self.ttl_seconds and cache[0] > 0.0:
                found.append((deployment, cache[0]))
        return found

    def serve(self, session: int, deployment: int, context_tokens: float, now: float, end: float, last: bool) -> None:
        """Book a turn from its dispatch on.

        Args:
            session: whose turn it is.
            deployment: where it runs.
            context_tokens: what is cached there once it ends.
            now: when it is dispatched.
            end: when it ends.
            last: whether the session leaves then.
        """
        pool = POOL[deployment]
        before = self.place.get(session)
        if before != pool:
            if before is not None:
                self.held[before] -= 1
            self.held[pool] += 1
            self.place[session] = pool
        homes = self.homes.get(session, ())
        if deployment not in homes:
            self.homes[session] = (*homes, deployment)
        if last:
            heapq.heappush(self._leaving, (end, session))
        caches = self.caches[pool]
        key = (session, deployment)
        self._drop(pool, key)
        while caches:
            oldest = next(iter(caches))
            if now - caches[oldest][1] <= self.ttl_seconds:
                break
            self._drop(pool, oldest)
        if self.used[pool] + context_tokens > self.kv_tokens:
            self._evict(pool, self.used[pool] + context_tokens - self.kv_tokens, now)
        # What does not fit beside turns that are running is not kept.
        tokens = min(context_tokens, max(self.kv_tokens - self.used[pool], 0.0))
        caches[key] = (tokens, end)
        self.used[pool] += tokens

    def _drop(self, pool: int, key: Key) -> None:
        cache = self.caches[pool].pop(key, None)
        if cache is not None:
            self.used[pool] -= cache[0]

    def _evict(self, pool: int, tokens: float, now: float) -> None:
        caches = self.caches[pool]
        idle = [(key, cache) for key, cache in caches.items() if cache[1] <= now]
        ttl, place = self.ttl_seconds, self.place
        for key in chain(
            (key for key, cache in idle if now - cache[1] > ttl),
            (key for key, cache in idle if now - cache[1] <= ttl and key[0] not in place),
            (key for key, cache in idle if now - cache[1] <= ttl and key[0] in place),
        ):
            if tokens <= 0.0:
                return
            held, end = caches[key]
            if held <= tokens:
                self._drop(pool, key)
            else:
                caches[key] = (held - tokens, end)
                self.used[pool] -= tokens
            tokens -= held
