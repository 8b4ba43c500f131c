"""The analytic estimate on whole columns, in the words of `EngineModel`: what the compiled loop must agree with."""

from dataclasses import dataclass

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn
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

    meets = _meet(engine, candidates, rows, request.prompt_tokens + out, out)
    queued_prefill = meets.queued_prefill
    ttft = meets.first_token(uncached)
    columns.ttft[rows] = ttft
    columns.ttft_error[rows] = meets.spread(uncached) / ttft
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


@dataclass(frozen=True)
class _Meets:
    """What a prompt meets at endpoints with one engine; columns."""

    engine: EngineModel
    waiting: FloatColumn
    queued: FloatColumn
    squares: FloatColumn
    duty: FloatColumn
    step: FloatColumn
    departures: FloatColumn
    seconds_per_departure: FloatColumn
    """Were there no prefills."""
    left_seconds: FloatColumn
    """Of the decode or prefill step that runs."""
    in_prefill: BoolColumn
    blind: BoolColumn
    """Nobody knows which step runs."""

    @property
    def queued_prefill(self) -> FloatColumn:
        return self.engine.prefill_seconds(self.queued, self.waiting, self.squares)

    def together(self, tokens: FloatColumn | float) -> FloatColumn:
        """The prefill of all that waits and the prompt in one step."""
        return self.engine.prefill_seconds(self.queued + tokens, self.waiting + 1.0, self.squares + tokens**2)

    def alone(self, tokens: FloatColumn | float) -> FloatColumn:
        return self.engine.prefill_seconds(np.broadcast_to(tokens, self.queued.shape))

    def unseen(self, tokens: FloatColumn | float) -> FloatColumn:
        """Half of a decode step is left, and more arrives in proportion to what has to be waited for."""
        stretch = self.duty / (1.0 - self.duty)
        wait = self.departures * self.seconds_per_departure * (1.0 + stretch)
        return wait + 0.5 * self.step + self.together(tokens) + (0.5 * self.step + self.queued_prefill) * stretch

    def reached_seconds(self) -> FloatColumn:
        """Until the step that computes the prompt begins, where the running step is known."""
        behind = np.where(self.in_prefill, self.step, 0.0)
        return self.departures * self.seconds_per_departure + self.left_seconds + behind

    def first_token(self, tokens: FloatColumn | float) -> FloatColumn:
        own = np.where(self.in_prefill, self.alone(tokens), self.together(tokens))
        return np.where(self.blind, self.unseen(tokens), self.reached_seconds() + own)

    def spread(self, tokens: FloatColumn | float) -> FloatColumn:
        errors, queue = self.engine.error, np.where(self.in_prefill, self.queued_prefill, 0.0)
        computed = np.where(self.in_prefill, self.alone(tokens), self.together(tokens)) + queue
        stalled = self.departures * self.seconds_per_departure / (1.0 - self.duty)
        slots = stalled / np.sqrt(np.maximum(self.departures, 1.0))
        stretch = np.sqrt(self.duty / (1.0 - self.duty))
        meanwhile = np.where(self.blind, 0.0, stretch * self.reached_seconds())
        parts = [errors.prefill_seconds * computed, slots, self.step / np.sqrt(12.0), meanwhile]
        return np.linalg.norm(np.stack(parts), axis=0)


def _meet(
    engine: EngineModel,
    candidates: Candidates,
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    kept_tokens: float,
    out: float,
) -> _Meets:
    """`kept_tokens`: of the request, for which there must be room."""
    running, waiting = candidates.running[rows], candidates.waiting[rows]
    queued, kv = candidates.waiting_tokens[rows], candidates.kv_tokens[rows]
    squares = candidates.waiting_squared_tokens[rows]
    squares = np.where(np.isnan(squares), waiting * (queued / np.maximum(waiting, 1.0)) ** 2, squares)
    ahead = running + waiting
    step = engine.decode_seconds(np.minimum(ahead, engine.max_num_seqs), kv)
    # A slot or KV space frees whenever a running sequence ends: on average every out · t_step / B seconds.
    over_slots = np.maximum(ahead + 1.0 - engine.max_num_seqs, 0.0)
    over_kv = np.maximum(kv + queued + kept_tokens - engine.kv_capacity_tokens, 0.0)
    over_kv /= np.maximum(kv / np.maximum(running, 1.0), 1.0)
    # Where nobody runs or waits no step does: there is nothing to be seen of it.
    elapsed = np.where(ahead <= 0.0, 0.0, candidates.step_seconds[rows])
    prefilling = np.where(ahead <= 0.0, 0.0, candidates.step_prefills[rows])
    whole = np.where(prefilling > 0.0, engine.prefill_seconds(queued, waiting, squares), step)
    known = np.isfinite(elapsed) & np.isfinite(prefilling)
    return _Meets(
        engine=engine,
        waiting=waiting,
        queued=queued,
        squares=squares,
        duty=np.clip(candidates.prefill_duty[rows], 0.0, 0.95),
        step=step,
        departures=np.maximum(over_slots, over_kv),
        seconds_per_departure=out * step / np.maximum(running, 1.0),
        left_seconds=np.maximum(whole - elapsed, 0.0),
        in_prefill=known & (prefilling > 0.0),
        blind=~known,
    )


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
    meets = _meet(engine, candidates, np.array([row]), request.prompt_tokens + 1.0, out)
    queued_prefill = meets.queued_prefill[0]
    joined = candidates.oldest_waiting_seconds[row] + step + _one_step(engine, uncached + queued, waiting + 1.0)
    busy, joules = engine.prefill_seconds(uncached), engine.prefill_joules(uncached)
    idle_share = np.clip(1.0 - ahead, 0.0, 1.0)
    tail = float(0.5 * step / (1.0 - duty) + engine.prefill_seconds(1.0))
    return {
        "TTFT": float(meets.first_token(uncached)[0]),
        "SPREAD": float(meets.spread(uncached)[0]),
        "QUEUE_TTFT": float(joined) if waiting > 0.0 else float(waiting * 0.0),
        "JOULES": float(joules),
        "INCREMENTAL_JOULES": float(joules - idle_share * engine.idle_watts * busy),
        "BUSY_SECONDS": float(busy),
        "JOULES_ERROR": engine.error.step_joules,
        "BACKLOG": float(meets.first_token(1.0)[0]) - tail,
        "TAIL": tail,
        "NEIGHBOUR_TPOT": float((step + (queued_prefill + busy) / out) / (1.0 - duty)) if running > 0.0 else np.nan,
    }
