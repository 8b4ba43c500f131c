"""One engine's recent time in slices: what its token counters say of each, and what our requests did in it.

A slice runs from one page of the engine to the next. Requests' work is spread over the slices in which it must have
happened: a prefill over the time just before the first token, decoded tokens over the time since the last look. For a
while slices stay open to correction; then they are folded into joules per request by the weights of the engine.
"""

from collections import deque
from collections.abc import Iterator

from heliotrope.engine.model import EngineModel
from heliotrope.engine.work_weights import OnlineWeights
from heliotrope_epp.datalayer.endpoint import ROLE_LABEL, EngineMetrics
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.balance import Balance
from heliotrope_epp.metering.credited import Credited
from heliotrope_epp.metering.encoding import Images
from heliotrope_epp.metering.followed import Followed
from heliotrope_epp.metering.slices import Folded, Slice
from heliotrope_epp.metering.spans import Spans
from heliotrope_epp.metering.steps import steps_between, unknown_steps
from heliotrope_epp.metering.work import Work, decode_work, prefill_work

_TOKENS_PER_SECOND_WITHOUT_MODEL = 8_000.0
_NEVER = float("inf")
ENCODE_ONLY_ROLE = "encode"
_MAX_COVERED = 256
"""Stretches of time without a gap that are remembered."""


