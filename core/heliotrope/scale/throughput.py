"""What one replica carries within the SLO: the largest load at which TTFT and TPOT keep their promises.

A queue model on the engine's step model. An iteration prefills what has arrived during the last one, which stalls the
batch, and then decodes one token for everybody (as `heliotrope_sim.engine` does, and vLLM without chunked prefill):

    T = s · A(T) + base · [A > 0] + t_dec(B),    A(T) Poisson with mean λT,    B = λ · (output - 1) · T

so that E[T] = (t_dec + base · P(A > 0)) / (1 - λs) and Var T = λ E[T] E[s²] / (1 - (λs)²). A request that arrives in an
iteration waits for the rest of it and for the prompts that came in it; TPOT is the mean of T over its life. Behind
that, requests wait for a free slot of the batch as in M/G/c (Erlang C, exponential tail). A prefill engine is an M/G/1
queue of prompts whose base cost is shared by those that wait together.

Docs: docs/autoscaling.md says how far this is from simulated engines.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from math import ceil, exp, inf, isfinite, lgamma, log, sqrt

import numpy as np

from heliotrope.api.v1alpha1.common import Role
from heliotrope.api.v1alpha1.workloadvariant import EnergyPoint, Phase
from heliotrope.engine.model import EngineModel
from heliotrope.scale.facts import Mix, ReplicaCapacity
from heliotrope.units import joules_from_watts

ATTAINMENT = 0.95
"""Share of requests that must keep each promise."""
LONGEST_CORRECTION = 3.0
"""Factor by which measured latencies move a prediction at most: a cold start teaches nothing wrong (dynamo#2511)."""
_NORMAL = 1.6449
"""Quantile of the standard normal distribution at `ATTAINMENT`."""
_GRID = (np.arange(64) + 0.5) / 64.0
_ROUNDS = 60
_BISECTIONS = 40


class Bound(StrEnum):
    """What limits a replica's throughput."""

    TTFT = "TTFT"
    TPOT = "TPOT"
    COMPUTE = "Compute"
    """Stability: more work arrives than is done."""
    NEVER = "Never"
    """A promise is broken even without any load."""


@dataclass(frozen=True, slots=True)
class Promise:
    """The SLO in seconds."""

    ttft_seconds: float
    tpot_seconds: float


@dataclass(frozen=True, slots=True)
class Correction:
    """Measured time as a factor of predicted time, by phase; what learned models or measurements say of an engine."""

    prefill: float = 1.0
    decode: float = 1.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Of an engine at a load."""

    stable: bool
    batch: float
    """Sequences that decode, on average."""
    ttft_seconds: float
    """Mean."""
    ttft_kept: float
    """Share of requests within the promised TTFT."""
    tpot_seconds: float
    """Mean."""
    tpot_quantile_seconds: float
    """At `ATTAINMENT`."""
    prefill_share: float
    """Share of time that computes prompts."""


@dataclass(frozen=True, slots=True)
class Throughput:
    """What a replica carries."""

    requests_per_second: float
    """0: not even one request keeps the SLO."""
    bound: Bound
    batch: float
    """At that load."""
    capacity: ReplicaCapacity


UNSTABLE = Latency(False, inf, inf, 0.0, inf, inf, 1.0)


def throughput(
    engine: EngineModel,
    mix: Mix,
    promise: Promise,
    role: Role = Role.BOTH,
    correction: Correction = Correction(),
) -> Throughput:
    """The largest load within the promise, by bisection: latencies grow with load.

    Args:
        engine: at the clock that it runs at.
        mix: of the requests.
        promise: of TTFT and TPOT. A prefill engine has to keep TTFT, a decode engine TPOT.
        role: phases that it serves.
        correction: of the model.
    """
    engine = corrected(engine, correction)

    def kept(rate: float) -> bool:
        return _broken(latency(engine, mix, rate, promise.ttft_seconds, role), promise, role) is None

    low, high = 0.0, _most(engine, mix, role)
    first = 1e-6 * high
    broken = _broken(latency(engine, mix, first, promise.ttft_seconds, role), promise, role)
    if broken is not None:
        return Throughput(0.0, Bound.NEVER, 0.0, _priced(engine, mix, 0.0, role))
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    above = latency(engine, mix, high * (1.0 + 1e-6), promise.ttft_seconds, role)
    at = latency(engine, mix, low, promise.ttft_seconds, role)
    return Throughput(low, _broken(above, promise, role) or Bound.COMPUTE, at.batch, _priced(engine, mix, low, role))


def from_measurements(
    points: tuple[EnergyPoint, ...], mix: Mix, promise: Promise, idle_watts: float | None, clock_mhz: int | None = None
) -> Throughput | None:
    """What a replica carries by its measured energy profile, where no engine model is known; None: not measured.

    The profile has tokens per second of a whole replica at its usual batch, which is taken to keep TPOT. Waiting for
    TTFT is that of an M/G/1 queue of prompts.

    Args:
        points: `WorkloadVariant.spec.energyProfile`.
        mix: of the requests.
        promise: only TTFT is looked at.
        idle_watts: None: unknown, and so is the energy above idle.
        clock_mhz: the SM clock; None: the highest that was measured.
    """
    chosen: dict[Phase, EnergyPoint] = {}
    for phase in Phase:
        measured = [point for point in points if point.phase is phase]
        if measured:
            wanted = max(point.sm_clock_mhz for point in measured) if clock_mhz is None else clock_mhz
            chosen[phase] = min(measured, key=lambda point: (abs(point.sm_clock_mhz - wanted), point.sm_clock_mhz))
    if not chosen:
        return None
    tokens = {Phase.PREFILL: mix.prompt_tokens, Phase.DECODE: max(mix.output_tokens - 1.0, 0.0)}
    seconds = {phase: tokens[phase] / point.tokens_per_second for phase, point in chosen.items()}
    joules = sum(tokens[phase] * point.joules_per_token for phase, point in chosen.items())
    whole = sum(seconds.values())
    if whole <= 0.0:
        return None
    prompt = seconds.get(Phase.PREFILL, 0.0)

    def kept(rate: float) -> bool:
        if rate * whole >= 1.0:
            return False
        wait = _Wait.of_one_server(rate * whole, whole, 1.0)
        return prompt == 0.0 or wait.kept(np.full(1, prompt), promise.ttft_seconds) >= ATTAINMENT

    if prompt > promise.ttft_seconds:
        return Throughput(0.0, Bound.NEVER, 0.0, ReplicaCapacity(0.0, None, idle_watts, None))
    low, high = 0.0, 1.0 / whole
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    above = None if idle_watts is None else max(joules - joules_from_watts(idle_watts, whole), 0.0)
    bound = Bound.COMPUTE if low > 0.999 / whole else Bound.TTFT
    return Throughput(low, bound, 0.0, ReplicaCapacity(low, above, idle_watts, None))


def correction_of(predicted: Promise, measured: Promise) -> Correction:
    """How far an engine is from its model, within bounds; from engines that have been up for a while only.

    Args:
        predicted: TTFT and TPOT of the model at the load that was measured.
        measured: the same, as measured; not positive or NaN: unknown, and nothing is corrected.
    """

    def factor(model: float, seen: float) -> float:
        if not (isfinite(model) and isfinite(seen) and model > 0.0 and seen > 0.0):
            return 1.0
        return min(max(seen / model, 1.0 / LONGEST_CORRECTION), LONGEST_CORRECTION)

    return Correction(
        factor(predicted.ttft_seconds, measured.ttft_seconds), factor(predicted.tpot_seconds, measured.tpot_seconds)
    )


def corrected(engine: EngineModel, correction: Correction) -> EngineModel:
    """The engine with its times multiplied."""
    if correction == Correction():
        return engine
    p, d = engine.prefill, engine.decode
    by, at = correction.prefill, correction.decode
    return replace(
        engine,
        prefill=replace(
            p,
            seconds_per_token_below=p.seconds_per_token_below * by,
            seconds_per_token_above=p.seconds_per_token_above * by,
            base_seconds=p.base_seconds * by,
            seconds_per_request=p.seconds_per_request * by,
            seconds_per_token_squared=p.seconds_per_token_squared * by,
        ),
        decode=replace(
            d,
            alpha_seconds=(d.alpha_seconds[0] * at, d.alpha_seconds[1] * at, d.alpha_seconds[2] * at),
            beta_seconds_per_token=(
                d.beta_seconds_per_token[0] * at,
                d.beta_seconds_per_token[1] * at,
                d.beta_seconds_per_token[2] * at,
            ),
        ),
    )


def latency(engine: EngineModel, mix: Mix, rate: float, ttft_seconds: float, role: Role = Role.BOTH) -> Latency:
    """Latencies of an engine at a load.

    Args:
        engine: the engine.
        mix: of the requests.
        rate: requests per second.
        ttft_seconds: the promised TTFT, for `ttft_kept`.
        role: phases that it serves.
    """
    if role is Role.PREFILL:
        return _prefill_only(engine, mix, rate, ttft_seconds)
    prompts = role is Role.BOTH
    steps = max(mix.output_tokens - (1.0 if prompts else 0.0), 0.0)
    each, second, base = _prompt_work(engine, mix) if prompts else (0.0, 0.0, 0.0)
    if rate * each >= 1.0:
        return UNSTABLE
    context = mix.prompt_tokens + 0.5 * (1.0 + mix.output_variation**2) * mix.output_tokens
    slots = _slots(engine, mix, context)

    def iteration(seconds: float) -> tuple[float, float]:
        batch = rate * steps * seconds
        busy = max(batch, 1.0)
        decode = float(engine.decode_seconds(busy, busy * context)) if steps > 0.0 else 0.0
        new = rate * seconds
        tokens = new * mix.prompt_tokens
        launches = max(1.0 - exp(-new), tokens / engine.max_num_batched_tokens)
        return (decode + base * launches) / (1.0 - rate * each), batch

    seconds = iteration(0.0)[0]
    for _ in range(_ROUNDS):
        longer, batch = iteration(seconds)
        if batch > slots:
            return UNSTABLE
        if abs(longer - seconds) <= 1e-9 * longer:
            break
        seconds = longer
    else:
        return UNSTABLE
    batch = rate * steps * seconds
    load = rate * each
    # Prompts come in numbers of their own; the first of a step brings the step's base along.
    alone = exp(-rate * seconds)
    squares = second + alone * (2.0 * each * base + base * base)
    cubes = each**3 * _third(mix) + alone * (3.0 * second * base + 3.0 * each * base * base + base**3)
    variance = rate * seconds * squares / (1.0 - load * load)
    skew = rate * seconds * cubes / (1.0 - load**3)
    more = iteration(seconds * (1.0 + 0.05))[0] - seconds
    slope = 0.0 if batch <= 0.0 else more / (0.05 * batch)
    slow = slope * slope * batch * 0.5
    # Short answers see few iterations, so that theirs is the spread that the quantile meets.
    lived = max(steps / (1.0 + 2.0 * mix.output_variation**2), 1.0)
    spread = sqrt(variance / lived * (1.0 + load) / (1.0 - load) + slow)
    tpot_quantile = seconds + _NORMAL * spread
    own = _own_prompt(engine, mix) if prompts else 0.0
    ratio = variance / (seconds * seconds)
    squared = seconds * seconds * (1.0 + ratio)
    cubed = seconds**3 + 3.0 * seconds * variance + skew
    rest = squared / (2.0 * seconds)
    others = each * rate * squared / seconds
    own_variance = max(second - each * each, 0.0)
    mean = rest + own + others
    ttft_variance = (
        max(cubed / (3.0 * seconds) - rest * rest, 0.0)
        + own_variance
        + rate * second * squared / seconds
        + (each * rate) ** 2 * max(cubed / seconds - (squared / seconds) ** 2, 0.0)
    )
    wait = _Wait.for_a_slot(batch, slots, steps * seconds, mix.output_variation)
    return Latency(
        True,
        batch,
        mean + wait.mean_seconds,
        wait.kept(_gamma_quantiles(mean, ttft_variance), ttft_seconds),
        seconds,
        tpot_quantile,
        load + (0.0 if seconds <= 0.0 else base * (1.0 - exp(-rate * seconds)) / seconds),
    )


@dataclass(frozen=True, slots=True)
class _Wait:
    """Waiting time: 0, or with `chance` exponential with mean `scale_seconds`."""

    chance: float
    scale_seconds: float

    @property
    def mean_seconds(self) -> float:
        return self.chance * self.scale_seconds

    @classmethod
    def for_a_slot(cls, busy: float, slots: float, seconds: float, variation: float) -> "_Wait":
        """M/G/c: Erlang C, and a tail by the variation of service times."""
        if seconds <= 0.0 or busy <= 0.0:
            return cls(0.0, 0.0)
        if busy >= slots:
            return cls(1.0, inf)
        servers = max(int(slots), 1)
        if busy >= servers:
            return cls(1.0, inf)
        scale = seconds * (1.0 + variation * variation) / 2.0 / (servers - busy)
        return cls(_erlang_c(busy, servers), scale)

    @classmethod
    def of_one_server(cls, load: float, seconds: float, variation: float) -> "_Wait":
        """M/G/1."""
        return cls(load, seconds * (1.0 + variation * variation) / 2.0 / (1.0 - load))

    def kept(self, other: "np.ndarray[tuple[int], np.dtype[np.float64]]", limit: float) -> float:
        """Share within a limit, where other times come on top: equally likely values."""
        if limit == inf:
            return 1.0
        left = limit - other
        if self.chance <= 0.0 or self.scale_seconds <= 0.0:
            return float((left >= 0.0).mean())
        late = np.where(left >= 0.0, self.chance * np.exp(-np.maximum(left, 0.0) / self.scale_seconds), 1.0)
        return float(1.0 - late.mean())


def _erlang_c(busy: float, servers: int) -> float:
    """Chance that all servers are busy."""
    # Sums of a^k / k! in logarithms: batches have hundreds of slots.
    logs = np.array([k * log(busy) - lgamma(k + 1.0) for k in range(servers + 1)])
    top = float(logs.max())
    full = exp(float(logs[-1]) - top) * servers / (servers - busy)
    return full / (float(np.exp(logs[:-1] - top).sum()) + full)


def _gamma_quantiles(mean: float, variance: float) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Equally likely values of a gamma distribution (Wilson and Hilferty, 1931)."""
    if variance <= 0.0 or mean <= 0.0:
        return np.full(len(_GRID), mean)
    third = variance / (9.0 * mean * mean)
    values: np.ndarray[tuple[int], np.dtype[np.float64]] = (
        mean * np.maximum(1.0 - third + _normal_quantiles() * sqrt(third), 0.0) ** 3
    )
    return values


def _normal_quantiles() -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Of the standard normal distribution, at `_GRID` (Abramowitz and Stegun, 26.2.23)."""
    tail = np.minimum(_GRID, 1.0 - _GRID)
    t = np.sqrt(-2.0 * np.log(tail))
    value = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t**3)
    quantiles: np.ndarray[tuple[int], np.dtype[np.float64]] = np.where(_GRID < 0.5, -value, value)
    return quantiles


def _prefill_only(engine: EngineModel, mix: Mix, rate: float, ttft_seconds: float) -> Latency:
    each, second, base = _prompt_work(engine, mix)
    together, load = 1.0, 0.0
    for _ in range(_ROUNDS):
        # Prompts that wait together share the base cost, as far as the budget of a step allows.
        service = each + base / together
        load = rate * service
        if load >= 1.0:
            most = max(engine.max_num_batched_tokens / mix.prompt_tokens, 1.0)
            if rate * (each + base / most) >= 1.0:
                return UNSTABLE
            together = min(most, together * 1.2)
            continue
        waiting = rate * load * service * (1.0 + mix.prompt_variation**2) / 2.0 / (1.0 - load)
        wanted = max(min(1.0 + waiting, engine.max_num_batched_tokens / mix.prompt_tokens), 1.0)
        if abs(wanted - together) < 1e-6:
            break
        together = 0.5 * (together + wanted)
    if load >= 1.0:
        return UNSTABLE
    service = each + base / together
    variation = sqrt(max(second - each * each, 0.0)) / service
    wait = _Wait.of_one_server(load, service, variation)
    own = _own_prompt(engine, mix)
    spread = max(second - each * each, 0.0)
    kept = wait.kept(_gamma_quantiles(own, spread), ttft_seconds)
    return Latency(True, load, own + wait.mean_seconds, kept, 0.0, 0.0, load)


def _prompt_work(engine: EngineModel, mix: Mix) -> tuple[float, float, float]:
    """Seconds that a prompt adds to a prefill step, their second moment, and what each step costs on top."""
    p = engine.prefill
    squares = mix.prompt_tokens**2 * (1.0 + mix.prompt_variation**2)
    flat = min(mix.prompt_tokens, p.knee_tokens)
    each = p.seconds_per_token_above * mix.prompt_tokens + p.seconds_per_request + p.seconds_per_token_squared * squares
    # What lies below the knee is saved once a step.
    base = p.base_seconds - (p.seconds_per_token_above - p.seconds_per_token_below) * flat
    return each, each * each * (1.0 + mix.prompt_variation**2), max(base, 0.0)


def _third(mix: Mix) -> float:
    """Third moment of a prompt's length over its mean cubed, of a gamma distribution."""
    squared = mix.prompt_variation**2
    return (1.0 + squared) * (1.0 + 2.0 * squared)


def _own_prompt(engine: EngineModel, mix: Mix) -> float:
    tokens, most = mix.prompt_tokens, float(engine.max_num_batched_tokens)
    pieces = max(ceil(tokens / most), 1)
    alone = float(engine.prefill_seconds(tokens, 1.0, tokens * tokens * (1.0 + mix.prompt_variation**2)))
    return alone + (pieces - 1) * engine.prefill.base_seconds


def _slots(engine: EngineModel, mix: Mix, context: float) -> float:
    """Sequences that fit: the batch limit, or the KV memory."""
    del mix
    return min(float(engine.max_num_seqs), engine.kv_capacity_tokens / max(context, 1.0))


def _most(engine: EngineModel, mix: Mix, role: Role) -> float:
    """More requests per second than any load within compute."""
    each, _, base = _prompt_work(engine, mix)
    prefill = each + base * mix.prompt_tokens / engine.max_num_batched_tokens if role is not Role.DECODE else 0.0
    slots = float(engine.max_num_seqs)
    decode = 0.0
    if role is not Role.PREFILL and mix.output_tokens > 1.0:
        context = mix.prompt_tokens + 0.5 * mix.output_tokens
        decode = mix.output_tokens * float(engine.decode_seconds(slots, slots * context)) / slots
    return 1.5 / max(prefill + decode, 1e-9)


def _broken(at: Latency, promise: Promise, role: Role) -> Bound | None:
    if not at.stable:
        return Bound.COMPUTE
    if role is not Role.PREFILL and at.tpot_quantile_seconds > promise.tpot_seconds:
        return Bound.TPOT
    if role is not Role.DECODE and at.ttft_kept < ATTAINMENT:
        return Bound.TTFT
    return None


def _priced(engine: EngineModel, mix: Mix, rate: float, role: Role) -> ReplicaCapacity:
    """Energy above idle of a request at that load, as a straight line from idle to it.

    Power is concave in load, as larger batches share more, so that the line is below the truth in between.
    """
    joules = 0.0
    at = latency(engine, mix, rate, inf, role) if rate > 0.0 else None
    squares = mix.prompt_tokens**2 * (1.0 + mix.prompt_variation**2)
    if role is not Role.DECODE:
        joules += float(engine.prefill_joules(mix.prompt_tokens, squares))
    busy = 0.0 if at is None else at.prefill_share
    if role is not Role.PREFILL and mix.output_tokens > 1.0:
        batch = max(1.0 if at is None else at.batch, 1.0)
        context = mix.prompt_tokens + 0.5 * mix.output_tokens
        joules += (mix.output_tokens - 1.0) * float(engine.decode_joules(batch, batch * context)) / batch
        busy = 1.0 if at is not None and at.batch >= 1.0 else max(busy, 0.0 if at is None else at.batch)
    above = joules - (joules_from_watts(engine.idle_watts, busy / rate) if rate > 0.0 else 0.0)
    return ReplicaCapacity(rate, max(above, 0.0), engine.idle_watts, engine.host_watts)
