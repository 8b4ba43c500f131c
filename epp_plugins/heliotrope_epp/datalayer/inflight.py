"""The picker's own requests on one endpoint, so that decisions see dispatches before the next scrape does."""

from collections import deque
from dataclasses import dataclass
from math import exp

DUTY_TIME_CONSTANT_SECONDS = 5.0


@dataclass(slots=True, eq=False)
class Dispatch:
    """One request that was sent to an endpoint and has not ended."""

    dispatched_s: float
    prompt_tokens: float
    uncached_tokens: float
    first_token_due_s: float
    """When its first token is expected; until then its prompt counts as waiting for prefill."""


class InFlight:
    """Counts of one endpoint. Adding and removing are O(1); `waiting` drops dispatches whose first token is due."""

    def __init__(self) -> None:
        self._open: set[Dispatch] = set()
        self._before_first: deque[Dispatch] = deque()
        self._prefill_seconds = 0.0
        self._prefill_as_of_s = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def add(self, dispatch: Dispatch, prefill_seconds: float) -> None:
        """A request was dispatched; `prefill_seconds` is what its prefill is expected to occupy the engine for."""
        self._open.add(dispatch)
        self._before_first.append(dispatch)
        self._prefill_seconds = self._decayed(dispatch.dispatched_s) + prefill_seconds
        self._prefill_as_of_s = dispatch.dispatched_s

    def remove(self, dispatch: Dispatch) -> None:
        """The request ended; a second call for the same one does nothing."""
        self._open.discard(dispatch)

    def waiting(self, now_s: float) -> tuple[int, float]:
        """Requests whose first token is not yet due, and their uncached prompt tokens."""
        pending = self._before_first
        while pending and (pending[0].first_token_due_s <= now_s or pending[0] not in self._open):
            pending.popleft()
        alive = [d for d in pending if d.first_token_due_s > now_s and d in self._open]
        return len(alive), sum(d.uncached_tokens for d in alive)

    def dispatched_since(self, time_s: float) -> tuple[int, float]:
        """Open requests dispatched after a time, and their prompt tokens."""
        recent = [d for d in self._open if d.dispatched_s > time_s]
        return len(recent), sum(d.prompt_tokens for d in recent)

    def prefill_duty(self, now_s: float) -> float:
        """Share of recent time that dispatched prefills are expected to have taken, in [0, 1)."""
        return min(self._decayed(now_s) / DUTY_TIME_CONSTANT_SECONDS, 0.95)

    def _decayed(self, now_s: float) -> float:
        elapsed = max(now_s - self._prefill_as_of_s, 0.0)
        return self._prefill_seconds * exp(-elapsed / DUTY_TIME_CONSTANT_SECONDS)
