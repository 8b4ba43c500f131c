"""The analytic estimate on whole columns, in the words of `EngineModel`: what the compiled loop must agree with."""

import numpy as np

from heliotrope.decide.candidates import Candidates, FloatColumn
from heliotrope.decide.columns import Columns
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel


def fill(
    columns: Columns,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    engine: EngineModel,
    request: RequestProfile,
    candidates: Candidates,
    pool_concurrency: float,
) -> None:
    running, waiting = candidates.running[rows], candidates.waiting[rows]
    queued = candidates.waiting_tokens[rows]
    kv = candidates.kv_tokens[rows]
    duty = np.clip(candidates.prefill_duty[rows], 0.0, 0.95)
    out = max(request.expected_output_tokens, 1.0)
    uncached = np.maximum(request.prompt_tokens - candidates.cached_tokens[rows], 1.0)
    context = request.prompt_tokens + out / 2.0
    ahead = running + waiting
    step = engine.decode_seconds(np.minimum(ahead, engine.max_num_seqs), kv)
    batch_after = np.minimum(ahead + 1.0, float(engine.max_num_seqs))
    decode = engine.decode_seconds(batch_after, kv + request.prompt_tokens)

    # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
    seconds_per_departure = out * step / np.maximum(running, 1.0) / (1.0 - duty)
    over_slots = np.maximum(ahead + 1.0 - engine.max_num_seqs, 0.0)
    kv_need = kv + queued + request.prompt_tokens + out - engine.kv_capacity_tokens
    over_kv = np.maximum(kv_need, 0.0) / np.maximum(kv / np.maximum(running, 1.0), 1.0)
    departures = np.maximum(over_slots, over_kv)
    wait = departures * seconds_per_departure

    mean_queued = queued / np.maximum(waiting, 1.0)
    prefill = engine.prefill_seconds(uncached + queued, waiting + 1.0, uncached**2 + waiting * mean_queued**2)
    queued_prefill = engine.prefill_seconds(queued, waiting, waiting * mean_queued**2)
    until_own_step = 0.5 * step + queued_prefill
    ttft = wait + 0.5 * step + prefill + until_own_step * duty / (1.0 - duty)
    columns.ttft[rows] = ttft
    # Departures come at random, so waiting for k of them spreads by wait / √k; a step is met at a uniform point.
    spread = np.sqrt(
        (engine.error.prefill_seconds * prefill) ** 2
        + (step / np.sqrt(12.0)) ** 2
        + wait * wait / np.maximum(departures, 1.0)
    )
    columns.ttft_error[rows] = spread / ttft
    columns.queue_ttft[rows] = np.where(
        waiting > 0.0,
        candidates.oldest_waiting_seconds[rows] + step + _one_step(engine, uncached + queued, waiting + 1.0),
        waiting * 0.0,
    )
    columns.tpot[rows] = (decode + queued_prefill / out) / (1.0 - duty)

    # Sharing: the batch that this endpoint reaches when the pool's load is consolidated on it.
    shared = np.minimum(np.maximum(ahead + 1.0, pool_concurrency + 1.0), float(engine.max_num_seqs))
    prefill_joules = engine.prefill_joules(uncached)
    columns.prefill_joules[rows] = prefill_joules
    columns.batch[rows] = shared
    columns.energy[rows] = prefill_joules + out * engine.decode_joules(shared, shared * context) / shared
    # While it is served the endpoint fills from the batch of now to the shared one, evenly for all that is known.
    met = 0.5 * (batch_after + shared)
    columns.attributed[rows] = prefill_joules + out * engine.decode_joules(met, met * context) / met

    # An engine that is idle now would have drawn its idle power meanwhile; a busy one draws its base anyway.
    idle_share = np.clip(1.0 - ahead, 0.0, 1.0)
    alone = engine.decode_joules(1.0, context) - engine.idle_watts * engine.decode_seconds(1.0, context)
    busy = engine.decode_joules(batch_after, kv + context) - engine.decode_joules(batch_after - 1.0, kv)
    standing = engine.idle_watts * engine.prefill_seconds(uncached)
    decode_joules = out * (idle_share * alone + (1.0 - idle_share) * busy)
    columns.incremental[rows] = prefill_joules - idle_share * standing + decode_joules
    columns.tpot_error[rows] = engine.error.decode_seconds
    columns.energy_error[rows] = engine.error.step_joules
    columns.kv_fits[rows] = request.prompt_tokens + out <= engine.kv_capacity_tokens


