"""How many requests per second one engine completes when it never runs out of work."""

from collections.abc import Sequence

from heliotrope.engine.model import EngineModel
from heliotrope_sim.workload.trace import TraceRequest


def saturated_requests_per_second(model: EngineModel, requests: Sequence[TraceRequest]) -> float:
    """Completed requests per second of one engine at its batch limit, for the mean request of a trace.

    In steady state each sequence of the batch B takes its output tokens in decode steps, and every step also carries
    the prefills of the B / tokens sequences that begin in it (they stall decode, paper carbon-slo-tension §III-C).
    """
    prompt = sum(r.prompt_tokens for r in requests) / len(requests)
    output = sum(r.output_tokens for r in requests) / len(requests)
    context = prompt + output / 2.0
    batch = min(float(model.max_num_seqs), model.kv_capacity_tokens / (prompt + output))
    decode = float(model.decode_seconds(batch, batch * context))
    prefill = float(model.prefill_seconds(prompt))
    return batch / (output * decode + batch * prefill)


def mixed(questions: Sequence[TraceRequest], turns: Sequence[TraceRequest], share: float) -> list[TraceRequest]:
    """One request that is as long as the mean of a mix of which `share` are `turns`."""
    parts = ((questions, 1.0 - share), (turns, share))
    known = [(rows, weight) for rows, weight in parts if rows and weight > 0.0]
    prompt = sum(weight * sum(r.prompt_tokens for r in rows) / len(rows) for rows, weight in known)
    output = sum(weight * sum(r.output_tokens for r in rows) / len(rows) for rows, weight in known)
    return [TraceRequest(0.0, round(prompt), round(output))]
