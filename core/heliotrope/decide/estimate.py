"""What each plan would cost and how long it would take (equations 1-5 of sustainable-inference-control-plane).

Latencies follow paper carbon-slo-tension §IV:

    TTFT = RTT + W + t_pre(ISL + Q)          TPOT = [t_dec(B + 1, KV) + T_pre] / (1 − duty)

with two additions to TTFT: the rest of the step that is running when the request arrives (half a step is expected),
and what arrives while the request still waits. An engine prefills everything that waits in one step, up to its token
budget, and answers none of it before that step ends; so a queue that takes time T to reach takes T / (1 − duty).
The same step delays those that wait already: `queue_ttft_seconds` is the TTFT of the first of them if this request
joins, so that no plan breaks a promise that was given to somebody else.

Two energies are kept apart. `energy_joules` is the request's share of the steps it takes part in, at the batch that
the endpoint reaches if the pool's present load is consolidated on it: a price that does not depend on who happens to
be busy, as the facility formulation of the same paper charges a wake-up once for all that share it. Without that, an
idle clean engine looks an order of magnitude dearer than a busy dirty one and load never moves. It is what carbon and
cost are computed from. `incremental_joules` is what the fleet would draw more right now, so it prefers engines that
are awake anyway; it orders plans that are equally clean.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heliotrope.carbon.footprint import embodied_grams, hardware_cost, water_liters
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn, FloatMatrix
from heliotrope.decide.columns import Columns
from heliotrope.decide.learned import apply_models
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.rows import decision_rows
from heliotrope.engine.model import EngineModel
from heliotrope.predict.targets import Target
from heliotrope.units import grams_co2e

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels


@dataclass(frozen=True, slots=True)
class Estimates:
    """Columns, one value per candidate; NaN where unknown."""

    ttft_seconds: FloatColumn
    tpot_seconds: FloatColumn
    queue_ttft_seconds: FloatColumn
    """Of the first request that waits there, if this one joins; 0 where none waits."""
    ttft_relative_error: FloatColumn
    """One standard deviation over the estimate; so for the other errors."""
    tpot_relative_error: FloatColumn
    service_seconds: FloatColumn
    """Time from dispatch to the last token."""
    energy_joules: FloatColumn
    energy_relative_error: FloatColumn
    incremental_joules: FloatColumn
    attributed_joules: FloatColumn
    """The share that the request will be found to have drawn, at the mean of the batch it meets there and the one at
    which energy is shared: what a measurement of it is compared with."""
    batch: FloatColumn
    """The batch at which `energy_joules` is shared."""
    intensity_g_per_kwh: FloatColumn
    """Expected over the service time; NaN unless the region's signal is fresh."""
    grams_co2e: FloatColumn
    """Operational, plus the embodied share if the policy counts it."""
    water_liters: FloatColumn
    cost: FloatColumn
    kv_fits: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """False where the request can never fit into the endpoint's KV cache."""
    features: FloatMatrix
    """What learned models see of each candidate, shape (n, F); `heliotrope.predict.features`."""
    learned: Mapping[Target, BoolColumn]
    """For which candidates a learned model gave the estimate."""


def estimate(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    models: "LearnedModels | None" = None,
) -> Estimates:
    """Estimate every candidate; columns in the order of `candidates`.

    Args:
        request: its prompt and expected output length.
        candidates: endpoint states, projected to now.
        policy: says which emissions count.
        now_unix_s: the time of the decision, for carbon forecasts.
        models: learned models; where one answers, it takes the analytic model's place.
    """
    n = len(candidates)
    columns = Columns.unknown(n)
    pool_concurrency = float(np.nansum(candidates.running) + np.nansum(candidates.waiting))
    for engine in {id(e): e for e in candidates.engines if e is not None}.values():
        rows = np.fromiter((i for i, e in enumerate(candidates.engines) if e is engine), dtype=np.intp)
        _fill(columns, rows, engine, request, candidates, pool_concurrency)
    rtt = np.array([_rtt(candidates, name) for name in candidates.regions])
    columns.ttft += rtt
    features = decision_rows(
        request,
        candidates,
        ttft_seconds=columns.ttft,
        tpot_seconds=columns.tpot,
        attributed_joules=columns.attributed,
        prefill_joules=columns.prefill_joules,
    )
    learned = apply_models(models, features, columns, candidates)
    service = columns.ttft + request.expected_output_tokens * columns.tpot
    pue, wue, intensity = _region_columns(candidates, service, now_unix_s)
    grams = grams_co2e(columns.energy, pue, intensity)
    reserved = service / np.maximum(columns.batch, 1.0)
    if policy.include_embodied:
        grams = grams + _embodied_grams(candidates, reserved)
    return Estimates(
        ttft_seconds=columns.ttft,
        tpot_seconds=columns.tpot,
        queue_ttft_seconds=columns.queue_ttft,
        ttft_relative_error=columns.ttft_error,
        tpot_relative_error=columns.tpot_error,
        service_seconds=service,
        energy_joules=columns.energy,
        energy_relative_error=columns.energy_error,
        incremental_joules=columns.incremental,
        attributed_joules=columns.attributed,
        batch=columns.batch,
        intensity_g_per_kwh=intensity,
        grams_co2e=grams,
        water_liters=water_liters(columns.energy, wue),
        cost=hardware_cost(candidates.price_per_hour, reserved),
        kv_fits=columns.kv_fits,
        features=features,
        learned=learned,
    )


def _fill(
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


def _rtt(candidates: Candidates, region: str | None) -> float:
    view = candidates.region_views.get(region) if region is not None else None
    return 0.0 if view is None else view.rtt_seconds


def _region_columns(
    candidates: Candidates, service_seconds: FloatColumn, now_unix_s: float
) -> tuple[FloatColumn, FloatColumn, FloatColumn]:
    n = len(candidates)
    pue, wue, intensity = np.full(n, np.nan), np.full(n, np.nan), np.full(n, np.nan)
    expected: dict[str, float | None] = {}
    longest = float(np.nanmax(service_seconds, initial=0.0)) if np.isfinite(service_seconds).any() else 0.0
    for i, name in enumerate(candidates.regions):
        view = candidates.region_views.get(name) if name is not None else None
        if view is None or name is None:
            continue
        pue[i], wue[i] = view.pue, view.wue_l_per_kwh
        if name not in expected:
            expected[name] = view.signal.expected_g_per_kwh(now_unix_s, longest)
        value = expected[name]
        if value is not None:
            intensity[i] = value
    return pue, wue, intensity


def _embodied_grams(candidates: Candidates, reserved_seconds: FloatColumn) -> FloatColumn:
    known = [(np.nan, np.nan) if e is None else (e.grams_co2e, e.lifetime_seconds) for e in candidates.embodied]
    grams, lifetimes = np.array(known, dtype=np.float64).reshape(-1, 2).T
    return embodied_grams(grams, lifetimes, reserved_seconds)
