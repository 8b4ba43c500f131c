"""The continuous-batching loop of one engine (paper carbon-slo-tension, §III-C), one step per call.

An iteration retires what has finished, admits what fits, prefills what was admitted in one or more steps of at most
`max_num_batched_tokens` tokens, which stall the batch, and then decodes one token for everyone. Where KV memory runs
out, the newest sequence is preempted and computed again later, as in vLLM.

KV that comes from outside is loaded beside the steps: the sequence has its blocks from its admission on, joins the
batch when the load has ended, and prefills only the rest. A rest of one token is computed by a decode step. Blocks
that are evicted may go to tiers below the accelerators' memory and come back in the same way.

Images of admitted prompts are encoded first, in steps of the encoder that stall the batch too.
"""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Ordered

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.engine.costs import StepCosts
from heliotrope_sim.engine.encoder import Encoder
from heliotrope_sim.engine.energy import EnergyMeter
from heliotrope_sim.engine.kv import KvMemory
from heliotrope_sim.engine.kv_events import KvEvent
from heliotrope_sim.engine.network import Port
from heliotrope_sim.engine.results import Counters, ExternalCounters, Phase, SleepLevel, StepResult
from heliotrope_sim.engine.sequence import Request, Sequence, Status
from heliotrope_sim.engine.sources import Sources
from heliotrope_sim.engine.tiers import OffloadTiers, TierSpec
from heliotrope_sim.engine.transfer_meter import TransferMeter
from heliotrope_sim.engine.transfers import Holds, Loading


