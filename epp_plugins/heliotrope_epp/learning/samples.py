"""From finished requests and metered intervals to samples that models may learn from, or the reasons why not."""

from collections import OrderedDict

from heliotrope.predict.sample import Refusal, RequestObservation, Sample, request_sample, step_sample
from heliotrope.predict.trainingset import block_key
from heliotrope.units import joules_from_millijoules
from heliotrope_epp.outcomes.energy import MeteredInterval, MeteredSteps, NoSteps, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

MAX_ENDPOINTS = 10_000
MIN_BUSY_SHARE = 0.2
"""Of an interval, so that steps are learned from: what is idle is an estimate, and the rest of the energy is theirs."""
MIN_STEPS = 20
"""So for this many of them: up to one is cut off at each end."""


class Positions:
    """Counts the requests of each endpoint; beyond `MAX_ENDPOINTS` the one that was idle for longest starts anew."""

    def __init__(self) -> None:
        self._next: OrderedDict[str, int] = OrderedDict()

    def next(self, endpoint: str) -> int:
        """The position of one more request, from 0."""
        position = self._next.pop(endpoint, 0)
        self._next[endpoint] = position + 1
        if len(self._next) > MAX_ENDPOINTS:
            self._next.popitem(last=False)
        return position


def sample_of(
    request: FinishedRequest, energy: RequestEnergy | None, position: int, now_unix_s: float
) -> Sample | Refusal:
    """What a request teaches. Latencies only of streamed answers, joules only where counters covered it.

    Args:
        request: its record.
        energy: what it drew, if that is known.
        position: among the requests of its endpoint; neighbours are trained on, or held out, together.
        now_unix_s: no sample may be newer.
    """
    observed = RequestObservation(
        key=block_key(request.endpoint, position),
        row=request.features,
        complete=request.succeeded,
        output_tokens=request.output_tokens,
        dispatched_s=request.dispatched_s,
        ended_s=request.ended_s,
        dispatched_unix_s=request.dispatched_unix_s,
        ended_unix_s=request.ended_unix_s,
        ttft_seconds=request.ttft_seconds,
        tpot_seconds=request.tpot_seconds,
        request_joules=None if energy is None else joules_from_millijoules(float(energy.millijoules)),
        energy_coverage=0.0 if energy is None else energy.coverage,
    )
    return request_sample(observed, now_unix_s)


def believable_steps(interval: MeteredInterval) -> MeteredSteps | NoSteps:
    """The steps of an interval, if enough of it was work."""
    steps = interval.steps
    if isinstance(steps, NoSteps):
        return steps
    if steps.busy_share < MIN_BUSY_SHARE:
        return NoSteps.MOSTLY_IDLE
    return steps if steps.count >= MIN_STEPS else NoSteps.TOO_FEW


def step_sample_of(
    interval: MeteredInterval, steps: MeteredSteps, position: int, now_unix_s: float
) -> Sample | Refusal:
    """What an interval teaches of the energy of its engine's mean step.

    Args:
        interval: whose steps they are.
        steps: those that `believable_steps` found.
        position: among the intervals of its endpoint that teach; neighbours are trained on, or held out, together.
        now_unix_s: no sample may be newer.
    """
    key = block_key(interval.endpoint, position)
    return step_sample(key, interval.end_unix_s, steps.features, steps.mean_joules, now_unix_s)
