"""Runs one engine in time: steps it, waits for each step's end, and hands its tokens over."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Sequence as Ordered
from dataclasses import dataclass, replace

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator.clock import EngineClock
from heliotrope_sim.emulator.config import EngineConfig, max_model_len
from heliotrope_sim.emulator.errors import queue_full
from heliotrope_sim.emulator.generation import ABORTED, Generation
from heliotrope_sim.emulator.gpus import EngineGpus, Group
from heliotrope_sim.emulator.kv_event_publisher import KvEventPublisher
from heliotrope_sim.emulator.kv_event_wire import BatchEncoder
from heliotrope_sim.emulator.metrics import EngineMetrics
from heliotrope_sim.engine import Engine, Sequence, SleepLevel, Status, StepResult
from heliotrope_sim.engine.fixed_point import joules, seconds
from heliotrope_sim.engine.network import Network, Port

logger = logging.getLogger(__name__)

SENT = "sent"
"""How requests of other engines end here, whose KV or embeddings came from this one."""


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """What a request truly took, for whoever wants to check an estimate."""

    response_id: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens that were not computed."""
    output_tokens: int
    preemptions: int
    queued_seconds: float
    """Engine time of its arrival; the others count from here."""
    ttft_seconds: float | None
    e2e_seconds: float
    joules: float
    """Its share of the steps it took part in, its loads and what was sent of it; idle energy belongs to nobody."""
    external_tokens: int = 0
    """Those of `cached_tokens` that were loaded from tiers or other engines."""
    external_source: str | None = None
    """The farthest place that they came from."""
    sent_joules: float = 0.0
    """Those of `joules` for sending its KV or embeddings to another engine."""


