"""The picker's own requests on one endpoint, so that decisions see dispatches before the next scrape does."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from math import exp, inf, nan

from heliotrope.decide.load import DUTY_TIME_CONSTANT_SECONDS, FACTS, Fact
from heliotrope.predict.step_phase import UNKNOWN_PHASE, StepPhase, after_piece, begun

_SLACK = 64
"""Requests that ended before their first token was due may stay in the queue of what falls due, up to this many."""


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
    prefills_only: bool = False
    """It decodes elsewhere, so that nothing of it is here once its first token is seen or due."""


class InFlight:
    """Keeps the facts that `heliotrope.decide.load` needs of own requests; each call is O(1).

    A streamed request waits for its first token until `piece` tells of it; of others nobody sees it, so they wait until
    it is due.
    """

    def __init__(self, facts: "array[float] | None" = None) -> None:
        """`facts` is the endpoint's row, shared with whoever reads its metrics; by default one of its own."""
        self._facts = no_facts() if facts is None else facts
        self._open: dict[Dispatch, None] = {}  # in the order of dispatch
        self._before_first: dict[Dispatch, None] = {}
        self._due: list[tuple[float, int, Dispatch]] = []
        self._order = count()
        self._phase = UNKNOWN_PHASE

    def __len__(self) -> int:
        return len(self._open)

    def add(self, dispatch: Dispatch, prefill_seconds: float) -> None:
        """A request was dispatched; `prefill_seconds` is what its prefill is expected to occupy the engine for."""
        facts, at_s = self._facts, dispatch.dispatched_s
        if not self._open:
            self._now_in(begun(at_s))
        self._open[dispatch] = None
        facts[Fact.OWN] += 1.0
        facts[Fact.PROMPT_TOKENS] += dispatch.prompt_tokens
        facts[Fact.OUTPUT_TOKENS] += dispatch.expected_output_tokens
        if at_s > facts[Fact.SCRAPED_S]:
            facts[Fact.TOKENS_SINCE_SCRAPE] += dispatch.prompt_tokens
        elapsed = max(at_s - facts[Fact.PREFILL_AS_OF_S], 0.0)
        faded = facts[Fact.PREFILL_SECONDS] * exp(-elapsed / DUTY_TIME_CONSTANT_SECONDS)
        facts[Fact.PREFILL_SECONDS] = faded + prefill_seconds
        facts[Fact.PREFILL_AS_OF_S] = at_s
        if not self._before_first:
            facts[Fact.OLDEST_WAITING_S] = at_s
        self._before_first[dispatch] = None
        facts[Fact.OWN_WAITING] += 1.0
        facts[Fact.OWN_WAITING_TOKENS] += dispatch.uncached_tokens
        facts[Fact.OWN_WAITING_SQUARED_TOKENS] += dispatch.uncached_tokens**2
        if not dispatch.streams:
            self._falls_due(dispatch)

    def remove(self, dispatch: Dispatch) -> None:
        """The request ended; a second call for the same one does nothing."""
        if dispatch not in self._open:
            return
        facts = self._facts
        del self._open[dispatch]
        facts[Fact.OWN] -= 1.0
        facts[Fact.PROMPT_TOKENS] -= dispatch.prompt_tokens
        facts[Fact.OUTPUT_TOKENS] -= dispatch.expected_output_tokens
        if dispatch.dispatched_s > facts[Fact.SCRAPED_S]:
            facts[Fact.TOKENS_SINCE_SCRAPE] -= dispatch.prompt_tokens
        self._waits_no_longer(dispatch)

    def piece(self, dispatch: Dispatch, now_s: float) -> None:
        """A piece of its answer has arrived: it waits no longer, and a step of the engine ended just before."""
        facts = self._facts
        facts[Fact.PIECE_S] = now_s
        first = dispatch in self._before_first
        self._waits_no_longer(dispatch)
        self._now_in(after_piece(self._phase, now_s, first=first, oldest_waiting_s=facts[Fact.OLDEST_WAITING_S]))

    def expire(self, now_s: float) -> None:
        """Those whose first token nobody sees wait no longer than until it is due."""
        while self._due and self._due[0][0] <= now_s:
            dispatch = heappop(self._due)[2]
            self._waits_no_longer(dispatch)
            if dispatch.prefills_only:
                self.remove(dispatch)
        self._facts[Fact.NEXT_DUE_S] = self._due[0][0] if self._due else inf

    def sent_after(self, time_s: float) -> Iterator[Dispatch]:
        """Open requests dispatched after a time, the last first."""
        for dispatch in reversed(self._open):
            if dispatch.dispatched_s <= time_s:
                break
            yield dispatch

    def _now_in(self, phase: StepPhase) -> None:
        self._phase = phase
        self._facts[Fact.STEP_BEGAN_S] = phase.began_s
        self._facts[Fact.STEP_PREFILLS] = float(phase.prefilling)

    def _waits_no_longer(self, dispatch: Dispatch) -> None:
        waiting, facts = self._before_first, self._facts
        if dispatch not in waiting:
            return
        del waiting[dispatch]
        facts[Fact.OWN_WAITING] -= 1.0
        # Sums of what is no whole number drift, but never past the moment when nothing waits.
        facts[Fact.OWN_WAITING_TOKENS] = facts[Fact.OWN_WAITING_TOKENS] - dispatch.uncached_tokens if waiting else 0.0
        squares = facts[Fact.OWN_WAITING_SQUARED_TOKENS] - dispatch.uncached_tokens**2
        facts[Fact.OWN_WAITING_SQUARED_TOKENS] = squares if waiting else 0.0
        facts[Fact.OLDEST_WAITING_S] = next(iter(waiting)).dispatched_s if waiting else nan

    def _falls_due(self, dispatch: Dispatch) -> None:
        heappush(self._due, (dispatch.first_token_due_s, next(self._order), dispatch))
        if len(self._due) > 2 * len(self._before_first) + _SLACK:
            self._due = [entry for entry in self._due if entry[2] in self._before_first]
            heapify(self._due)
        self._facts[Fact.NEXT_DUE_S] = self._due[0][0]


def no_facts() -> "array[float]":
    """The row of an endpoint that nothing is known of and nothing was sent to."""
    facts = array("d", [nan]) * FACTS
    for zero in (
        Fact.OWN_AT_SCRAPE,
        Fact.OWN_WAITING_AT_SCRAPE,
        Fact.OWN,
        Fact.OWN_WAITING,
        Fact.OWN_WAITING_TOKENS,
        Fact.OWN_WAITING_SQUARED_TOKENS,
        Fact.STEP_PREFILLS,
        Fact.PROMPT_TOKENS,
        Fact.OUTPUT_TOKENS,
        Fact.TOKENS_SINCE_SCRAPE,
        Fact.PREFILL_SECONDS,
        Fact.PREFILL_AS_OF_S,
    ):
        facts[zero] = 0.0
    facts[Fact.NEXT_DUE_S] = inf
    return facts