def _one_step(engine: EngineModel, tokens: FloatColumn, requests: FloatColumn) -> FloatColumn:
    """Time of the prefill step that begins with these tokens: all of them, or the engine's budget."""
    taken = np.minimum(tokens, float(engine.max_num_batched_tokens))
    return engine.prefill_seconds(taken, requests, taken * taken / np.maximum(requests, 1.0))


def prefill_of(
    engine: EngineModel, row: int, request: RequestProfile, candidates: Candidates
) -> dict[str, float] | None:
    """What `phase_kernel.prefill_alone` says of one endpoint; None where the prompt does not fit."""
    running, waiting = candidates.running[row], candidates.waiting[row]
    queued, kv = candidates.waiting_tokens[row], candidates.kv_tokens[row]
    if request.prompt_tokens + 1.0 > engine.kv_capacity_tokens:
        return None
    duty = np.clip(candidates.prefill_duty[row], 0.0, 0.95)
    out = max(request.expected_output_tokens, 1.0)
    uncached = np.maximum(request.prompt_tokens - candidates.cached_tokens[row], 1.0)
    ahead = running + waiting
    step = engine.decode_seconds(np.minimum(ahead, engine.max_num_seqs), kv)
    over_slots = np.maximum(ahead + 1.0 - engine.max_num_seqs, 0.0)
    over_kv = np.maximum(kv + queued + request.prompt_tokens + 1.0 - engine.kv_capacity_tokens, 0.0)
    departures = np.maximum(over_slots, over_kv / np.maximum(kv / np.maximum(running, 1.0), 1.0))
    wait = departures * out * step / np.maximum(running, 1.0) / (1.0 - duty)
    squares = waiting * (queued / np.maximum(waiting, 1.0)) ** 2
    queued_prefill = engine.prefill_seconds(queued, waiting, squares)

    def first_token(tokens: float) -> float:
        prefill = engine.prefill_seconds(tokens + queued, waiting + 1.0, tokens**2 + squares)
        return float(wait + 0.5 * step + prefill + (0.5 * step + queued_prefill) * duty / (1.0 - duty))

    prefill = engine.prefill_seconds(uncached + queued, waiting + 1.0, uncached**2 + squares)
    spread = np.sqrt(
        (engine.error.prefill_seconds * prefill) ** 2
        + (step / np.sqrt(12.0)) ** 2
        + wait * wait / np.maximum(departures, 1.0)
    )
    joined = candidates.oldest_waiting_seconds[row] + step + _one_step(engine, uncached + queued, waiting + 1.0)
    busy, joules = engine.prefill_seconds(uncached), engine.prefill_joules(uncached)
    idle_share = np.clip(1.0 - ahead, 0.0, 1.0)
    tail = float(0.5 * step / (1.0 - duty) + engine.prefill_seconds(1.0))
    return {
        "TTFT": first_token(float(uncached)),
        "SPREAD": float(spread),
        "QUEUE_TTFT": float(joined) if waiting > 0.0 else float(waiting * 0.0),
        "JOULES": float(joules),
        "INCREMENTAL_JOULES": float(joules - idle_share * engine.idle_watts * busy),
        "BUSY_SECONDS": float(busy),
        "JOULES_ERROR": engine.error.step_joules,
        "BACKLOG": first_token(1.0) - tail,
        "TAIL": tail,
        "NEIGHBOUR_TPOT": float((step + (queued_prefill + busy) / out) / (1.0 - duty)) if running > 0.0 else np.nan,
    }
