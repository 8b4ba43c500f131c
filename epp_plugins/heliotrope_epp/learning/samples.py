"""From the record of a finished request to a sample that models may learn from, or the reason why not."""

from collections import OrderedDict

from heliotrope.predict.sample import Refusal, RequestObservation, Sample, request_sample
from heliotrope.predict.trainingset import block_key
from heliotrope.units import joules_from_millijoules
from heliotrope_epp.outcomes.energy import RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest

MAX_ENDPOINTS = 10_000


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
