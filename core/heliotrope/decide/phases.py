"""Prefill here, decode there: pairs of endpoints as plans beside those that serve a request at one endpoint.

A pair is the plan of its *decode* endpoint, which gets the request and has its prompt prefilled by another one, as
llm-d's routing sidecar does: the prefiller computes what it does not cache, the decoder pulls the blocks that it lacks,
computes one token, and decodes. So (paper sustainable-inference-control-plane §6.3)

    TTFT  = max(TTFT_p + t_transfer, backlog_d) + tail_d          TPOT = TPOT_d
    E     = E_p + E_transfer + E_d
    grams = PUE_p · CI_p · (E_p + E_send + ½ E_net) + PUE_d · CI_d · (E_d + E_recv + ½ E_net)

The decoder works off what waits there while the prompt is computed elsewhere; the tail is the rest of its running step
and the one token.

The prefiller is occupied alone by its prefill, so its hardware is charged for all of that time. A prefill stalls those
that decode where it runs; with a promise of TPOT to them, plans that break it are out as long as another one breaks
none (`heliotrope.decide.feasible`). That is what makes the split follow the headroom: in place while there is some,
elsewhere when there is none.

Pairs are made where blocks fit (`compatible`) and where something may be won: of every decode endpoint the cleanest
prefiller that can keep the promise and the fastest one, if it is better than prefilling in place in either respect, at
most `MAX_PAIRS` in all. Limits of the policy hold for both sides.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.links import Links, Place, link_class
from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn, FloatMatrix, PrefillPairs, RegionView
from heliotrope.decide.plans import widened
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.shares import regions_at_limit
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing, enough_power
from heliotrope.engine.model import EngineModel
from heliotrope.units import bits_from_bytes

MAX_PAIRS = 64
"""Plans that one decision gets beside those of single endpoints."""
LEAST_TOKENS = 64.0
"""Fewer uncached prompt tokens at the decoder are not worth the two more requests that a pair takes."""

Rows = NDArray[np.intp]

_ACTIONS = (KvAction.RECOMPUTE, KvAction.ROUTE_TO_OWNER)
"""What a prefiller does of whose prompt it caches nothing, and something."""


@dataclass(frozen=True, slots=True)
class PairPool:
    """What does not change from request to request of n decode endpoints and m prefillers (`pair_pool`)."""

    planes: NDArray[np.float64]
    """Shape (`phase_kernel.PLANES`, n, m): what KV takes from m to n; NaN where two make no pair."""

    @property
    def possible(self) -> bool:
        """Whether there is a pair at all."""
        return bool(np.isfinite(self.planes[0]).any())


def compatible(prefill: EngineModel, decode: EngineModel) -> bool:
    """Whether the decoder can read the prefiller's blocks, as vLLM's NixlConnector can.

    The same model with the same KV layout and precision (bytes per token), blocks of the same size, and a degree of
    tensor parallelism that is a multiple of the other's.
    """
    degrees = sorted((prefill.tensor_parallel, decode.tensor_parallel))
    return (
        prefill.model == decode.model
        and prefill.kv_bytes_per_token == decode.kv_bytes_per_token
        and prefill.block_size == decode.block_size
        and degrees[1] % degrees[0] == 0
    )


def pair_pool(
    decode: Sequence[tuple[str, EngineModel | None, Place]],
    prefill: Sequence[tuple[str, EngineModel | None, Place]],
    links: Links,
) -> PairPool:
    """The pairs of a set of endpoints (name, step model, place); n·m of them are looked at, so keep the result.

    An endpoint makes no pair with itself, nor one without a step model, nor one to which no link is known.
    """
    from heliotrope.decide import phase_kernel

    planes = np.full((phase_kernel.PLANES, len(decode), len(prefill)), np.nan)
    for i, (decoder, reader, here) in enumerate(decode):
        for j, (prefiller, writer, there) in enumerate(prefill):
            if reader is None or writer is None or decoder == prefiller or not compatible(writer, reader):
                continue
            kind = link_class(there, here)
            link = None if kind is None else links.between.get(kind)
            if link is None:
                continue
            size_bytes = float(reader.kv_bytes_per_token)
            bits, half = bits_from_bytes(size_bytes), 0.5 * link.network_joules_per_bit
            planes[:, i, j] = (
                link.latency_seconds,
                size_bytes / link.bytes_per_second,
                bits * (link.sender_joules_per_bit + half),
                bits * (link.receiver_joules_per_bit + half),
            )
    return PairPool(planes)


def with_pairs(
    candidates: Candidates,
    prefillers: Candidates,
    pool: PairPool,
    request: RequestProfile,
    policy: DecisionPolicy,
    now_unix_s: float,
    *,
    standing: Standing = UNKNOWN_STANDING,
    prefill_standing: Standing = UNKNOWN_STANDING,
) -> Candidates:
    """The candidates with the pairs that are worth a plan behind them.

    Args:
        candidates: where the request may decode; plans that fetch blocks may be among them, pairs may not.
        prefillers: the endpoints that may prefill, each once, with what each caches itself.
        pool: of the first `endpoint_count` candidates and the prefillers, in their orders.
        request: its prompt, expected output and promise.
        policy: its limits hold for prefillers as for everybody; none of them yields for a pair.
        now_unix_s: the time of the decision, for signals.
        standing: of the candidates.
        prefill_standing: of the prefillers.
    """
    from heliotrope.decide import phase_kernel as k

    if request.prompt_tokens < LEAST_TOKENS or not len(candidates) or not len(prefillers):
        return candidates
    grids = _grids(candidates, prefillers, now_unix_s)
    usable = _usable(candidates, prefillers, policy, grids, standing, prefill_standing)
    if not usable.any():
        return candidates
    n = candidates.endpoint_count
    every, there = _alone(candidates, request), _alone(prefillers, request)
    here = np.ascontiguousarray(every[:, :n])  # of one layout, for which the loop is compiled once
    weights = _weights(candidates, grids), _weights(prefillers, grids)
    both = np.isfinite(weights[0][:n]).all() and np.isfinite(weights[1]).all()
    here[k.WEIGHT], there[k.WEIGHT] = (weights[0][:n], weights[1]) if both else (1.0, 1.0)
    partners, bounds = np.empty((2, n), dtype=np.intp), np.full((2, n), np.inf)
    ttft_slo = policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds
    found = k.best_partners(
        candidates.engine_rows[:n],
        candidates.cached_tokens[:n],
        here,
        there,
        usable,
        pool.planes,
        float(request.prompt_tokens),
        request.expected_output_tokens,
        np.inf if ttft_slo is None else ttft_slo,
        np.inf if policy.tpot_slo_seconds is None else policy.tpot_slo_seconds,
        LEAST_TOKENS,
        partners,
        bounds,
    )
    if found == 0:
        return candidates
    rows, of = _taken(partners, bounds)
    # Each line of this is a value per pair.
    latency, seconds, sent, received = pool.planes.reshape(k.PLANES, -1).take(rows * len(prefillers) + of, axis=1)
    tokens = request.prompt_tokens - candidates.cached_tokens[rows]
    sender = sent * tokens
    failures = prefill_standing.failure_rate
    return widened(
        candidates,
        rows,
        actions=tuple([_ACTIONS[cached] for cached in (prefillers.cached_tokens[of] > 0.0).tolist()]),
        sources=(None,) * len(rows),
        pairs=PrefillPairs(
            prefillers=prefillers,
            rows=of,
            prefill=there,
            tail_seconds=here[k.TAIL][rows],
            sender_joules=sender,
            neighbour_tpot_seconds=np.concatenate([every[k.NEIGHBOUR_TPOT], there[k.NEIGHBOUR_TPOT][of]]),
            failure_rate=None if failures is None else failures[of],
        ),
        # One token is left to compute once the others' KV is there.
        cached_tokens=np.full(len(rows), request.prompt_tokens - 1.0),
        transfer_seconds=latency + seconds * tokens,
        transfer_joules=sender + received * tokens,
    )


def _taken(partners: Rows, bounds: FloatMatrix) -> tuple[Rows, Rows]:
    """Decode and prefill rows of the pairs that are kept: the best of either kind, half of each where they are many."""
    kinds = [np.flatnonzero(line >= 0) for line in partners]
    if sum(map(len, kinds)) > MAX_PAIRS:
        half = MAX_PAIRS // 2
        first = min(len(kinds[0]), max(half, MAX_PAIRS - len(kinds[1])))
        counts = (first, MAX_PAIRS - first)
        kinds = [rows[np.argsort(bounds[kind][rows], kind="stable")[: counts[kind]]] for kind, rows in enumerate(kinds)]
    return np.concatenate(kinds), np.concatenate([partners[kind][rows] for kind, rows in enumerate(kinds)])


def _alone(candidates: Candidates, request: RequestProfile) -> FloatMatrix:
    from heliotrope.decide import phase_kernel as k

    result = np.empty((k.LINES, len(candidates)))
    k.prefill_alone(
        candidates.engine_rows,
        candidates.running,
        candidates.waiting,
        candidates.waiting_tokens,
        candidates.oldest_waiting_seconds,
        candidates.kv_tokens,
        candidates.prefill_duty,
        candidates.cached_tokens,
        float(request.prompt_tokens),
        request.expected_output_tokens,
        result,
    )
    return result


@dataclass(frozen=True, slots=True)
class _Grid:
    """What a region's electricity costs the climate."""

    weight: float
    """PUE · CI; NaN where no fresh signal is known."""
    kind: tuple[str, str] | None
    """What CI means; None where it is unknown."""


