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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.crowd import Crowd, side_of
from heliotrope.cache.links import Links, Place, link_class
from heliotrope.decide.candidates import Candidates, FloatMatrix, PrefillPairs
from heliotrope.decide.helpers import grids_of, usable, weights_of
from heliotrope.decide.plans import widened
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing
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
    sides: NDArray[np.intp]
    """Shape (n, m): which of their links it takes (`heliotrope.cache.crowd`)."""

    @property
    def possible(self) -> bool:
        """Whether there is a pair at all."""
        return bool(np.isfinite(self.planes[0]).any())

    def crowded(self, readers: Crowd | None, sources: Crowd | None) -> NDArray[np.float64]:
        """The planes with the seconds that are left to one transfer more beside those on their way."""
        if readers is None and sources is None:
            return self.planes
        from heliotrope.decide import phase_kernel as k

        n, m = self.sides.shape
        into = Crowd.none(n).into if readers is None else readers.into
        out = Crowd.none(m).out if sources is None else sources.out
        rows, columns = np.arange(n)[:, None], np.arange(m)
        planes = self.planes.copy()
        planes[k.SECONDS_PER_TOKEN] *= 1.0 + np.maximum(into[self.sides, rows], out[self.sides, columns])
        return planes


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
    sides = np.zeros((len(decode), len(prefill)), dtype=np.intp)
    for i, (decoder, reader, here) in enumerate(decode):
        for j, (prefiller, writer, there) in enumerate(prefill):
            if reader is None or writer is None or decoder == prefiller or not compatible(writer, reader):
                continue
            kind = link_class(there, here)
            link = None if kind is None else links.between.get(kind)
            if kind is None or link is None:
                continue
            sides[i, j] = side_of(kind)
            size_bytes = float(reader.kv_bytes_per_token)
            bits, half = bits_from_bytes(size_bytes), 0.5 * link.network_joules_per_bit
            planes[:, i, j] = (
                link.latency_seconds,
                size_bytes / link.bytes_per_second,
                bits * (link.sender_joules_per_bit + half),
                bits * (link.receiver_joules_per_bit + half),
            )
    return PairPool(planes, sides)


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
    grids = grids_of(candidates, prefillers, now_unix_s)
    allowed = usable(candidates, prefillers, policy, grids, standing, prefill_standing)
    if not allowed.any():
        return candidates
    n = candidates.endpoint_count
    certainty = policy.certainty
    every, there = _alone(candidates, request, certainty), _alone(prefillers, request, certainty)
    here = np.ascontiguousarray(every[:, :n])  # of one layout, for which the loop is compiled once
    weights = weights_of(candidates, grids), weights_of(prefillers, grids)
    both = np.isfinite(weights[0][:n]).all() and np.isfinite(weights[1]).all()
    here[k.WEIGHT], there[k.WEIGHT] = (weights[0][:n], weights[1]) if both else (1.0, 1.0)
    crowded = pool.crowded(standing.crowd, prefill_standing.crowd)
    partners, bounds = np.empty((2, n), dtype=np.intp), np.full((2, n), np.inf)
    ttft_slo = policy.ttft_slo_seconds if request.ttft_slo_seconds is None else request.ttft_slo_seconds
    found = k.best_partners(
        candidates.engine_rows[:n],
        candidates.cached_tokens[:n],
        here,
        there,
        allowed,
        crowded,
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
    taken = np.empty((2, min(found, MAX_PAIRS)), dtype=np.intp)
    k.take_partners(partners, bounds, MAX_PAIRS, taken)
    rows, of = taken
    # Each line of this is a value per pair.
    planes = crowded.reshape(k.PLANES, -1).take(rows * len(prefillers) + of, axis=1)
    return _paired(candidates, prefillers, planes, request, prefill_standing, _Prefills(every, there), rows, of)


def with_pair(
    candidates: Candidates,
    prefillers: Candidates,
    planes: NDArray[np.float64],
    request: RequestProfile,
    decode_row: int,
    prefill_row: int,
    *,
    certainty: float,
    prefill_standing: Standing = UNKNOWN_STANDING,
) -> Candidates:
    """The candidates with one pair more as the last row, worth a plan or not: one that somebody else chose.

    Args:
        candidates: pairs of the same prefillers may be among them.
        prefillers: see `with_pairs`.
        planes: what KV takes from the one to the other, shape (`phase_kernel.PLANES`,); NaN: nobody knows.
        request: its prompt and expected output.
        decode_row: the endpoint, among the candidates.
        prefill_row: the other one, among the prefillers.
        certainty: of the policy.
        prefill_standing: of the prefillers.
    """
    rows, of = np.array([decode_row], dtype=np.intp), np.array([prefill_row], dtype=np.intp)
    prefills = _Prefills(_alone(candidates, request, certainty), _alone(prefillers, request, certainty))
    return _paired(candidates, prefillers, planes.reshape(-1, 1), request, prefill_standing, prefills, rows, of)


@dataclass(frozen=True, slots=True)
class _Prefills:
    """What prefilling takes where the request may decode, and at the prefillers."""

    here: FloatMatrix
    there: FloatMatrix


def _paired(
    candidates: Candidates,
    prefillers: Candidates,
    planes: NDArray[np.float64],
    request: RequestProfile,
    prefill_standing: Standing,
    prefills: _Prefills,
    rows: Rows,
    of: Rows,
) -> Candidates:
    """The pairs of these rows behind the candidates; `planes` has a column for each."""
    from heliotrope.decide import phase_kernel as k

    latency, seconds, sent, received = planes
    before, first = candidates.pairs, candidates.aggregated_count
    tokens = request.prompt_tokens - candidates.cached_tokens[rows]
    sender = sent * tokens
    failures = prefill_standing.failure_rate
    here, there = prefills.here, prefills.there
    neighbours = here[k.NEIGHBOUR_TPOT, :first]
    made = PrefillPairs(
        prefillers=prefillers,
        rows=of,
        prefill=there,
        tail_seconds=here[k.TAIL][rows],
        sender_joules=sender,
        neighbour_tpot_seconds=np.concatenate([neighbours, there[k.NEIGHBOUR_TPOT][of]]),
        failure_rate=None if failures is None else failures[of],
    )
    return widened(
        candidates,
        rows,
        actions=tuple([_ACTIONS[cached] for cached in (prefillers.cached_tokens[of] > 0.0).tolist()]),
        sources=(None,) * len(rows),
        pairs=made if before is None else _joined(before, made, first),
        # One token is left to compute once the others' KV is there.
        cached_tokens=np.full(len(rows), request.prompt_tokens - 1.0),
        transfer_seconds=latency + seconds * tokens,
        transfer_joules=sender + received * tokens,
    )


def _joined(these: PrefillPairs, those: PrefillPairs, first: int) -> PrefillPairs:
    """Pairs of the same prefillers, one after the other, behind the first so many plans of single endpoints."""
    failures = None
    if these.failure_rate is not None and those.failure_rate is not None:
        failures = np.concatenate([these.failure_rate, those.failure_rate])
    return PrefillPairs(
        prefillers=these.prefillers,
        rows=np.concatenate([these.rows, those.rows]),
        prefill=these.prefill,
        tail_seconds=np.concatenate([these.tail_seconds, those.tail_seconds]),
        sender_joules=np.concatenate([these.sender_joules, those.sender_joules]),
        neighbour_tpot_seconds=np.concatenate([these.neighbour_tpot_seconds, those.neighbour_tpot_seconds[first:]]),
        failure_rate=failures,
    )


def _alone(candidates: Candidates, request: RequestProfile, certainty: float) -> FloatMatrix:
    from heliotrope.decide import phase_kernel as k
    from heliotrope.decide.cached_deviation import add_to_prefills

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
        candidates.waiting_squared_tokens,
        candidates.step_seconds,
        candidates.step_prefills,
        float(request.prompt_tokens),
        request.expected_output_tokens,
        result,
    )
    doubts = candidates.cached_deviation_tokens
    if doubts is not None:
        add_to_prefills(
            candidates.engine_rows,
            candidates.waiting_tokens,
            candidates.cached_tokens,
            doubts,
            float(request.prompt_tokens),
            certainty,
            result[k.SPREAD],
            result[k.JOULES],
            result[k.JOULES_ERROR],
        )
    return result
