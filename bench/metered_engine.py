"""The picker's energy meter on the simulator's engine, in virtual time: the meter's real code, and the truth beside it.

The engine steps on its own clock of nanoseconds. The meter is called as in a picker: requests are routed and end, pages
are scraped at one interval, counters change at another, and progress is looked at once a tick.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliotrope.engine.counters import CounterLimits
from heliotrope.engine.model import EngineModel
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.metering.meter import EnergyMeter
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, RequestEnergy
from heliotrope_epp.outcomes.finished import UNSTEERED, FinishedRequest
from heliotrope_epp.outcomes.meter import Routed
from heliotrope_epp.outcomes.sinks import Sinks
from heliotrope_epp.transport.interface import Cause, Progress
from heliotrope_sim.engine import Engine, Request, StepResult
from heliotrope_sim.engine import Sequence as Running
from heliotrope_sim.engine.fixed_point import NANOSECONDS_PER_SECOND, nanoseconds, seconds

ENDPOINT = "bench/engine"
UNIX_OFFSET_S = 1_700_000_000.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One request of the load."""

    at_s: float
    prompt_tokens: int
    output_tokens: int
    believed_tokens: int
    """What a picker makes of its bytes."""
    streamed: bool = True
    picker: int = 0
    """Which of several pickers sends it; -1: a client that goes past them all."""
    block_hashes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was attributed to a request, and what it truly drew."""

    arrival: Arrival
    energy: RequestEnergy | None
    true_joules: float


@dataclass(slots=True, eq=False)
class _InFlight:
    arrival: Arrival
    sequence: Running
    dispatched_s: float
    due_s: float
    delivered: int = 0
    first_s: float | None = None
    last_s: float | None = None


@dataclass(slots=True)
class _Picker:
    """One picker's meter and what it told."""

    meter: EnergyMeter
    state: EndpointState
    flying: dict[_InFlight, None] = field(default_factory=dict)
    energies: dict[str, RequestEnergy | None] = field(default_factory=dict)
    intervals: list[MeteredInterval] = field(default_factory=list)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.energies[request.request_id] = energy

    def metered(self, interval: MeteredInterval) -> None:
        self.intervals.append(interval)


