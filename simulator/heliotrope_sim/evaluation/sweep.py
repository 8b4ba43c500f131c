"""One engine under one load, in virtual time: what the picker saw of each request, and what then came true."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliotrope.decide.candidates import FloatColumn
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.predict.length_distribution import LengthContext
from heliotrope.predict.output_length import OutputLengths
from heliotrope.units import joules_from_millijoules
from heliotrope_sim.engine import Engine, Phase, StepResult
from heliotrope_sim.engine import Sequence as EngineSequence
from heliotrope_sim.engine.fixed_point import nanoseconds, seconds
from heliotrope_sim.evaluation.fleet import SweptEndpoint
from heliotrope_sim.evaluation.floor import TWINS, Outcome, twin
from heliotrope_sim.evaluation.lengths import Lengths, engine_request
from heliotrope_sim.evaluation.view import PickerView, Reading, ViewFactory

SCRAPE_INTERVAL_SECONDS = 0.2
"""The picker's default."""
WARM_UP_SHARE = 0.1
"""The first arrivals of a run meet an engine that is not yet in its steady state: they run but do not count."""
STEP_SAMPLE = 7
"""Every so many steps one is kept: neighbours are nearly equal."""

_POLICY = DecisionPolicy(name="evaluation")


@dataclass(frozen=True, slots=True)
class Observed:
    """One request of our own picker: what the decision knew of it, then the truth."""

    row: FloatColumn
    """What learned models see of it, `heliotrope.predict.features`, from the decision itself."""
    application: str
    met_step_seconds: float
    """Length of the step that ran when it arrived; 0 if none. What remains of it nobody outside can know."""
    ended_s: float
    output_tokens: int
    ttft_seconds: float
    tpot_seconds: float
    """NaN for answers of one token."""
    energy_joules: float


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """One step of the engine."""

    phase: Phase
    tokens: int
    participants: int
    kv_tokens: int
    power_watts: float
    """Of the last scrape before it."""
    joules: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """Everything observed of one run."""

    endpoint: SweptEndpoint
    utilisation: float
    """Arrivals per second over the measured capacity."""
    requests: tuple[Observed, ...]
    """In the order of their ends."""
    steps: tuple[ObservedStep, ...]
    twins: tuple[tuple[Outcome, ...], ...] = ()
    """Other futures of some of its requests."""
    own_share: float = 1.0
    """Of the arrivals, those that this picker routed."""


def sweep_run(
    endpoint: SweptEndpoint,
    *,
    arrivals: Iterator[Lengths],
    count: int,
    rate_per_second: float,
    utilisation: float,
    view: ViewFactory,
    rng: np.random.Generator,
    own_share: float = 1.0,
    twin_every: int = 0,
    other_futures: Callable[[np.random.Generator], Iterator[Lengths]] | None = None,
) -> RunResult:
    """Send `count` Poisson arrivals to an engine and follow them to their end.

    Args:
        endpoint: the engine and what the picker believes of it.
        arrivals: lengths of the requests.
        count: how many.
        rate_per_second: mean of the Poisson process.
        utilisation: kept in the result.
        view: makes the picker's view.
        rng: of gaps and of who sends what.
        own_share: share of the arrivals that this picker routes; the others come from elsewhere, and it sees them in
            scrapes alone.
        twin_every: every so many requests one gets twins; 0: none does.
        other_futures: makes the lengths that arrive in a twin's future.
    """
    run = _Run(endpoint, view, rng)
    times = nanoseconds_of(rng.exponential(1.0 / rate_per_second, count).cumsum())
    warm_up = int(count * WARM_UP_SHARE)
    twins: list[tuple[Outcome, ...]] = []
    own = rng.random(count) < own_share
    for i, (at_ns, lengths) in enumerate(zip(times, arrivals, strict=False)):
        run.advance(at_ns)
        run.arrive(i, at_ns, lengths, own=bool(own[i]), counts=i >= warm_up)
        if twin_every and other_futures is not None and i >= warm_up and i % twin_every == 0:
            futures = [np.random.default_rng([i, k, count]) for k in range(TWINS)]
            twins.append(tuple(run.twin(i, at_ns, other_futures(r), rate_per_second, r) for r in futures))
    run.drain()
    return RunResult(endpoint, utilisation, tuple(run.observed), tuple(run.steps), tuple(twins), own_share)


