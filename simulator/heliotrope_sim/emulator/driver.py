"""Runs one engine in time: steps it, waits for each step's end, and hands its tokens over."""

import asyncio
import logging
from collections import OrderedDict
from dataclasses import dataclass

from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator.clock import EngineClock
from heliotrope_sim.emulator.config import EngineConfig, max_model_len
from heliotrope_sim.emulator.errors import queue_full
from heliotrope_sim.emulator.generation import ABORTED, Generation
from heliotrope_sim.emulator.metrics import EngineMetrics
from heliotrope_sim.engine import Engine, SleepLevel, StepResult
from heliotrope_sim.engine.fixed_point import seconds

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """What a request truly took, for whoever wants to check an estimate."""

    response_id: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    preemptions: int
    queued_seconds: float
    """Engine time of its arrival; the others count from here."""
    ttft_seconds: float | None
    e2e_seconds: float
    joules: float
    """Its share of the steps it took part in; idle energy belongs to nobody."""


class EngineDriver:
    """One engine with its clock, its requests and the task that steps it."""

    FINISHED_LIMIT = 10_000

    def __init__(self, config: EngineConfig, model: EngineModel) -> None:
        self.config = config
        self.served_model = config.model or model.model
        self.max_model_len = max_model_len(config, model)
        self.clock = EngineClock(config.time_scale)
        self.engine = Engine(
            model, max_num_seqs=config.max_num_seqs, max_num_batched_tokens=config.max_num_batched_tokens
        )
        if config.sm_clock_mhz is not None:
            self.engine.set_clock(config.sm_clock_mhz, now_ns=0)
        self.metrics = EngineMetrics(config.name, self.served_model, self.engine, self.max_model_len)
        self.finished: OrderedDict[str, FinishedRequest] = OrderedDict()
        self.forgotten = 0
        """Finished requests that had to make room for newer ones."""
        self._generations: dict[str, Generation] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to step."""
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

    @property
    def running(self) -> bool:
        """Whether the stepping task lives."""
        return self._task is not None and not self._task.done()

    def admit(self) -> None:
        """Refuse a request when too many are unfinished.

        Raises:
            ApiError: 503.
        """
        if len(self._generations) >= self.config.max_num_queued_reqs:
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

    def set_clock(self, mhz: int) -> int:
        """Set the SM clock; returns it as clamped to the device's range."""
        return self.engine.set_clock(mhz, self.meter_ns(self.clock.now_ns()))

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
            result = self.engine.step(now_ns)
            if result is None:
                work_ns = await self._next_work()
                now_ns = max(work_ns, self.engine.energy.settled_ns)
                continue
            await asyncio.sleep(max(0.0, self.clock.wall_seconds_until(result.end_ns)))
            lateness = -self.clock.wall_seconds_until(result.end_ns)
            self._deliver(result)
            self.metrics.step_done(result, lateness)
            # It may have slept and woken since the step's end.
            now_ns = max(result.end_ns, self.engine.energy.settled_ns)

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
        self.metrics.request_done(generation, client_left=client_left)
        sequence = generation.sequence
        if sequence is None:
            return
        end_ns = generation.last_token_ns if generation.finish_reason != ABORTED else sequence.finished_ns or 0
        first_ns = sequence.first_token_ns
        self.finished[generation.identity.response_id] = FinishedRequest(
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
        )
        if len(self.finished) > self.FINISHED_LIMIT:
            self.finished.popitem(last=False)
            self.forgotten += 1