class MeteredEngine:
    """One engine, one or more pickers.

    Args:
        model: of the engine.
        known: the model that pickers have of it; None: they have none.
        counter_s: between two changes of the energy counter, as pickers see it.
        page_s: between two scrapes of the engine's page.
        pickers: how many send it requests.
        limits: of the meters' counters.
    """

    TICK_S = 0.2
    KEPT_S = 5.0
    """Virtual time after the last request, for what is settled late; the counter's interval comes on top."""

    def __init__(
        self,
        model: EngineModel,
        *,
        known: EngineModel | None,
        counter_s: float,
        page_s: float = 0.2,
        pickers: int = 1,
        limits: CounterLimits | None = None,
    ) -> None:
        self.engine = Engine(model)
        self._counter_s, self._page_s = counter_s, page_s
        self._now_s = 0.0
        self._counter_mj, self._counter_due_s = 0, 0.0
        self._page_due_s = self._tick_due_s = 0.0
        self._first_tokens = self._prompt_tokens = self._cached_tokens = self._generated = 0
        self._flying: dict[str, _InFlight] = {}
        self._ids = 0
        self._iterations = 0
        self.outcomes: list[Outcome] = []
        self.steps: list[StepResult] = []
        """All that the engine made, in order."""
        self._done: list[tuple[_InFlight, str]] = []
        self.pickers = [self._picker(known, limits or MeteringSettings().limits) for _ in range(pickers)]

    def _picker(self, known: EngineModel | None, limits: CounterLimits) -> _Picker:
        clock = Clock(monotonic=lambda: self._now_s, unix=lambda: UNIX_OFFSET_S + self._now_s)
        state = EndpointState(Endpoint("engine", "bench", "10.0.0.1", 8000), Traits(engine=known))
        sinks = Sinks()
        meter = EnergyMeter(
            sinks,
            MeteringSettings(tick_s=self.TICK_S, limits=limits),
            progress=lambda: [_progress(flying) for flying in picker.flying],
            node_readings=dict,
            clock=clock,
        )
        picker = _Picker(meter, state)
        sinks.add(picker)
        meter.added(state)
        return picker

    @property
    def busy_seconds(self) -> float:
        """Time in steps so far."""
        return seconds(self.engine.counters.prefill_ns + self.engine.counters.decode_ns)

    def run(self, arrivals: Sequence[Arrival]) -> list[Outcome]:
        """Serve a load to its end and wait until all is settled; outcomes in order of completion."""
        pending = list(reversed(arrivals))
        engine_ns = 0
        while pending or self._flying:
            while pending and nanoseconds(pending[-1].at_s) <= engine_ns:
                self._submit(pending.pop())
            result = self.engine.step(engine_ns)
            if result is None:
                if not pending:
                    raise RuntimeError("requests in flight that the engine does not serve")
                engine_ns = max(engine_ns, nanoseconds(pending[-1].at_s))
                self._look_until(seconds(engine_ns))
                continue
            # What arrives meanwhile is routed when it arrives and waits for the step's end.
            while pending and nanoseconds(pending[-1].at_s) < result.end_ns:
                self._look_until(pending[-1].at_s)
                self._submit(pending.pop())
            self._look_until(result.end_ns / NANOSECONDS_PER_SECOND)
            self._deliver(result)
            engine_ns = result.end_ns
        self.engine.step(engine_ns)  # lets go of what has finished
        self._look_until(self._now_s + self._counter_s * 2.0 + self.KEPT_S)
        for picker in self.pickers:
            picker.meter.flush()
        self.outcomes = [
            Outcome(
                flying.arrival,
                self.pickers[flying.arrival.picker].energies[name] if flying.arrival.picker >= 0 else None,
                flying.sequence.joules,
            )
            for flying, name in self._done
        ]
        return self.outcomes

    def _submit(self, arrival: Arrival) -> None:
        self._ids += 1
        name = str(self._ids)
        request = Request(name, arrival.prompt_tokens, arrival.output_tokens, arrival.block_hashes)
        model = self.engine.model
        waiting = self.engine.queued_tokens + arrival.prompt_tokens
        due_s = arrival.at_s + float(model.prefill_seconds(float(waiting)))
        flying = _InFlight(arrival, self.engine.submit(request, nanoseconds(arrival.at_s)), arrival.at_s, due_s)
        self._flying[name] = flying
        if arrival.picker >= 0:
            picker = self.pickers[arrival.picker]
            picker.flying[flying] = None
            picker.meter.routed(
                flying,
                Routed(
                    endpoint=ENDPOINT,
                    model="m",
                    streaming=arrival.streamed,
                    prompt_tokens=float(arrival.believed_tokens),
                    cached_tokens=0.0,
                    dispatched_s=arrival.at_s,
                    first_token_due_s=due_s,
                ),
            )

    def _deliver(self, result: StepResult) -> None:
        now_s = result.end_ns / NANOSECONDS_PER_SECOND
        for sequence in result.first_tokens:
            self._first_tokens += 1
            self._prompt_tokens += sequence.request.prompt_tokens
            self._cached_tokens += sequence.cached_tokens
        self._generated += len(result.emitted)
        self._iterations += 1
        self.steps.append(result)
        for sequence in result.emitted:
            flying = self._flying[sequence.request.request_id]
            flying.delivered += 1
            flying.last_s = now_s
            if flying.first_s is None:
                flying.first_s = now_s
        self._now_s = max(self._now_s, now_s)
        for sequence in result.finished:
            name = sequence.request.request_id
            flying = self._flying.pop(name)
            self._done.append((flying, name))
            if flying.arrival.picker >= 0:
                picker = self.pickers[flying.arrival.picker]
                del picker.flying[flying]
                picker.meter.ended(flying, _finished(flying, name, now_s))

    def _look_until(self, until_s: float) -> None:
        """Scrapes and ticks that fall before a time."""
        while True:
            due_s = min(self._page_due_s, self._tick_due_s)
            if due_s >= until_s:
                self._now_s = max(self._now_s, until_s)
                return
            self._now_s = max(self._now_s, due_s)
            if self._page_due_s <= due_s:
                self._page_due_s += self._page_s
                page = self._page(due_s)
                for picker in self.pickers:
                    picker.state.metrics = page
                    picker.state.inflight_at_scrape = len(picker.flying)
            else:
                self._tick_due_s += self.TICK_S
                for picker in self.pickers:
                    picker.meter.tick(due_s)

    def _page(self, now_s: float) -> EngineMetrics:
        engine, now_ns = self.engine, nanoseconds(now_s)
        if now_s >= self._counter_due_s:
            self._counter_due_s = now_s + self._counter_s - 1e-9
            self._counter_mj = engine.energy.millijoules(now_ns)
        gpus = engine.model.tensor_parallel
        usage = engine.kv_tokens
        return EngineMetrics(
            scraped_s=now_s,
            running=float(engine.num_running),
            waiting=float(engine.num_waiting),
            kv_usage=usage / engine.model.kv_capacity_tokens,
            block_size=engine.model.block_size,
            num_blocks=engine.kv.capacity_blocks,
            prompt_tokens_total=float(self._prompt_tokens),
            computed_prompt_tokens_total=float(self._prompt_tokens - self._cached_tokens),
            first_tokens_total=float(self._first_tokens),
            generation_tokens_total=float(self._generated),
            iterations_total=float(self._iterations),
            accelerators=tuple((f"gpu-{i}", (self._counter_mj + i) // gpus) for i in range(gpus)),
            power_watts=float(engine.energy.watts(now_ns)),
            sm_clock_mhz=float(engine.model.clock_mhz),
            asleep=False,
        )


def _progress(flying: _InFlight) -> Progress:
    streamed = flying.arrival.streamed
    return Progress(
        ctx=flying,
        received_s=flying.dispatched_s,
        routed_s=flying.dispatched_s,
        chunks=flying.delivered if streamed else 0,
        body_bytes=0,
        first_s=flying.first_s if streamed else None,
        last_s=flying.last_s if streamed else None,
    )


def _finished(flying: _InFlight, name: str, now_s: float) -> FinishedRequest:
    arrival = flying.arrival
    return FinishedRequest(
        request_id=name,
        model="m",
        tenant="",
        request_class="",
        arm=UNSTEERED,
        policy=None,
        endpoint=ENDPOINT,
        variant=None,
        region=None,
        streaming=arrival.streamed,
        dispatched_s=flying.dispatched_s,
        first_s=flying.first_s if arrival.streamed else now_s,
        last_s=now_s,
        ended_s=now_s,
        dispatched_unix_s=UNIX_OFFSET_S + flying.dispatched_s,
        ended_unix_s=UNIX_OFFSET_S + now_s,
        status=200,
        cause=Cause.COMPLETE,
        believed_prompt_tokens=arrival.believed_tokens,
        believed_cached_tokens=0.0,
        expected_output_tokens=128.0,
        prompt_tokens=arrival.prompt_tokens,
        cached_tokens=flying.sequence.cached_tokens,
        output_tokens=arrival.output_tokens,
        expected=None,
    )