_UNKNOWN_GRID = _Grid(float("nan"), None)


def _grids(candidates: Candidates, prefillers: Candidates, now_unix_s: float) -> dict[str | None, _Grid]:
    """Of every region of either, and of the unknown one."""
    grids: dict[str | None, _Grid] = {None: _UNKNOWN_GRID}
    for each in (candidates, prefillers):
        for name in each.region_names:
            if name not in grids:
                view = each.region_views.get(name)
                grids[name] = _UNKNOWN_GRID if view is None else _grid(view, now_unix_s)
    return grids


def _grid(view: RegionView, now_unix_s: float) -> _Grid:
    reading = view.signal.reading
    if reading is None or view.signal.freshness(now_unix_s) is not Freshness.FRESH:
        return _UNKNOWN_GRID
    return _Grid(view.pue * reading.intensity_g_per_kwh, (reading.signal_type.value, reading.emission_factor.value))


def _weights(candidates: Candidates, grids: Mapping[str | None, _Grid]) -> FloatColumn:
    # Code -1 takes the last one.
    values = [grids[name].weight for name in (*candidates.region_names, None)]
    column: FloatColumn = np.array(values)[candidates.region_codes]
    return column


def usable_helpers(
    candidates: Candidates,
    helpers: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    standing: Standing = UNKNOWN_STANDING,
    helper_standing: Standing = UNKNOWN_STANDING,
) -> BoolColumn:
    """Which endpoints the policy allows to do a phase of a request for the candidates: prefillers, encoders."""
    grids = _grids(candidates, helpers, now_unix_s)
    return _usable(candidates, helpers, policy, grids, standing, helper_standing)


def _usable(
    candidates: Candidates,
    prefillers: Candidates,
    policy: DecisionPolicy,
    grids: Mapping[str | None, _Grid],
    standing: Standing,
    prefill_standing: Standing,
) -> BoolColumn:
    """Which prefillers the policy allows.

    A prefiller's grid must be known as well as the decoders', in a signal of the same type: an unknown one would take
    carbon out of the whole decision (`heliotrope.decide.decision.carbon_unusable`).
    """
    named = candidates.region_names
    kinds = {grids[name].kind for name in ((*named, None) if candidates.region_codes.min() < 0 else named)}
    at_limit = regions_at_limit(standing.region_counts, policy.largest_region_share)
    allowed = policy.allowed_regions
    good = [
        (allowed is None or name in allowed) and name not in at_limit and (None in kinds or grids[name].kind in kinds)
        for name in (*prefillers.region_names, None)
    ]
    usable: BoolColumn = np.array(good, dtype=np.bool_)[prefillers.region_codes]
    if policy.power is not None:
        power = policy.power
        usable &= enough_power(prefillers, prefill_standing, power.least_watts, avoid_throttled=power.avoid_throttled)
    return usable
