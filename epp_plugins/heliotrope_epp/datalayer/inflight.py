"""The picker's own requests on one endpoint, so that decisions see dispatches before the next scrape does."""

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
    expected_output_tokens: float = 0.0
    streams: bool = False
    """Its first token will be seen: until then it waits, due or not."""

    def waits(self, now_s: float) -> bool:
        """Whether its first token is still to come, for one of which none was seen."""
        return self.streams or self.first_token_due_s > now_s


class InFlight:
    """Counts of one endpoint. Adding, removing and a piece are O(1).

    A streamed request waits for its first token until `piece` tells of it; of others nobody sees it, so they wait until
    it is due.
    """

    def __init__(self) -> None:
        self._open: dict[Dispatch, None] = {}  # in the order of dispatch
        self._before_first: dict[Dispatch, None] = {}
        self._prompt_tokens = 0.0
        self._output_tokens = 0.0
        self._prefill_seconds = 0.0
        self._prefill_as_of_s = 0.0
        self._piece_s = float("nan")

    def __len__(self) -> int:
        return len(self._open)

    def add(self, dispatch: Dispatch, prefill_seconds: float) -> None:
        """A request was dispatched; `prefill_seconds` is what its prefill is expected to occupy the engine for."""
        self._open[dispatch] = None
        self._prompt_tokens += dispatch.prompt_tokens
        self._output_tokens += dispatch.expected_output_tokens
        self._before_first[dispatch] = None
        self._prefill_seconds = self._decayed(dispatch.dispatched_s) + prefill_seconds
        self._prefill_as_of_s = dispatch.dispatched_s

    def remove(self, dispatch: Dispatch) -> None:
        """The request ended; a second call for the same one does nothing."""
        if dispatch not in self._open:
            return
        del self._open[dispatch]
        self._prompt_tokens -= dispatch.prompt_tokens
        self._output_tokens -= dispatch.expected_output_tokens
        self._before_first.pop(dispatch, None)

    def piece(self, dispatch: Dispatch, now_s: float) -> None:
        """A piece of its answer has arrived: it waits no longer, and a step of the engine ended just before."""
        self._before_first.pop(dispatch, None)
        self._piece_s = now_s

    def seconds_since_piece(self, now_s: float) -> float:
        """Since a piece of any answer arrived from there; NaN before the first."""
        return now_s - self._piece_s

    def mean_prompt_tokens(self) -> float:
        """Of the open requests; 0 without any."""
        return self._prompt_tokens / len(self._open) if self._open else 0.0

    def expected_output_tokens(self) -> float:
        """That the open requests were expected to produce when they were sent."""
        return max(self._output_tokens, 0.0)

    def waiting(self, now_s: float) -> tuple[int, float]:
        """Requests that wait for their first token, and their uncached prompt tokens."""
        for dispatch in [d for d in self._before_first if not d.waits(now_s)]:
            del self._before_first[dispatch]
        return len(self._before_first), sum(d.uncached_tokens for d in self._before_first)

    def oldest_waiting_s(self, now_s: float) -> float:
        """How long the oldest one of them has waited; 0 without any."""
        return next((now_s - d.dispatched_s for d in self._before_first if d.waits(now_s)), 0.0)

    def dispatched_since(self, time_s: float) -> tuple[int, float]:
        """Open requests dispatched after a time, and their prompt tokens."""
        count, tokens = 0, 0.0
        for dispatch in reversed(self._open):
            if dispatch.dispatched_s <= time_s:
                break
            count += 1
            tokens += dispatch.prompt_tokens
        return count, tokens

    def prefill_duty(self, now_s: float) -> float:
        """Share of recent time that dispatched prefills are expected to have taken, in [0, 1)."""
        return min(self._decayed(now_s) / DUTY_TIME_CONSTANT_SECONDS, 0.95)

    def _decayed(self, now_s: float) -> float:
        elapsed = max(now_s - self._prefill_as_of_s, 0.0)
        return self._prefill_seconds * exp(-elapsed / DUTY_TIME_CONSTANT_SECONDS)
