"""Carbon- and cache-aware routing of a session's turns (context-is-not-free, equations 1, 4, 6 and algorithm 1).

Every candidate is charged for the history that it does not cache; the feasible one with the least carbon is proposed;
where the proposal would leave a placement that still caches the session, a learned gate may keep it there. Columns have
one value per candidate. NaN means unknown: such a candidate is proposed only where no other is known.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.gate import Gate
from heliotrope.cache.gate_features import Placement, Turn, features_of

FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TokenRatios:
    """What tokens cost against an uncached input token of the same model and accelerator."""

    cached: float = 0.05
    """γ: of the history that is cached."""
    output: float = 6.0
    """κ: of the answer."""


def turn_energy(
    input_energy: FloatColumn,
    new_tokens: float,
    history_tokens: float,
    cached_tokens: FloatColumn,
    output_tokens: float,
    ratios: TokenRatios,
) -> FloatColumn:
    """Energy of a turn at each candidate (equation 4), in the unit of `input_energy`.

    Args:
        input_energy: of an uncached input token at each candidate.
        new_tokens: of the prompt, beside the history.
        history_tokens: of earlier turns.
        cached_tokens: of the history, at each candidate.
        output_tokens: estimated before the turn, realised after it.
        ratios: γ and κ.
    """
    energy: FloatColumn = input_energy * (
        new_tokens + history_tokens - (1.0 - ratios.cached) * cached_tokens + ratios.output * output_tokens
    )
    return energy


def prefill_seconds(
    tokens_per_second: FloatColumn, new_tokens: float, history_tokens: float, cached_tokens: FloatColumn
) -> FloatColumn:
    """Time to first token from prefill alone (equation 6)."""
    seconds: FloatColumn = (new_tokens + history_tokens - cached_tokens) / tokens_per_second
    return seconds


def break_even_ratio(new_tokens: float, history_tokens: float, output_tokens: float, ratios: TokenRatios) -> float:
    """τ(H): a region must be cleaner than this share of the current one for a move to pay (equation 1)."""
    paid = new_tokens + ratios.output * output_tokens
    return (paid + ratios.cached * history_tokens) / (paid + history_tokens)


def break_even_history(ratio: float, new_tokens: float, output_tokens: float, ratios: TokenRatios) -> float:
    """H*: the history from which on a region at `ratio` of the current intensity is not clean enough; τ(H*) = ratio.

    Infinite where the ratio is at or below γ, because then a move always pays.
    """
    if ratio <= ratios.cached:
        return float("inf")
    paid = new_tokens + ratios.output * output_tokens
    return max(paid * (1.0 - ratio) / (ratio - ratios.cached), 0.0)


def within_latency(allowed: BoolColumn, ttft_seconds: FloatColumn, bound_seconds: float) -> tuple[BoolColumn, bool]:
    """Which allowed candidates meet the TTFT bound, or those with the shortest TTFT where none does.

    Only latency is relaxed. A TTFT that is unknown meets no bound and is the longest.

    Args:
        allowed: by quality, region, capacity and context.
        ttft_seconds: estimates.
        bound_seconds: the SLO.

    Returns:
        The feasible candidates (none only if none is allowed), and whether this is best effort.
    """
    within = allowed & (ttft_seconds <= bound_seconds)
    if within.any() or not allowed.any():
        return within, False
    known = allowed & np.isfinite(ttft_seconds)
    if not known.any():
        return allowed.copy(), True
    return known & (ttft_seconds <= ttft_seconds[known].min()), True


def propose(grams_co2e: FloatColumn, feasible: BoolColumn) -> int:
    """The feasible candidate with the least estimated carbon, the first of equals; -1: none is feasible."""
    grams = np.where(feasible, grams_co2e, np.inf)
    best = int(np.argmin(grams))
    if not np.isfinite(grams[best]):  # argmin stops at the first NaN
        known = feasible & np.isfinite(grams_co2e)
        if not known.any():
            return int(np.argmax(feasible)) if feasible.any() else -1
        best = int(np.argmin(np.where(known, grams_co2e, np.inf)))
    return best


def may_stay(proposal: int, previous: int, feasible: BoolColumn, cached_tokens: FloatColumn) -> bool:
    """Whether the gate is asked (line 9): the proposal leaves a feasible placement that caches the session's history.

    Args:
        proposal: from `propose`.
        previous: index of the last turn's placement; -1: there is none, or it is no candidate.
        feasible: of all candidates.
        cached_tokens: of the history, at each candidate.
    """
    return (
        previous >= 0 and 0 <= proposal != previous and bool(feasible[previous]) and bool(cached_tokens[previous] > 0.0)
    )


def stays(proposal: Placement, previous: Placement, turn: Turn, gate: Gate) -> bool:
    """Whether a session stays where its last turn was although the proposal emits less now (lines 10 to 13).

    Ask only where `may_stay`. A gate that is off, or does not know, follows the proposal.
    """
    if not gate.on:
        return False
    advantage = gate.advantage(features_of(proposal, previous, turn))
    return advantage is not None and advantage > gate.threshold