class Engine:
    """One engine. Times are ns on a clock of the caller's; nothing here waits.

    The caller steps it: `step(now_ns)` computes the step that starts now. The next step starts at its `end_ns` or
    later. Submissions and aborts may come at any time between.
    """

    def __init__(
        self,
        model: EngineModel,
        *,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        encoder: Encoder | None = None,
        tiers: Ordered[TierSpec] = (),
        record_events: bool = False,
        now_ns: int = 0,
    ) -> None:
        self._nominal = model
        self._model = model
        self._costs = StepCosts.of(model)
        self.max_num_seqs = max_num_seqs or model.max_num_seqs
        self.max_num_batched_tokens = max_num_batched_tokens or model.max_num_batched_tokens
        self._events: list[KvEvent] = []
        record = self._events.append if record_events else None
        block_size = model.block_size
        self.transfers = TransferMeter()
        self.external = ExternalCounters()
        self.tiers = OffloadTiers(tiers, record) if tiers else None
        """None: what is evicted is lost."""
        self._sources = Sources(block_size, self.tiers, self.transfers, self.external, self._load_moved)
        self.kv = KvMemory(
            model.kv_capacity_tokens // block_size,
            block_size,
            record=record,
            evicted=self._sources.evicted if tiers else None,
        )
        self.energy = EnergyMeter(model, now_ns)
        self.encoder = encoder
        """None: it takes no images."""
        self.counters = Counters()
        self._sleep_level: SleepLevel | None = None
        self._sequences: dict[str, Sequence] = {}
        self._waiting: deque[Sequence] = deque()
        self._prefilling: deque[Sequence] = deque()
        self._decoding: list[Sequence] = []
        self._retiring: list[Sequence] = []
        self._loading = Loading()
        self._holds = Holds()
        self._told: Callable[[], None] | None = None
        self._decode_is_next = False
        self._starved = False
        """Whether the head of the queue waits for memory that only a load's or a hold's end can free."""

    @property
    def model(self) -> EngineModel:
        """The engine's model at its present clock."""
        return self._model

    def share_links(self, port: Port, moved: Callable[[], None]) -> None:
        """Load from other engines over links that these use too; before the first load.

        Args:
            port: to the network of them all.
            moved: called when `next_work_ns` may have changed because of another engine.
        """
        self._sources.port, self._told = port, moved

    def _load_moved(self) -> None:
        self._loading.moved()
        if self._told is not None:
            self._told()

    @property
    def in_flight(self) -> tuple[Sequence, ...]:
        """Every sequence that waits, loads or runs."""
        return tuple(self._sequences.values())

    @property
    def num_running(self) -> int:
        """Sequences in the batch."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def num_waiting(self) -> int:
        """Sequences in the queue, and those that wait for KV from outside."""
        return len(self._waiting) + len(self._loading)

    @property
    def num_loading(self) -> int:
        """Sequences that wait for KV from outside."""
        return len(self._loading)

    @property
    def num_held(self) -> int:
        """Finished sequences whose blocks are held for others."""
        return len(self._holds)

    @property
    def next_work_ns(self) -> int | None:
        """When `step` next has something to do by itself, which may have passed; None if only a call can bring it."""
        if self._sleep_level is not None:
            return None
        if self._prefilling or self._decoding:
            return self.energy.settled_ns
        times = [self._loading.next_ready_ns, self._holds.next_deadline_ns]
        if self._waiting and not self._starved:
            times.append(self._waiting[0].queued_ns)
        return min((t for t in times if t is not None), default=None)

    @property
    def queued_tokens(self) -> int:
        """Tokens that waiting and admitted sequences still have to prefill, prefix hits of the waiting unknown."""
        waiting = sum(s.request.prompt_tokens + s.generated for s in self._waiting)
        admitted = sum(s.prefill_target - s.computed for s in self._prefilling)
        return waiting + admitted + self._loading.tokens_to_prefill

    @property
    def kv_tokens(self) -> int:
        """Tokens of the batch whose KV is in memory."""
        return sum(s.computed for s in self._prefilling) + sum(s.computed for s in self._decoding)

    @property
    def kv_usage(self) -> float:
        """Share of the KV blocks that sequences hold."""
        return self.kv.used_blocks / self.kv.capacity_blocks

    @property
    def sleep_level(self) -> SleepLevel | None:
        """How deep it sleeps; None while awake."""
        return self._sleep_level

    def submit(self, request: Request, now_ns: int) -> Sequence:
        """Queue a request.

        Raises:
            InvalidInputError: if it has no tokens, could never fit, its id is in use, or its external KV or hold
                makes no sense.
        """
        if request.prompt_tokens < 1:
            raise InvalidInputError("prompt_tokens", f"must be at least 1, got {request.prompt_tokens}")
        if request.output_tokens < 1:
            raise InvalidInputError("output_tokens", f"must be at least 1, got {request.output_tokens}")
        capacity = self.kv.capacity_blocks * self.kv.block_size
        if request.prompt_tokens + request.output_tokens > capacity:
            raise InvalidInputError(
                "prompt_tokens",
                f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens exceed the KV memory of "
                f"{capacity} tokens",
            )
        _check_external(request)
        if self.encoder is None and (request.images or request.encode_only):
            raise InvalidInputError("images", "this engine has no encoder")
        if request.request_id in self._sequences or request.request_id in self._holds:
            raise InvalidInputError("request_id", f"{request.request_id!r} is already in flight")
        sequence = Sequence(request, queued_ns=now_ns)
        self._sequences[request.request_id] = sequence
        self._waiting.append(sequence)
        return sequence

    def abort(self, request_id: str, now_ns: int) -> Sequence | None:
        """Take a request out, wherever it is; None if it is not in flight.

        What it drew stays charged to it, the whole step in progress included.
        """
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return None
        if sequence.status is Status.WAITING:
            self._waiting.remove(sequence)
        elif sequence.status is Status.LOADING:
            self._loading.remove(sequence)
            self._sources.break_off(sequence, now_ns)
        elif sequence.status is Status.PREFILLING:
            self._prefilling.remove(sequence)
        else:
            self._decoding.remove(sequence)
            if sequence in self._retiring:
                self._retiring.remove(sequence)
        self._free(sequence)
        sequence.status = Status.ABORTED
        sequence.finished_ns = now_ns
        return sequence

    def release(self, request_id: str) -> Sequence | None:
        """End the hold of a finished request whose KV others have read; None if it is not held."""
        sequence = self._holds.pop(request_id)
        if sequence is not None:
            self._let_go(sequence)
        return sequence

    def give_up_load(self, request_id: str, now_ns: int) -> bool:
        """Compute what was to come from another engine; False if nothing is on its way to that request.

        What the transfer has drawn stays charged to it.
        """
        sequence = self._sequences.get(request_id)
        if sequence is None or sequence.request.external is None or sequence.external_failed:
            return False
        if sequence.status is Status.WAITING:
            sequence.external_failed = True
            return True
        if sequence.status is not Status.LOADING or sequence.external_source is not sequence.request.external.source:
            return False
        sequence.external_failed = True
        self.external.hits[sequence.request.external.source] -= sequence.external_tokens
        sequence.cached_tokens -= sequence.external_tokens
        sequence.external_tokens = sequence.loading_tokens = 0
        sequence.external_source = None
        self._loading.remove(sequence)
        self._sources.break_off(sequence, now_ns)
        sequence.loaded_ns = now_ns
        if self.encoder is not None and sequence.request.images:
            self._sources.load_embeddings(sequence, self.encoder, now_ns, first_time=True)
        self._loading.add(sequence)
        return True

    def renew(self, request_id: str, now_ns: int, hold_ns: int) -> bool:
        """Hold a finished request for `hold_ns` from now on; False if it is not held."""
        sequence = self._holds.get(request_id)
        if sequence is None:
            return False
        sequence.held_until_ns = now_ns + hold_ns
        return True

    def hold_cached(self, request_id: str, block_hashes: Ordered[int], now_ns: int, hold_ns: int) -> Sequence | None:
        """Hold the cached beginning of a prompt for others to read; None if nothing of it is cached.

        The sequence that stands for the hold has computed as many tokens as can be read, from `loaded_ns` on: what is
        in the tiers below has to be read there first, at `load_picojoules`.

        Raises:
            InvalidInputError: if the id is in use.
        """
        if request_id in self._sequences or request_id in self._holds:
            raise InvalidInputError("request_id", f"{request_id!r} is already in flight")
        matched = reach = self.kv.match(block_hashes, len(block_hashes))
        if self.tiers is not None:
            reach = self.tiers.match(block_hashes, matched, len(block_hashes))
        if not reach:
            return None
        tokens = reach * self.kv.block_size
        sequence = Sequence(Request(request_id, tokens, 1, block_hashes[:reach]), queued_ns=now_ns)
        self.kv.admit(sequence, matched, matched)
        sequence.computed = tokens
        sequence.loaded_ns = now_ns
        if self.tiers is not None and reach > matched:
            plan = self.tiers.load(block_hashes[matched:reach])
            sequence.loaded_ns += plan.duration_ns
            sequence.load_picojoules = plan.picojoules
            self.transfers.start(now_ns, plan.duration_ns, plan.picojoules)
        sequence.status = Status.HELD
        sequence.held_until_ns = now_ns + hold_ns
        self._holds.add(sequence)
        return sequence

    def take_events(self) -> list[KvEvent]:
        """What happened to cached blocks since the last call, if events are recorded."""
        events = self._events.copy()
        self._events.clear()
        return events

    def set_clock(self, mhz: int, now_ns: int) -> int:
        """Set the SM clock from the next step on; returns it as clamped to the device's range."""
        self._model = self._nominal.at_clock(mhz)
        self._costs = StepCosts.of(self._model)
        self.energy.set_clock(now_ns, self._model)
        return self._model.clock_mhz

    def sleep(self, level: SleepLevel, now_ns: int) -> list[Sequence]:
        """Abort what is in flight and sleep; from level 1 on the prefix cache and what is held are lost.

        Returns what was aborted.

        Requests submitted while it sleeps wait for `wake`, as in vLLM.
        """
        aborted = [s for s in (self.abort(i, now_ns) for i in list(self._sequences)) if s is not None]
        self._decode_is_next = False
        if level >= SleepLevel.WEIGHTS_OFFLOADED:
            for sequence in self._holds.pop_all():
                self._let_go(sequence)
            if self.tiers is not None:
                self.tiers.forget()
            self.kv.forget()
            if self.encoder is not None:
                self.encoder.cache.forget()
        self._sleep_level = level
        self.energy.set_asleep(now_ns, level >= SleepLevel.WEIGHTS_OFFLOADED)
        return aborted

    def wake(self, now_ns: int) -> None:
        """Schedule again."""
        self._sleep_level = None
        self.energy.set_asleep(now_ns, asleep=False)

    def step(self, now_ns: int) -> StepResult | None:
        """Compute the step that starts now; None if there is nothing to do.

        Raises:
            ValueError: if the step before has not ended by then.
        """
        if now_ns < self.energy.settled_ns:
            raise ValueError(f"step at {now_ns} ns, but time is settled up to {self.energy.settled_ns} ns")
        self._retire()
        for sequence in self._holds.pop_expired(now_ns):
            self.external.expired_holds += 1
            self._let_go(sequence)
        if self._sleep_level is not None:
            return None
        while True:
            if not self._prefilling and not (self._decode_is_next and self._decoding):
                self._admit(now_ns)
            if self._prefilling:
                if self.encoder is not None and any(map(self.encoder.has_work, self._prefilling)):
                    return self._encode(now_ns, self.encoder)
                return self._prefill(now_ns)
            if not self._decoding:
                return None
            preempted = self._make_room()
            self._sources.offload(now_ns)
            if self._decoding:
                return self._decode(now_ns, preempted)
            # Loads and holds have the rest of the memory; a load that has ended may join.
            self._decode_is_next = False

    def _retire(self) -> None:
        if not self._retiring:
            return
        for sequence in self._retiring:
            del self._sequences[sequence.request.request_id]
            if sequence.request.hold_ns is None:
                self._let_go(sequence)
            else:
                sequence.status = Status.HELD
                sequence.held_until_ns = (sequence.finished_ns or 0) + sequence.request.hold_ns
                self._holds.add(sequence)
        self._retiring.clear()
        self._decoding = [s for s in self._decoding if s.status is Status.DECODING]

    def _let_go(self, sequence: Sequence) -> None:
        self._free(sequence)
        sequence.status = Status.FINISHED

    def _free(self, sequence: Sequence) -> None:
        self.kv.release(sequence)
        self._starved = False

    def _admit(self, now_ns: int) -> None:
        """First come, first served: the head of the queue is never overtaken."""
        self._join_loaded(now_ns)
        self._admit_waiting(now_ns)
        # A load may take no time.
        self._join_loaded(now_ns)

    def _admit_waiting(self, now_ns: int) -> None:
        waiting, block_size = self._waiting, self.kv.block_size
        while waiting and self.num_running < self.max_num_seqs:
            sequence = waiting[0]
            if sequence.queued_ns > now_ns:
                return
            target = sequence.request.prompt_tokens + sequence.generated
            # The last token is always computed: its output is the next token.
            matched = self.kv.match(sequence.request.block_hashes, (target - 1) // block_size)
            # An encoder has no KV.
            blocks = 0 if sequence.request.encode_only else -(-target // block_size)
            if not self.kv.admit(sequence, matched, blocks):
                self._starved = True
                return
            waiting.popleft()
            sequence.prefill_target = target
            sequence.computed = matched * block_size
            first_time = sequence.scheduled_ns is None
            if first_time:
                sequence.cached_tokens = sequence.computed
                self.counters.prefix_queries += target
                self.counters.prefix_hits += sequence.computed
            loads = self._sources.load(sequence, now_ns, first_time=first_time)
            # After the load has used its blocks, so that none of them makes room for what was evicted for it.
            self._sources.offload(now_ns)
            if self.encoder is not None and sequence.request.images:
                loads = self._sources.load_embeddings(sequence, self.encoder, now_ns, first_time=first_time) or loads
            if loads:
                sequence.status = Status.LOADING
                self._loading.add(sequence)
                continue
            sequence.status = Status.PREFILLING
            if first_time:
                sequence.scheduled_ns = now_ns
            self._prefilling.append(sequence)

    def _join_loaded(self, now_ns: int) -> None:
        """Take sequences whose loads have ended into the batch."""
        while self.num_running < self.max_num_seqs and (sequence := self._loading.take_ready(now_ns)) is not None:
            self._sources.taken(sequence)
            sequence.computed += sequence.loading_tokens
            sequence.loading_tokens = 0
            self.kv.publish(sequence)
            if sequence.scheduled_ns is None:
                sequence.scheduled_ns = now_ns
            if sequence.computed == sequence.prefill_target - 1:
                sequence.status = Status.DECODING
                self._decoding.append(sequence)
            else:
                sequence.status = Status.PREFILLING
                self._prefilling.append(sequence)

    def _encode(self, now_ns: int, encoder: Encoder) -> StepResult:
        work = encoder.step(self._prefilling, self.max_num_batched_tokens)
        done = [s for s in self._prefilling if s.request.encode_only and not s.images_to_encode]
        for sequence in done:
            self._prefilling.remove(sequence)
            sequence.status = Status.DECODING
            sequence.generated += 1
            self._decoding.append(sequence)
        self._decode_is_next = not self._prefilling
        return self._finish_step(
            Phase.ENCODE, now_ns, work.duration_ns, work.picojoules, work.tokens, work.participants, 0, done, ()
        )

    def _prefill(self, now_ns: int) -> StepResult:
        budget = self.max_num_batched_tokens
        chunks: list[tuple[Sequence, int, int]] = []
        tokens = squares = 0
        for sequence in self._prefilling:
            chunk = min(sequence.prefill_target - sequence.computed, budget - tokens)
            if not chunk:
                break
            # Attention of a chunk reads what is computed already, so that the chunks' squares add up to n².
            square = (sequence.computed + chunk) ** 2 - sequence.computed**2
            chunks.append((sequence, chunk, square))
            tokens += chunk
            squares += square
        costs = self._costs
        duration = costs.prefill_ns(tokens, len(chunks), squares)
        share, remainder = divmod(costs.prefill_base_picojoules, len(chunks))
        chunks[0][0].picojoules += remainder
        emitted = []
        for sequence, chunk, square in chunks:
            sequence.picojoules += (
                share + costs.prefill_picojoules_per_token * chunk + costs.prefill_picojoules_per_square * square
            )
            sequence.computed += chunk
            self.kv.publish(sequence)
            if sequence.computed == sequence.prefill_target:
                self._prefilling.popleft()
                sequence.status = Status.DECODING
                sequence.generated += 1
                self._decoding.append(sequence)
                emitted.append(sequence)
        self._decode_is_next = not self._prefilling
        self.counters.prefill_tokens += tokens
        self.counters.prefill_ns += duration
        energy = (
            costs.prefill_base_picojoules
            + costs.prefill_picojoules_per_token * tokens
            + costs.prefill_picojoules_per_square * squares
        )
        return self._finish_step(Phase.PREFILL, now_ns, duration, energy, tokens, len(chunks), 0, emitted, ())

    def _decode(self, now_ns: int, preempted: tuple[Sequence, ...]) -> StepResult:
        costs, decoding, block_size = self._costs, self._decoding, self.kv.block_size
        batch = len(decoding)
        kv_tokens = 0
        share, remainder = divmod(costs.decode_base_picojoules, batch)
        decoding[0].picojoules += remainder
        share += costs.decode_picojoules_per_request
        per_cached_token = costs.decode_picojoules_per_cached_token
        for sequence in decoding:
            computed = sequence.computed
            kv_tokens += computed
            sequence.picojoules += share + per_cached_token * computed
            sequence.computed = computed + 1
            sequence.generated += 1
            if (computed + 1) % block_size == 0:
                self.kv.publish(sequence)
        self._decode_is_next = False
        duration = costs.decode_ns(batch, kv_tokens)
        self.counters.decode_tokens += batch
        self.counters.decode_ns += duration
        energy = (
            costs.decode_base_picojoules + costs.decode_picojoules_per_request * batch + per_cached_token * kv_tokens
        )
        return self._finish_step(Phase.DECODE, now_ns, duration, energy, batch, batch, kv_tokens, decoding, preempted)

    def _finish_step(
        self,
        phase: Phase,
        now_ns: int,
        duration_ns: int,
        picojoules: int,
        tokens: int,
        participants: int,
        kv_tokens: int,
        emitted: list[Sequence],
        preempted: tuple[Sequence, ...],
    ) -> StepResult:
        end_ns = now_ns + duration_ns
        finished = [s for s in emitted if s.generated == s.request.output_tokens]
        first = [s for s in emitted if s.first_token_ns is None]
        for sequence in first:
            sequence.first_token_ns = end_ns
        for sequence in finished:
            sequence.finished_ns = end_ns
        self._retiring.extend(finished)
        self.energy.step(now_ns, duration_ns, picojoules)
        return StepResult(
            phase=phase,
            start_ns=now_ns,
            duration_ns=duration_ns,
            picojoules=picojoules,
            tokens=tokens,
            participants=participants,
            kv_tokens=kv_tokens,
            emitted=tuple(emitted),
            first_tokens=tuple(first),
            finished=tuple(finished),
            preempted=preempted,
        )

    def _make_room(self) -> tuple[Sequence, ...]:
        """Give every sequence that starts a block one more; preempt the newest until that works."""
        decoding, block_size = self._decoding, self.kv.block_size
        preempted: list[Sequence] = []
        full = [s for s in decoding if s.computed % block_size == 0 and s.computed == s.block_count * block_size]
        for sequence in full:
            if sequence.status is not Status.DECODING:
                continue
            while not self.kv.grow(sequence):
                victim = decoding.pop()
                self._preempt(victim)
                preempted.append(victim)
                if victim is sequence:
                    break
        return tuple(preempted)

    def _preempt(self, sequence: Sequence) -> None:
        self._free(sequence)
        sequence.status = Status.WAITING
        sequence.computed = 0
        sequence.preemptions += 1
        self.counters.preemptions += 1
        self._waiting.appendleft(sequence)


def _check_external(request: Request) -> None:
    """Raise InvalidInputError for external KV or a hold that cannot be."""
    external = request.external
    if external is not None:
        if not 1 <= external.tokens <= request.prompt_tokens:
            raise InvalidInputError(
                "external.tokens", f"must be 1 to the {request.prompt_tokens} of the prompt, got {external.tokens}"
            )
        if external.load_ns < 0 or external.load_picojoules < 0:
            raise InvalidInputError("external", "its time and energy must not be negative")
    if request.hold_ns is not None and request.hold_ns < 0:
        raise InvalidInputError("hold_ns", f"must not be negative, got {request.hold_ns}")
