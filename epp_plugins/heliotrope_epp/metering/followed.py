"""One routed request, from dispatch until its energy is settled."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from heliotrope_epp.metering.credited import Credited, Drawn
from heliotrope_epp.metering.encoding import Encoding
from heliotrope_epp.metering.ratios import TokenRatios
from heliotrope_epp.metering.work import Work, decode_work, prefill_work
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.meter import Routed
from heliotrope_epp.transport.interface import Progress

if TYPE_CHECKING:
    from heliotrope_epp.metering.timeline import Timeline

_LEAST_WATCHED = 0.8
"""Share of an answer that must have been watched to learn from how many pieces it came in."""


@dataclass(slots=True, eq=False)
class Followed(Credited):
    """Times are monotonic. `prefill` and `decode` are the engines of the two phases, mostly one and the same."""

    request: Routed
    prefill: "Timeline"
    decode: "Timeline"
    uncached: float
    """Prompt tokens to compute, as believed and corrected by what is learned; so for the next."""
    cached: float
    encodings: tuple[Encoding, ...] = ()
    """Its images at encoders; empty: there are none, or whoever prefills encodes them."""
    first_s: float | None = None
    progress_s: float = 0.0
    """Up to when its decoding is laid out."""
    chunks: int = 0
    tokens: float = 0.0
    """Decoded and laid out."""
    ended: FinishedRequest | None = None

    _out_of_prefill: float = field(init=False)
    """Tokens of the answer that are not decoded: where one engine does both, its prefill yields the first."""

    def __post_init__(self) -> None:
        self._out_of_prefill = 1.0 if self.prefill is self.decode else 0.0

    @property
    def context(self) -> float:
        """Tokens in its KV cache when it begins to decode."""
        return self.uncached + self.cached

    @property
    def ended_s(self) -> float | None:
        """When its exchange ended; None: it goes on."""
        return None if self.ended is None else self.ended.ended_s

    @property
    def engines(self) -> tuple["Timeline", ...]:
        """Those that prefill and decode it, each once."""
        return (self.decode,) if self.prefill is self.decode else (self.prefill, self.decode)

    @property
    def parts(self) -> tuple[tuple[Credited, "Timeline"], ...]:
        """All that energy is credited to for it, each with its engine; the engine that answers comes first."""
        own: list[tuple[Credited, Timeline]] = [(self, engine) for engine in reversed(self.engines)]
        return (*own, *((part, part.engine) for part in self.encodings))

    def drawn_by_engine(self) -> dict["Timeline", Drawn]:
        """What every engine drew for it so far, whatever it did for it; the one that answers comes first."""
        found: dict[Timeline, Drawn] = {}
        for part, engine in self.parts:
            found.setdefault(engine, Drawn()).add(part.drew(engine))
        return found

    def metered_time(self) -> tuple[float, float] | None:
        """From the first interval that it took part in to the last; None: it took part in none."""
        parts = (self, *self.encodings)
        start_s, end_s = min(part.start_s for part in parts), max(part.end_s for part in parts)
        return (start_s, end_s) if start_s <= end_s else None

    def coverage(self) -> float:
        """Share of its time for which its engines' energy was shared out; once it has ended."""
        assert self.ended is not None
        start_s, ended_s = self.request.dispatched_s, self.ended.ended_s
        first_s = self.ended.first_s
        first_s = ended_s if first_s is None else min(max(first_s, start_s), ended_s)
        if ended_s <= start_s:
            return float(self.decode.covered(start_s - 1e-3, start_s + 1e-3) > 0.0)
        prefill_s = start_s
        covered = 0.0
        if self.encodings:
            # Encoders work side by side, and whoever prefills waits for the last of them.
            prefill_s = min(max(part.due_s for part in self.encodings), first_s)
            known = sum(part.covered() for part in self.encodings) / len(self.encodings)
            covered = known * (prefill_s - start_s)
        covered += self.prefill.covered(prefill_s, first_s) + self.decode.covered(first_s, ended_s)
        return min(covered / (ended_s - start_s), 1.0)

    def sent(self) -> None:
        """It is on its way to its engines."""
        dispatched_s = self.request.dispatched_s
        self.prefill.started(self, dispatched_s)
        if self.prefill is not self.decode:
            # Whoever decodes has nothing to do until the prompt's KV has come.
            self.decode.started(self, max(self.request.first_token_due_s, dispatched_s))

    def watch(self, progress: Progress, tokens_per_chunk: float, looked_s: float) -> None:
        """Lay out what a streamed answer has come to since the last look, which was at `looked_s`."""
        if progress.first_s is None or progress.last_s is None or not self.request.streaming:
            return
        if self.first_s is None:
            self._first_token(progress.first_s)
        if progress.chunks == self.chunks:
            return
        self.chunks = progress.chunks
        tokens = progress.chunks * tokens_per_chunk - self._out_of_prefill - self.tokens
        last_s, before_s = progress.last_s, self.progress_s
        if tokens > 0.0:
            # What has come since the last look was not decoded long before it, however long ago the piece before came.
            start_s = before_s if before_s > looked_s else min(looked_s, last_s)
            cached = tokens * (self.uncached + self.cached + self.tokens + tokens / 2.0)
            self.decode.spread_decoding(self, tokens, cached, max(last_s - before_s, 0.0), start_s, last_s)
            self.tokens += tokens
        if last_s > before_s:
            self.progress_s = last_s

    def _first_token(self, first_s: float) -> None:
        self.first_s = self.progress_s = first_s
        self._lay_prefill(prefill_work(self.uncached, self.cached), first_s)
        if self.prefill is not self.decode:
            self.decode.spread(self, Work(firsts=1.0), first_s, first_s)
        self._began(1.0, first_s)

    def _began(self, share: float, first_s: float) -> None:
        """A share of its prefill has been done, up to then; then it is decoded."""
        seconds = self.prefill.prefill_seconds(self.uncached, self.cached)
        self.prefill.prefill_began(self, share * seconds, first_s)
        if self.prefill is not self.decode:
            self.prefill.stopped(self, first_s)
            self.decode.began(self, first_s)

    def _lay_prefill(self, work: Work, end_s: float) -> None:
        seconds = self.prefill.prefill_seconds(self.uncached, self.cached)
        self.prefill.spread(self, work, max(end_s - seconds, self.request.dispatched_s), end_s)

    def finish(self, finished: FinishedRequest, ratios: TokenRatios) -> None:
        """Put its work right by what is known at its end, as far as that is still possible."""
        self.ended = finished
        for part in self.encodings:
            part.closed_s = finished.ended_s
        watched = self.first_s is not None
        for engine in self.engines:
            engine.withdraw(self)
        if finished.status is not None and finished.status != 200:
            for engine in self.engines:
                engine.stopped(self, finished.ended_s)
            return  # refused before it was computed
        tokens = self._tokens(finished, ratios)
        self._learn(finished, ratios)
        share = self._counted_prompt(finished, ratios)
        first_s, last_s = self._decoding(finished, tokens)
        if not watched:
            self._began(share, first_s)
        # Between the last piece and the end of the exchange the engine has nothing to do with it.
        self.decode.stopped(self, last_s)
        done = self.folded
        whole = prefill_work(self.uncached, self.cached, share)
        rest = Work(
            prompts=max(whole.prompts - done.prompts, 0.0),
            prompt_tokens=max(whole.prompt_tokens - done.prompt_tokens, 0.0),
            prompt_squares=max(whole.prompt_squares - done.prompt_squares, 0.0),
        )
        rest.firsts = rest.prompts
        self._lay_prefill(rest, first_s)
        if self.prefill is not self.decode:
            self.decode.spread(self, Work(firsts=rest.prompts), first_s, first_s)
        left = max(tokens - self._out_of_prefill, 0.0) - done.tokens
        if left > 0.0:
            start_s = min(max(first_s, self.decode.slices[0].start_s), last_s)
            self.decode.spread(self, decode_work(left, self.context + done.tokens, last_s - start_s), start_s, last_s)

    def _tokens(self, finished: FinishedRequest, ratios: TokenRatios) -> float:
        """Output tokens: as the engine counted, else as the answer's pieces tell, else as was expected."""
        if finished.output_tokens is not None:
            return float(finished.output_tokens)
        pace = self.decode.tokens_per_sequence_second
        if self.request.streaming:
            if finished.first_s is None or finished.last_s is None:
                return 0.0
            if self.first_s is None or self.progress_s <= self.first_s:
                return 1.0 + (pace or 0.0) * (finished.last_s - finished.first_s)
            pieces = self.chunks * (finished.last_s - self.first_s) / (self.progress_s - self.first_s)
            return pieces * ratios.tokens_per_chunk(finished.model)
        if pace is not None:
            return max(finished.ended_s - self.request.first_token_due_s, 0.0) * pace
        return finished.expected_output_tokens if finished.succeeded else 0.0

    def _learn(self, finished: FinishedRequest, ratios: TokenRatios) -> None:
        if not finished.succeeded or finished.output_tokens is None:
            return
        if finished.prompt_tokens is not None:
            ratios.learn_prompt(finished.model, self.request.prompt_tokens, finished.prompt_tokens)
        if self.first_s is None or finished.last_s is None or finished.last_s <= self.first_s:
            return
        watched = (self.progress_s - self.first_s) / (finished.last_s - self.first_s)
        if watched >= _LEAST_WATCHED:
            ratios.learn_chunks(finished.model, self.chunks / watched, finished.output_tokens)

    def _counted_prompt(self, finished: FinishedRequest, ratios: TokenRatios) -> float:
        """Set the prompt as it turned out to be; returns how much of its prefill was done."""
        if finished.prompt_tokens is not None:
            believed = self.request.cached_tokens * ratios.prompt(finished.model)
            cached = believed if finished.cached_tokens is None else float(finished.cached_tokens)
            self.cached = min(max(cached, 0.0), float(finished.prompt_tokens))
            self.uncached = finished.prompt_tokens - self.cached
        if finished.first_s is not None:
            return 1.0
        # It left before its first token; until its prefill was due to begin it drew nothing.
        seconds = self.prefill.prefill_seconds(self.uncached, self.cached)
        begun_s = max(self.request.first_token_due_s - seconds, self.request.dispatched_s)
        done = (finished.ended_s - begun_s) / seconds if seconds > 0.0 else 0.0
        return min(max(done, 0.0), 1.0)

    def _decoding(self, finished: FinishedRequest, tokens: float) -> tuple[float, float]:
        """From the first token to the last."""
        last_s = finished.ended_s if finished.last_s is None else finished.last_s
        if self.request.streaming and finished.first_s is not None:
            return finished.first_s, last_s
        seconds = self.prefill.prefill_seconds(self.uncached, self.cached)
        earliest_s = min(self.request.dispatched_s + seconds, last_s)
        pace = self.decode.tokens_per_sequence_second
        first_s = self.request.first_token_due_s if not pace else last_s - max(tokens - 1.0, 0.0) / pace
        return min(max(first_s, earliest_s), last_s), last_s
