"""From the record of a finished request to a sample that models may learn from, or the reason why not."""

from heliotrope.predict.sample import Refusal, RequestObservation, Sample, request_sample
from heliotrope.units import joules_from_millijoules
from heliotrope_epp.outcomes.energy import RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest


def sample_of(request: FinishedRequest, energy: RequestEnergy | None, now_unix_s: float) -> Sample | Refusal:
    """What a request teaches. Latencies only of streamed answers, joules only where counters covered it."""
    observed = RequestObservation(
        key=request.request_id or f"{request.endpoint} {request.dispatched_unix_s}",
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