class EngineDriver:
    """One engine with its clock, its requests and the task that steps it."""

    FINISHED_LIMIT = 10_000

    def __init__(self, config: EngineConfig, model: EngineModel, gpus: Group | None = None) -> None:
        """Nothing runs yet; `gpus` are those of a driver that its clock follows and its energy is told to."""
        self.config = config
        self.served_model = config.model or model.model
        self.max_model_len = max_model_len(config, model)
        self.clock = EngineClock(config.time_scale)
        self.engine = Engine(
            model,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            encoder=None if config.encoder is None else config.encoder.encoder(),
            tiers=() if config.offload is None else config.offload.specs(model),
            record_events=config.kv_events is not None,
        )
        if config.sm_clock_mhz is not None:
            self.engine.set_clock(config.sm_clock_mhz, now_ns=0)
        self.events: KvEventPublisher | None = None
        """None: it tells nobody of its KV cache."""
        if config.kv_events is not None:
            self.events = KvEventPublisher(config.kv_events)
            self._encoder = BatchEncoder(
                arrays=config.kv_events.event_format == "array",
                data_parallel_rank=config.kv_events.data_parallel_rank,
            )
        self.gpus = None if gpus is None else EngineGpus(gpus, self.engine, self._meter_now_ns)
        """None: it has a clock of its own."""
        self.metrics = EngineMetrics(
            config.name, self.served_model, self.engine, self.max_model_len, self.events, self.gpus
        )
        self.finished: OrderedDict[str, FinishedRequest] = OrderedDict()
        self.forgotten = 0
        """Finished requests that had to make room for newer ones."""
        self._generations: dict[str, Generation] = {}
        self._loading: dict[str, Generation] = {}
        """Those whose KV has yet to come from outside."""
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._exchanges: asyncio.Task[None] | None = None

    def share_links(self, network: Network, clock: EngineClock) -> None:
        """Load from other engines over links that these use too; `clock` is the network's, as fast as the engine's."""
        self.engine.share_links(Port(network, clock.ns_at_zero_of(self.clock)), self._wake.set)

    def start(self) -> None:
        """Begin to step.

        Raises:
            InvalidInputError: if the sockets of its KV events cannot be opened.
        """
        if self.events is not None:
            self.events.start()
        if self.gpus is not None:
            self.gpus.exchange()
            self._exchanges = asyncio.create_task(self.gpus.run(), name=f"GPUs of {self.config.name}")
        self._task = asyncio.create_task(self._run(), name=f"engine {self.config.name}")

    async def stop(self) -> None:
        """Stop stepping; what is in flight ends as aborted."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        for generation in list(self._generations.values()):
            self.abort(generation)
            generation.drop()
        if self._exchanges is not None:
            self._exchanges.cancel()
            await asyncio.gather(self._exchanges, return_exceptions=True)
            self._exchanges = None
        if self.gpus is not None:
            self.gpus.close()
            self.gpus = None
        if self.events is not None:
            await self.events.stop()

    @property
    def running(self) -> bool:
        """Whether the stepping task lives."""
        return self._task is not None and not self._task.done()

    @property
    def unfinished(self) -> int:
        """Requests that have not ended."""
        return len(self._generations)

    def admit(self) -> None:
        """Refuse a request when too many are unfinished.

        Raises:
            ApiError: 503.
        """
        if self.unfinished >= self.config.max_num_queued_reqs:
            self.metrics.rejections += 1
            raise queue_full()

    def submit(self, generation: Generation) -> None:
        """Queue a request.

        Raises:
            InvalidInputError: if it does not fit the engine.
        """
        now_ns = self.clock.now_ns()
        self.engine.energy.settle(self.meter_ns(now_ns))
        generation.sequence = self.engine.submit(generation.request, now_ns)
        self._generations[generation.request.request_id] = generation
        if generation.kv_settled is not None:
            self._loading[generation.request.request_id] = generation
        self._wake.set()

    def abort(self, generation: Generation) -> None:
        """Take a request out because its client has gone; nothing happens if it has ended."""
        if self._generations.pop(generation.request.request_id, None) is None:
            return
        # Whoever waits for its memory cannot have had it before now.
        self.engine.energy.settle(self.meter_ns(self.clock.now_ns()))
        self.engine.abort(generation.request.request_id, self.clock.now_ns())
        generation.finish_reason = ABORTED
        self._record(generation, client_left=True)
        self._wake.set()

    def fail(self, generation: Generation) -> None:
        """End a request whose KV did not come; nothing happens if it has ended."""
        if self._generations.pop(generation.request.request_id, None) is None:
            return
        self._settle()
        self.engine.abort(generation.request.request_id, self.clock.now_ns())
        generation.fail()
        self._record(generation)
        self._wake.set()

    def give_up_load(self, generation: Generation) -> None:
        """Compute KV that was to come from another engine."""
        self._settle()
        if self.engine.give_up_load(generation.request.request_id, self.clock.now_ns()):
            self._settle_load(generation.request.request_id)
            self._wake.set()

    def _settle(self) -> None:
        """Account up to now, so that what happens now changes nothing before."""
        self.engine.energy.settle(self.meter_ns(self.clock.now_ns()))

    def sleep(self, level: SleepLevel) -> None:
        """Put the engine to sleep; what is in flight is dropped."""
        for sequence in self.engine.sleep(level, self.meter_ns(self.clock.now_ns())):
            generation = self._generations.pop(sequence.request.request_id)
            generation.drop()
            self._record(generation)

    def wake_up(self) -> None:
        """Wake the engine."""
        self.engine.wake(self.meter_ns(self.clock.now_ns()))
        self._wake.set()

    def release(self, request_id: str) -> bool:
        """Let go of a finished request's KV, which was held for others; False if it is not held."""
        self.engine.energy.settle(self.meter_ns(self.clock.now_ns()))
        released = self.engine.release(request_id) is not None
        if released:
            self._wake.set()
        return released

    def renew(self, request_id: str, hold_ns: int) -> bool:
        """Hold a finished request's KV for `hold_ns` from now on; False if it is not held."""
        return self.engine.renew(request_id, self.clock.now_ns(), hold_ns)

    def hold_cached(
        self, request_id: str, block_hashes: Ordered[int], hold_ns: int, response_id: str
    ) -> Sequence | None:
        """Hold the cached beginning of a prompt for others to read; None if nothing of it is cached.

        What it takes to read it from tiers is accounted for under the response that it is for.
        """
        held = self.engine.hold_cached(request_id, block_hashes, self.clock.now_ns(), hold_ns)
        if held is not None:
            self._wake.set()
            if held.load_picojoules:
                self._remember_sent(response_id, joules(held.load_picojoules))
        return held

    def charge_sent(self, response_id: str, picojoules: int) -> None:
        """Account for KV or embeddings that were sent to another engine, under the response they were sent for."""
        self.engine.transfers.start(self.clock.now_ns(), 0, picojoules)
        self._remember_sent(response_id, joules(picojoules))

    def _remember_sent(self, response_id: str, sent: float) -> None:
        known = self.finished.get(response_id)
        if known is not None:
            self.finished[response_id] = replace(
                known, joules=known.joules + sent, sent_joules=known.sent_joules + sent
            )
            return
        self._remember(
            FinishedRequest(
                response_id=response_id,
                finish_reason=SENT,
                prompt_tokens=0,
                cached_tokens=0,
                output_tokens=0,
                preemptions=0,
                queued_seconds=seconds(self.clock.now_ns()),
                ttft_seconds=None,
                e2e_seconds=0.0,
                joules=sent,
                sent_joules=sent,
            )
        )

    def set_clock(self, mhz: int) -> int:
        """Set the SM clock; returns it as clamped to the device's range."""
        return self.engine.set_clock(mhz, self.meter_ns(self.clock.now_ns()))

    def page(self) -> str:
        """The page of metrics as of now; what it says of energy, the driver's counters have gained by then."""
        now_ns = self._meter_now_ns()
        if self.gpus is not None:
            self.gpus.exchange(now_ns)
        return self.metrics.page(now_ns)

    def _meter_now_ns(self) -> int:
        return self.meter_ns(self.clock.now_ns())

    def meter_ns(self, now_ns: int) -> int:
        """The time at which to read or switch the energy meter now.

        An engine with work that is late stands still until it catches up: the time in between is not idle.
        """
        work_ns = self.engine.next_work_ns
        return now_ns if work_ns is None else min(now_ns, max(work_ns, self.engine.energy.settled_ns))

    async def _run(self) -> None:
        try:
            await self._step_forever()
        except Exception:
            # Clients must not hang on an engine that has died; /health says so from now on.
            logger.exception("engine %s died", self.config.name)
            for generation in list(self._generations.values()):
                self.abort(generation)
                generation.drop()
            raise

    async def _step_forever(self) -> None:
        """Steps start where the last one ended or work became due, however late that was noticed.

        So lateness never adds up, and in engine time there is none.
        """
        now_ns = self.engine.energy.settled_ns
        while True:
            if self.gpus is not None:
                self.gpus.before_step()
            result = self.engine.step(now_ns)
            if self._loading:
                self._settle_loads(now_ns)
            if result is None:
                if self.engine.sleep_level is None:
                    self._publish_events()
                work_ns = await self._next_work()
                now_ns = max(work_ns, self.engine.energy.settled_ns)
                continue
            if self.gpus is not None:
                self.gpus.stepping(result)
            await asyncio.sleep(max(0.0, self.clock.wall_seconds_until(result.end_ns)))
            lateness = -self.clock.wall_seconds_until(result.end_ns)
            self._deliver(result)
            self._publish_events()
            self.metrics.step_done(result, lateness)
            # It may have slept and woken since the step's end.
            now_ns = max(result.end_ns, self.engine.energy.settled_ns)

    def _publish_events(self) -> None:
        """Tell what happened to cached blocks, at the end of a step, as vLLM does; what sleep clears is told after."""
        if self.events is not None and (events := self.engine.take_events()):
            self.events.publish(self._encoder.payload(events, time.time()))

    async def _next_work(self) -> int:
        """When the engine next has something to do; waits until then."""
        while True:
            self._wake.clear()
            work_ns = self.engine.next_work_ns
            delay = None if work_ns is None else self.clock.wall_seconds_until(work_ns)
            if work_ns is not None and delay is not None and delay <= 0:
                return work_ns
            try:
                await asyncio.wait_for(self._wake.wait(), delay)
            except TimeoutError:
                continue

    def _settle_loads(self, now_ns: int) -> None:
        """Tell those who wait for it that a request's KV has come, or need not come any more."""
        for request_id, generation in list(self._loading.items()):
            sequence = generation.sequence
            if (
                sequence is None
                or sequence.status is Status.WAITING
                or (sequence.status is Status.LOADING and sequence.loaded_ns > now_ns)
            ):
                continue
            self._settle_load(request_id)

    def _settle_load(self, request_id: str) -> None:
        generation = self._loading.pop(request_id, None)
        if generation is not None and generation.kv_settled is not None and not generation.kv_settled.done():
            generation.kv_settled.set_result(None)

    def _deliver(self, result: StepResult) -> None:
        now_ns, metrics = result.end_ns, self.metrics
        finished = set(result.finished)
        for sequence in result.emitted:
            generation = self._generations.get(sequence.request.request_id)
            if generation is None:
                # Aborted during the step.
                continue
            metrics.token_due(generation, now_ns)
            last = sequence in finished
            generation.deliver_token(now_ns, last=last)
            if last:
                del self._generations[sequence.request.request_id]
                self._record(generation)

    def _record(self, generation: Generation, *, client_left: bool = False) -> None:
        self._settle_load(generation.request.request_id)
        self.metrics.request_done(generation, client_left=client_left)
        sequence = generation.sequence
        if sequence is None:
            return
        end_ns = generation.last_token_ns if generation.complete else sequence.finished_ns or 0
        first_ns = sequence.first_token_ns
        self._remember(
            FinishedRequest(
                response_id=generation.identity.response_id,
                finish_reason=generation.finish_reason or "",
                prompt_tokens=sequence.request.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                output_tokens=generation.delivered,
                preemptions=sequence.preemptions,
                queued_seconds=seconds(sequence.queued_ns),
                ttft_seconds=seconds(first_ns - sequence.queued_ns)
                if first_ns is not None and generation.delivered
                else None,
                e2e_seconds=seconds(end_ns - sequence.queued_ns),
                joules=sequence.joules,
                external_tokens=sequence.external_tokens,
                external_source=sequence.external_source,
            )
        )

    def _remember(self, finished: FinishedRequest) -> None:
        earlier = self.finished.get(finished.response_id)
        if earlier is not None and earlier.finish_reason == SENT:
            # It sent what it had cached to the prefiller of a request that came back to it.
            finished = replace(
                finished,
                joules=finished.joules + earlier.joules,
                sent_joules=finished.sent_joules + earlier.sent_joules,
            )
        self.finished[finished.response_id] = finished
        if len(self.finished) > self.FINISHED_LIMIT:
            self.finished.popitem(last=False)
            self.forgotten += 1