class Timeline:
    """Owned by the meter; times are monotonic."""

    def __init__(self, state: EndpointState, weights: OnlineWeights, now_s: float) -> None:
        self.state = state
        self.encodes_only = encodes_only(state)
        self.learned = weights
        self.slices: deque[Slice] = deque([Slice(now_s)])
        """Oldest first; the last one is still going on."""
        self.folded_until_s = now_s
        self._page: EngineMetrics | None = None
        self._others_there = False
        self._computed: float | None = None
        self._prompts = Balance()
        self._prompt_tokens = Balance()
        self._tokens = Balance()
        self._sent = Spans()
        """With requests of ours on their way or at work."""
        self._waiting: dict[Followed, float] = {}
        """Those of whose work nothing is known yet, with when it may have begun."""
        self._worked = Spans()
        self._covered: deque[tuple[float, float]] = deque(maxlen=_MAX_COVERED)
        self._unwatched: dict[Followed, None] = {}
        self.images = Images()
        """Of our requests, which it is to encode."""
        self.tokens_per_sequence_second: float | None = None
        """How fast a sequence decoded lately."""

    @property
    def key(self) -> str:
        """The endpoint's."""
        return self.state.endpoint.key

    @property
    def engine(self) -> EngineModel | None:
        """The endpoint's step model, if its variant names one."""
        return self.state.traits.engine

    def prefill_seconds(self, uncached: float, cached: float) -> float:
        """How long a prompt keeps the engine."""
        engine, whole = self.engine, uncached + cached
        if engine is None:
            return uncached / _TOKENS_PER_SECOND_WITHOUT_MODEL
        return float(engine.prefill_seconds(uncached, 1.0, whole * whole - cached * cached))

    def started(self, followed: Followed, since_s: float) -> None:
        """A request of ours went to the engine, which works on it from then on at the earliest."""
        self._sent.begin(followed, followed.request.dispatched_s)
        self._waiting[followed] = since_s
        if not followed.request.streaming:
            self._unwatched[followed] = None

    def prefill_began(self, followed: Followed, seconds: float, end_s: float) -> None:
        """The engine was done with its prefill then, and goes on with it.

        What a request waits on its way is no work. Prompts that wait for each other are prefilled one after another.
        """
        dispatched_s = followed.request.dispatched_s
        known = self.engine is not None
        self.began(followed, self._worked.start_of(seconds, end_s, dispatched_s) if known else dispatched_s)

    def began(self, followed: Followed, start_s: float) -> None:
        """The engine works on it since then."""
        self._waiting.pop(followed, None)
        self._worked.begin(followed, start_s)

    def stopped(self, followed: Followed, now_s: float) -> None:
        """It is there no more."""
        self._unwatched.pop(followed, None)
        self._waiting.pop(followed, None)
        self._worked.end(followed, now_s)
        self._sent.end(followed, now_s)

    def page(self) -> bool:
        """Look at the engine's page; True if it is a new one, which ends a slice."""
        page, before = self.state.metrics, self._page
        if page is None or page is before or page.scraped_s <= self.slices[-1].start_s:
            return False
        self._page = page
        present = self.slices[-1]
        present.end_s = page.scraped_s
        self.slices.append(Slice(page.scraped_s))
        computed = self._computed_prompt_tokens(page)
        if before is not None:
            self._count(present, before, page, computed)
        self._encode(present)
        self._computed = computed
        return True

    def _count(self, ended: Slice, before: EngineMetrics, page: EngineMetrics, computed: float | None) -> None:
        ended.steps = steps_between(before, page)
        ended.prompt_tokens = _risen(self._computed, computed)
        ended.prompts = _risen(before.first_tokens_total, page.first_tokens_total)
        ended.generated = _risen(before.generation_tokens_total, page.generation_tokens_total)
        running = [each.running for each in (before, page) if each.running is not None]
        ended.running = sum(running) / len(running) if running else None
        there = (page.running or 0.0) + (page.waiting or 0.0) > self.state.inflight_at_scrape
        ended.others_running = (self._others_there + there) / 2.0
        self._others_there = there
        if page.kv_usage is not None and page.block_size is not None and page.num_blocks is not None and page.running:
            ended.context = page.kv_usage * page.block_size * page.num_blocks / page.running

    def _encode(self, ended: Slice) -> None:
        """Lay out the images that the engine was done with in a slice that has just ended.

        One that only encodes counts them; what it counts beyond ours is others'. Elsewhere they are taken to be done in
        the time that is expected.
        """
        if self.encodes_only and ended.prompts is not None:
            done = self.images.first(round(ended.prompts))
            ended.others_prompts = ended.prompts - len(done)
            # It does one after another, and began with the first of them perhaps before the slice.
            end_s, busy_s = ended.end_s, sum(image.seconds for image in done)
            for image in done:
                self.spread(image.part, image.work, end_s - max(ended.seconds, busy_s), end_s)
            if done:
                self._worked.add(end_s - busy_s, end_s)
        else:
            for image in self.images.due(ended.end_s):
                self.spread(image.part, image.work, image.part.dispatched_s, image.part.due_s)
                self._worked.add(image.part.dispatched_s, image.part.dispatched_s + image.seconds)
        self.images.drop_closed(ended.end_s)

    def _computed_prompt_tokens(self, page: EngineMetrics) -> float | None:
        """Cumulative, by source where the engine tells.

        Else those that were asked for less those that were cached; engines count the latter earlier, so that the
        difference may fall for a moment.
        """
        if page.computed_prompt_tokens_total is not None:
            return page.computed_prompt_tokens_total
        total, hits = page.prompt_tokens_total, page.prefix_cache_hits_total or 0.0
        if total is None:
            return None
        before = self._page
        restarted = before is not None and (before.prompt_tokens_total or 0.0) > total
        return total - hits if self._computed is None or restarted else max(total - hits, self._computed)

    def give_up_waiting(self, now_s: float, longest_s: float) -> None:
        """End a slice as unknown when the engine's page has not come for too long."""
        present = self.slices[-1]
        if now_s - present.start_s > longest_s:
            present.end_s = now_s
            self.slices.append(Slice(now_s))
            self._page = None

    def spread(self, followed: Credited, work: Work, start_s: float, end_s: float) -> None:
        """Lay work evenly over the time in which it happened.

        What of that is folded gets none of it: the rest does, or the first slice that is open if the request was still
        there; else it comes too late.
        """
        slices = self.slices
        if end_s <= slices[0].start_s:
            if followed.ended_s is None or followed.ended_s > slices[0].start_s:
                slices[0].add(followed, work)
            return
        start_s = min(max(start_s, slices[0].start_s), end_s)
        length = end_s - start_s
        for each in reversed(slices):
            if each.start_s >= end_s:
                continue
            overlap = min(each.end_s, end_s) - max(each.start_s, start_s)
            each.add(followed, work, overlap / length if length > 0.0 else 1.0)
            if each.start_s <= start_s:
                break

    def spread_decoding(
        self, followed: Followed, tokens: float, cached_tokens: float, seconds: float, start_s: float, end_s: float
    ) -> None:
        """`spread` for decoding, which is most of what is laid out: within the last two slices without any detour."""
        slices = self.slices
        present = slices[-1]
        boundary_s = present.start_s
        if start_s >= boundary_s and end_s > boundary_s:
            present.work(followed).add_decoding(tokens, cached_tokens, seconds)
        elif len(slices) > 1 and slices[-2].start_s <= start_s < end_s:
            late = (end_s - boundary_s) / (end_s - start_s)
            if late > 0.0:
                present.work(followed).add_decoding(late * tokens, late * cached_tokens, late * seconds)
                early = 1.0 - late
            else:
                early = 1.0
            slices[-2].work(followed).add_decoding(early * tokens, early * cached_tokens, early * seconds)
        else:
            work = Work(tokens=tokens, cached_tokens=cached_tokens, decode_seconds=seconds)
            self.spread(followed, work, start_s, end_s)

    def holds(self, followed: Credited) -> bool:
        """Whether work of a request is not folded yet."""
        return self.images.holds(followed) or any(followed in each.works for each in self.slices)

    def cover(self, start_s: float, end_s: float) -> None:
        """The energy of this time was shared out; times come in order."""
        if self._covered and self._covered[-1][1] >= start_s:
            self._covered[-1] = (self._covered[-1][0], end_s)
        else:
            self._covered.append((start_s, end_s))

    def covered(self, start_s: float, end_s: float) -> float:
        """For how long of a time the energy was shared out."""
        seconds = 0.0
        for a, b in reversed(self._covered):
            if b <= start_s:
                break
            seconds += max(min(b, end_s) - max(a, start_s), 0.0)
        return seconds

    def withdraw(self, followed: Credited) -> None:
        """Take back all of a request's work that is not folded."""
        self.images.drop(followed)
        for each in self.slices:
            each.works.pop(followed, None)

    def fold(self, until_s: float) -> Iterator[Folded]:
        """The slices that ended by then, oldest first, each once."""
        while self.slices[0].end_s <= until_s:
            ended = self.slices.popleft()
            self.folded_until_s = ended.end_s
            yield self._folded(ended)
        self._sent.forget(self.folded_until_s)
        self._worked.forget(self.folded_until_s)

    def _folded(self, ended: Slice) -> Folded:
        folded = Folded(ended.start_s, ended.end_s, busy_s=self._busy_seconds(ended))
        folded.quiet = folded.busy_s == 0.0 and self._sent.seconds(ended.start_s, ended.end_s) == 0.0
        folded.asleep = self._page is not None and bool(self._page.asleep)
        folded.steps = ended.steps or unknown_steps(ended.seconds)
        for unwatched in self._unwatched:
            self._guess(unwatched, ended)
        whole = Work()
        for followed, work in ended.works.items():
            followed.folded.add(work)
            whole.add(work)
        if ended.prompt_tokens is None or ended.generated is None:
            folded.known = False
            return folded
        others = self._others(ended, whole)
        batch = self._batch(ended, whole, others, folded.busy_s)
        weights = self.learned.weights
        folded.lines = {followed: work.joules(weights, batch) for followed, work in ended.works.items()}
        folded.others = others.joules(weights, batch)
        if others.tokens or others.prompt_tokens:
            folded.busy_s = max(folded.busy_s, ended.seconds * max(ended.others_running, 0.5))
        if whole.decode_seconds > 0.0 and whole.tokens > 0.0:
            self._learn_pace(whole.tokens / whole.decode_seconds, whole.decode_seconds)
        whole.add(others)
        folded.units = (
            whole.prompts,
            whole.prompt_tokens,
            whole.prompt_squares,
            whole.tokens / batch,
            whole.tokens,
            whole.cached_tokens,
        )
        return folded

    def _others(self, ended: Slice, own: Work) -> Work:
        assert ended.prompt_tokens is not None
        assert ended.generated is not None
        seconds = ended.seconds
        if ended.others_prompts is not None:
            prompts = ended.others_prompts
            mean = ended.prompt_tokens / ended.prompts if ended.prompts else 0.0
            return Work(prompts, prompts * mean, prompts * mean * mean)
        prompt_tokens = self._prompt_tokens.others(ended.prompt_tokens, own.prompt_tokens, seconds)
        prompts = 0.0 if ended.prompts is None else self._prompts.others(ended.prompts, own.firsts, seconds)
        tokens = max(self._tokens.others(ended.generated, own.generated, seconds) - prompts, 0.0)
        context = own.cached_tokens / own.tokens if own.tokens else ended.context
        squares = prompt_tokens * prompt_tokens / prompts if prompts >= 1.0 else 0.0
        return Work(prompts, prompt_tokens, squares, tokens, tokens * context)

    def _batch(self, ended: Slice, own: Work, others: Work, busy_s: float) -> float:
        """Sequences per decode step: all that decode get one token each per step."""
        if own.tokens <= 0.0:
            return max(ended.running or 1.0, 1.0)
        decoding_s = min(own.decode_seconds, busy_s)
        ours = own.decode_seconds / decoding_s if decoding_s > 0.0 else 1.0
        return max(ours * (own.tokens + others.tokens) / own.tokens, 1.0)

    def _busy_seconds(self, ended: Slice) -> float:
        """Of a slice, with work for a request of ours, or with others' requests where the engine shows them."""
        maybe_s = min(self._waiting.values(), default=_NEVER)
        own = self._worked.seconds(ended.start_s, ended.end_s, maybe_s)
        return max(own, ended.others_running * ended.seconds)

    def _guess(self, followed: Followed, ended: Slice) -> None:
        """Work of a request in flight whose answer cannot be watched: as its first token is due and others decode."""
        if followed.ended is not None:
            return
        seconds = self.prefill_seconds(followed.uncached, followed.cached)
        first_s = max(followed.request.first_token_due_s, followed.request.dispatched_s + seconds)
        if followed.prefill is self and seconds > 0.0:
            overlap = min(ended.end_s, first_s) - max(ended.start_s, first_s - seconds)
            if overlap > 0.0:
                work = prefill_work(followed.uncached, followed.cached, overlap / seconds)
                ended.add(followed, work)
        if followed.decode is self:
            overlap = ended.end_s - max(ended.start_s, first_s)
            pace = self._pace(ended)
            if overlap > 0.0 and pace > 0.0:
                done = followed.folded.tokens
                ended.add(followed, decode_work(pace * overlap, followed.context + done, overlap))

    def _pace(self, ended: Slice) -> float:
        """Tokens per second of one decoding sequence."""
        if ended.generated is None or ended.seconds <= 0.0:
            return self.tokens_per_sequence_second or 0.0
        sequences = max(ended.running or 0.0, 1.0)
        return ended.generated / sequences / ended.seconds

    def _learn_pace(self, pace: float, seconds: float) -> None:
        before = self.tokens_per_sequence_second
        self.tokens_per_sequence_second = (
            pace if before is None else before + (pace - before) * min(seconds / 10.0, 1.0)
        )


def encodes_only(state: EndpointState) -> bool:
    """Whether an endpoint does nothing but encode for others."""
    return state.endpoint.labels.get(ROLE_LABEL) == ENCODE_ONLY_ROLE


def _risen(before: float | None, now: float | None) -> float | None:
    """None where it is unknown, or fell because the engine started again."""
    return None if before is None or now is None or now < before else now - before