def nanoseconds_of(times_s: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    """Whole ns of times in seconds."""
    return [nanoseconds(t) for t in times_s.tolist()]


def saturated_rate(endpoint: SweptEndpoint, arrivals: Iterator[Lengths], count: int) -> float:
    """Measured capacity: requests per second that the engine completes while it never runs out of work.

    All `count` requests are there at once; the rate is taken between the first quarter and the third of completions,
    so that neither the filling nor the emptying of the batch counts.
    """
    engine = Engine(endpoint.engine)
    for i, lengths in zip(range(count), arrivals, strict=False):
        engine.submit(engine_request(f"r{i}", lengths, endpoint.engine.block_size), 0)
    ends: list[int] = []
    now_ns = 0
    while (step := engine.step(now_ns)) is not None:
        now_ns = step.end_ns
        ends += [now_ns] * len(step.finished)
    first, last = len(ends) // 4, 3 * len(ends) // 4
    return (last - first) / seconds(ends[last] - ends[first])


@dataclass(slots=True, eq=False)
class _Own:
    """A request of our own in flight."""

    lengths: Lengths
    context: LengthContext
    row: FloatColumn
    met_step_seconds: float
    dispatch: Any
    arrived_ns: int
    counts: bool


@dataclass(slots=True)
class _Followed:
    sequence: EngineSequence
    own: _Own | None


class _Run:
    def __init__(self, endpoint: SweptEndpoint, view: ViewFactory, rng: np.random.Generator) -> None:
        self._endpoint = endpoint
        self._engine = Engine(endpoint.engine)
        self._view: PickerView = view(endpoint.believed, endpoint.hardware)
        self._lengths = OutputLengths()
        self._in_flight: dict[str, _Followed] = {}
        self._seen_groups: set[int] = set()
        self._step: StepResult | None = None
        # A picker's scrapes know nothing of the engine's steps or of anybody's arrivals.
        self._next_scrape_ns = nanoseconds(SCRAPE_INTERVAL_SECONDS * float(rng.random()))
        self._scraped_ns = 0
        self._scraped_mj = 0
        self._scraped_watts = float("nan")
        self._step_count = 0
        self.observed: list[Observed] = []
        self.steps: list[ObservedStep] = []
        self._scrape(0)

    def arrive(self, number: int, now_ns: int, lengths: Lengths, *, own: bool, counts: bool) -> None:
        """A request comes: decide if it is ours, then submit."""
        request_id = f"r{number}"
        record = self._decide(request_id, now_ns, lengths, counts) if own else None
        block_size = self._endpoint.engine.block_size
        sequence = self._engine.submit(engine_request(request_id, lengths, block_size), now_ns)
        self._in_flight[request_id] = _Followed(sequence, record)
        if self._step is None:
            self._start(now_ns)

    def twin(
        self, number: int, now_ns: int, arrivals: Iterator[Lengths], rate_per_second: float, rng: np.random.Generator
    ) -> Outcome:
        """What another future makes of the request that has just arrived."""
        sequence = self._in_flight[f"r{number}"].sequence
        # An idle engine has begun a step with it already; its end is the first time at which anything can change.
        step_end_ns = None if self._step is None else self._step.end_ns
        return twin(self._engine, sequence, now_ns, step_end_ns, arrivals, rate_per_second, rng)

    def advance(self, until_ns: int) -> None:
        """Run steps and scrapes up to a time."""
        while True:
            step_ns = None if self._step is None else self._step.end_ns
            if step_ns is not None and step_ns <= min(self._next_scrape_ns, until_ns):
                self._finish(step_ns)
                self._start(step_ns)
            elif self._next_scrape_ns <= until_ns:
                self._scrape(self._next_scrape_ns)
                self._next_scrape_ns += nanoseconds(SCRAPE_INTERVAL_SECONDS)
            else:
                return

    def drain(self) -> None:
        """Run until nothing is in flight."""
        while self._step is not None:
            now_ns = self._step.end_ns
            self._finish(now_ns)
            self._start(now_ns)

    def _decide(self, request_id: str, now_ns: int, lengths: Lengths, counts: bool) -> _Own:
        now_s = seconds(now_ns)
        model = self._endpoint.engine.model
        cached = float(lengths.prefix_tokens) if lengths.prefix_group in self._seen_groups else 0.0
        if lengths.prefix_group >= 0:
            self._seen_groups.add(lengths.prefix_group)
        context = LengthContext(model, lengths.application, lengths.prompt_tokens, None, streaming=True)
        profile = RequestProfile(
            request_id=request_id,
            model=model,
            prompt_tokens=lengths.prompt_tokens,
            expected_output_tokens=self._lengths.expected_tokens(model, None, now_s, context),
            streaming=True,
        )
        candidates = self._view.candidates(cached, now_s)
        estimates = estimate(profile, candidates, _POLICY, now_s)
        self._lengths.started(model, now_s)
        believed = self._endpoint.believed
        uncached = max(lengths.prompt_tokens - cached, 1.0)
        prefill = 0.0 if believed is None else float(believed.prefill_seconds(uncached))
        ttft = float(estimates.ttft_seconds[0])
        dispatch = self._view.dispatched(
            now_s,
            prompt_tokens=float(lengths.prompt_tokens),
            uncached_tokens=uncached,
            prefill_seconds=prefill,
            first_token_due_s=now_s + (ttft if ttft == ttft else prefill),
            expected_output_tokens=profile.expected_output_tokens,
        )
        met = 0.0 if self._step is None else self._step.duration_seconds
        return _Own(lengths, context, estimates.features[0], met, dispatch, now_ns, counts)

    def _start(self, now_ns: int) -> None:
        step = self._step = self._engine.step(now_ns)
        if step is None:
            return
        self._step_count += 1
        if self._step_count % STEP_SAMPLE == 0 or step.phase is Phase.PREFILL:
            self.steps.append(
                ObservedStep(
                    step.phase, step.tokens, step.participants, step.kv_tokens, self._scraped_watts, step.joules
                )
            )

    def _finish(self, now_ns: int) -> None:
        step = self._step
        assert step is not None
        self._show(step, seconds(now_ns))
        for sequence in step.finished:
            followed = self._in_flight.pop(sequence.request.request_id)
            if followed.own is not None:
                self._end(followed.own, sequence, now_ns)

    def _show(self, step: StepResult, now_s: float) -> None:
        """First tokens each by itself; of the others one is enough, as all say the same: a step has ended."""
        for sequence in step.emitted:
            own = self._in_flight[sequence.request.request_id].own
            if own is not None:
                self._view.piece(own.dispatch, now_s)
                if not step.first_tokens:
                    return

    def _end(self, own: _Own, sequence: EngineSequence, now_ns: int) -> None:
        now_s = seconds(now_ns)
        self._view.ended(own.dispatch)
        tokens = own.lengths.output_tokens
        self._lengths.ended(self._endpoint.engine.model, seconds(own.arrived_ns), now_s, tokens, own.context)
        if not own.counts:
            return
        first_ns = sequence.first_token_ns
        assert first_ns is not None
        self.observed.append(
            Observed(
                row=own.row,
                application=own.lengths.application,
                met_step_seconds=own.met_step_seconds,
                ended_s=now_s,
                output_tokens=tokens,
                ttft_seconds=seconds(first_ns - own.arrived_ns),
                tpot_seconds=seconds(now_ns - first_ns) / (tokens - 1) if tokens > 1 else float("nan"),
                energy_joules=sequence.joules,
            )
        )

    def _scrape(self, now_ns: int) -> None:
        engine = self._engine
        millijoules = engine.energy.millijoules(now_ns)
        elapsed = now_ns - self._scraped_ns
        if elapsed:
            watts = joules_from_millijoules(float(millijoules - self._scraped_mj)) / seconds(elapsed)
        else:
            watts = engine.energy.watts(now_ns)
        self._scraped_ns, self._scraped_mj, self._scraped_watts = now_ns, millijoules, watts
        # An engine counts what it has computed once a step has ended.
        step = self._step
        under_way = step.tokens if step is not None and step.phase is Phase.PREFILL else 0
        reading = Reading(
            running=engine.num_running,
            waiting=engine.num_waiting,
            kv_usage=engine.kv_usage,
            block_size=engine.kv.block_size,
            num_blocks=engine.kv.capacity_blocks,
            energy_millijoules=millijoules,
            power_watts=watts,
            sm_clock_mhz=float(engine.model.clock_mhz),
            computed_prompt_tokens=engine.counters.prefill_tokens - under_way,
        )
        self._view.scraped(reading, seconds(now_ns))
