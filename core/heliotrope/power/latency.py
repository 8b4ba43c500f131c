"""How TTFT and TPOT follow the clock, from what was seen at the present one.

An engine is one server whose queue is memoryless: a prompt that takes S seconds of engine time is through after
S / (1 - ρ) on average, and every percentile grows by the same factor. So what was measured at one clock is carried over
to another by the ratio of that term. The time between tokens follows the length of a step. Both are first-order models,
which is what the headroom (`sloHeadroomPercent`) is for.
"""

import math
from dataclasses import dataclass

from heliotrope.api.v1alpha1.common import Role
from heliotrope.engine.model import EngineModel
from heliotrope.power.options import ClockOption, Work

NAN = math.nan
_ITERATIONS = 100
_HALVINGS = 24
PROMISE_QUANTILE = 0.99
"""A promise is made to each request: what is compared with it is the slowest hundredth, never the mean."""


@dataclass(frozen=True, slots=True)
class Promise:
    """TTFT and TPOT that are promised, in seconds."""

    ttft_seconds: float
    tpot_seconds: float


@dataclass(frozen=True, slots=True)
class Observed:
    """What one replica of a variant does now, NaN where it is unknown."""

    requests_per_second: float = NAN
    """Requests that one replica gets, or is expected to get if that is more."""
    ttft_seconds: float = NAN
    tpot_seconds: float = NAN


def utilization(option: ClockOption, requests_per_second: float) -> float:
    """Share of its time that the engine would work; above 1 it falls behind."""
    return requests_per_second * option.busy_seconds


def predicted_ttft(option: ClockOption, present: ClockOption, observed: Observed) -> float:
    """TTFT at another clock in seconds; inf where the engine could not keep up, NaN where it is unknown.

    An engine without prompts (decode) has none to answer for: 0.
    """
    if option.prompt_seconds == 0.0:
        return 0.0
    rate = observed.requests_per_second
    if not (math.isfinite(rate) and math.isfinite(observed.ttft_seconds)):
        return NAN
    then, now = utilization(option, rate), utilization(present, rate)
    if then >= 1.0:
        return math.inf
    if now >= 1.0:  # the queue grows now; nothing can be said but that a faster clock is better
        return NAN
    factor = option.prompt_seconds / (1.0 - then) / (present.prompt_seconds / (1.0 - now))
    return observed.ttft_seconds * factor


def predicted_tpot(option: ClockOption, present: ClockOption, observed: Observed) -> float:
    """TPOT at another clock in seconds, NaN where it is unknown; 0 for an engine that does not decode.

    On a mixed engine prompts get in between the steps, so the phase that suffers most from the clock counts.
    """
    if option.output_seconds == 0.0:
        return 0.0
    if not math.isfinite(observed.tpot_seconds):
        return NAN
    factor = option.output_seconds / present.output_seconds
    if option.prompt_seconds > 0.0 and present.prompt_seconds > 0.0:
        factor = max(factor, option.prompt_seconds / present.prompt_seconds)
    return observed.tpot_seconds * factor


def waiting_share(slots: float, utilization: float) -> float:
    """Share of requests that find all servers busy, by Sakasegawa's approximation of Erlang's C, exact for one server.

    Annals of the Institute of Statistical Mathematics 29, 1977: ρ^(√(2 (N + 1)) - 1).

    Args:
        slots: requests that are worked on at once, N ≥ 1.
        utilization: ρ of all servers; from 1 on everybody waits.
    """
    if utilization >= 1.0:
        return 1.0
    return math.pow(max(utilization, 0.0), math.sqrt(2.0 * (slots + 1.0)) - 1.0)


def carried_within(option: ClockOption, promise: Promise, tpot_seconds: float = NAN, slots: float = NAN) -> float:
    """Requests per second that a replica carries within the promise at a clock.

    A prompt is through in time if S / (1 - ρ) ≤ TTFT, which gives ρ ≤ 1 - S / TTFT. An answer waits for a place in the
    batch, on average for P(wait) / (C - λ), which is to be within the TTFT as well. A step longer than the promised
    TPOT leaves nothing.

    Args:
        option: the clock.
        promise: what is promised.
        tpot_seconds: as predicted for this clock; NaN counts as kept, as the profile's batch is the usual one.
        slots: requests that a decode engine works on at once; NaN: unknown, and one is assumed.
    """
    if option.output_seconds > 0.0 and tpot_seconds > promise.tpot_seconds:
        return 0.0
    if option.prompt_seconds > 0.0:
        share = 1.0 - option.prompt_seconds / promise.ttft_seconds
        return max(share, 0.0) * option.requests_per_second
    return _carried_by_slots(option.requests_per_second, slots if slots >= 1.0 else 1.0, promise.ttft_seconds)


def _carried_by_slots(capacity_per_second: float, slots: float, wait_seconds: float) -> float:
    """The load at which the mean wait for a slot is this long; by halving, as the wait grows with the load."""
    least, most = 0.0, capacity_per_second
    for _ in range(_HALVINGS):
        load = (least + most) / 2.0
        waits = waiting_share(slots, load / capacity_per_second)
        if waits <= wait_seconds * (capacity_per_second - load):
            least = load
        else:
            most = load
    return least


def modelled(
    engine: EngineModel, role: Role, work: Work, requests_per_second: float, quantile: float | None = None
) -> Observed:
    """What one replica would show under a load, by its step model at the model's clock; stands in for measurements.

    The batch follows from Little's law: what is decoded per second, times how long a token takes at that batch. A
    prompt waits as in `predicted_ttft`, and on a mixed engine for the step that is going on.

    Args:
        engine: the step model at the present clock (`EngineModel.at_clock`).
        role: phases that the replica serves.
        work: the mean request.
        requests_per_second: that it gets.
        quantile: of the TTFT, in (0, 1); None: its mean. Where queues and prompts are memoryless, the time in the
            system is exponential, so the quantile q is -ln(1 - q) times the mean.

    Returns:
        NaN where the load, or a batch that it leads to, is beyond what the engine holds.
    """
    unknown = Observed(requests_per_second)
    if not (math.isfinite(requests_per_second) and work.known):
        return unknown
    context = work.prompt_tokens + work.output_tokens / 2.0
    step = 0.0
    if role is not Role.PREFILL and work.output_tokens > 0:
        batch = 1.0
        for _ in range(_ITERATIONS):
            step = float(engine.decode_seconds(max(batch, 1.0), max(batch, 1.0) * context))
            following = requests_per_second * work.output_tokens * step
            if abs(following - batch) < 1e-6 * (1.0 + batch):
                break
            batch = following
            if batch > engine.max_num_seqs:
                return unknown
    if role is Role.DECODE or work.prompt_tokens <= 0:
        return Observed(requests_per_second, NAN if role is not Role.DECODE else 0.0, step)
    prompt = float(engine.prefill_seconds(work.prompt_tokens))
    busy = requests_per_second * prompt
    if busy >= 1.0:
        return unknown
    ttft = prompt / (1.0 - busy) + (step if role is Role.BOTH else 0.0)
    if quantile is not None:
        ttft *= max(-math.log1p(-quantile), 1.0)
    return Observed(requests_per_second, ttft, step / (1.0 - busy) if role is Role.BOTH else 0.0)
