"""For how long a prefix is worth its memory after a turn (after the idea of Continuum, arXiv:2511.02230).

Holding N tokens for up to t seconds saves their recomputation if the next turn comes by then, and keeps others out:

    V(t) = J · F(t) − θ · N · ∫₀ᵗ (1 − F(s)) ds

with F the distribution of the time to the next turn and J the joules of recomputing the prefix. θ is what a token of
memory is worth for a second. An engine that evicts what was used longest ago keeps an unused prefix for T seconds, the
time in which new tokens fill what running requests leave of the memory; what it evicts would have come back with the
hazard h(a) of its age a ≥ T. So θ = j · max h(a) over a ≥ T, with j the joules per token: a prefix is held while it
is likelier to return than what it pushes out. Fuller memory makes T shorter and θ higher, so that the time to live
shrinks under pressure and is 0 where nothing is worth holding.
"""

from dataclasses import dataclass
from math import isfinite, nan

import numpy as np

from heliotrope.cache.costs import recompute
from heliotrope.cache.gaps import EDGES, ReturnTimes
from heliotrope.engine.model import EngineModel


@dataclass(frozen=True, slots=True)
class Retention:
    """A decision about one prefix; NaN where unknown."""

    seconds: float
    """For how long to hold it; 0: not at all."""
    saved_joules: float
    """V at that time: expected savings less what the memory is worth."""
    lru_seconds: float
    """For how long the engine keeps it by itself."""

    @property
    def needs_holding(self) -> bool:
        """Whether it is worth holding for longer than the engine keeps it by itself."""
        return self.seconds > self.lru_seconds


UNKNOWN_RETENTION = Retention(nan, nan, nan)


def lru_seconds(kv_tokens: float, capacity_tokens: float, tokens_per_second: float) -> float:
    """T: how long an unused prefix stays in a memory that so many new tokens enter per second; NaN where unknown.

    Args:
        kv_tokens: held by running requests, which nothing evicts.
        capacity_tokens: of the whole memory.
        tokens_per_second: of prompts and answers that are computed there.
    """
    if not (isfinite(kv_tokens) and isfinite(capacity_tokens) and tokens_per_second >= 0.0):
        return nan
    free = max(capacity_tokens - kv_tokens, 0.0)
    return float("inf") if tokens_per_second == 0.0 else free / tokens_per_second


def price_joules_per_token_second(joules_per_token: float, lru: float, others: ReturnTimes) -> float:
    """θ, given how long the engine keeps what is not used and how the others that it keeps return."""
    if not lru >= 0.0:
        return nan
    hazard = others.hazard()
    later = hazard[EDGES[1:] > lru]
    return joules_per_token * float(later.max()) if len(later) else 0.0


def retention(
    engine: EngineModel,
    tokens: float,
    times: ReturnTimes,
    others: ReturnTimes,
    lru: float,
    longest_seconds: float,
    *,
    held_seconds: float = 0.0,
) -> Retention:
    """How long to hold the prefix of a turn that has ended, from now on.

    Args:
        engine: what computes it.
        tokens: of the prefix.
        times: when the session's next turn is expected.
        others: the same of all sessions, for the worth of the memory.
        lru: `lru_seconds` of the endpoint; NaN: unknown, and so is the answer.
        longest_seconds: as the policy allows, from the turn's end; 0: nothing is held.
        held_seconds: since the turn's end. Asked again while it is held, the answer falls with pressure, to 0: release.
    """
    if tokens <= 0.0 or longest_seconds <= held_seconds:
        return Retention(0.0, 0.0, lru)
    joules = recompute(engine, 0.0, tokens).joules
    price = price_joules_per_token_second(joules / tokens, lru, others)
    if not isfinite(price):
        return UNKNOWN_RETENTION
    return best_time(times.after(held_seconds), joules, price * tokens, lru, longest_seconds - held_seconds)


def best_time(
    times: ReturnTimes, joules: float, price_joules_per_second: float, lru: float, longest_seconds: float
) -> Retention:
    """The earliest maximum of V over the edges of the distribution, none later than `longest_seconds`."""
    edges = np.append(EDGES[longest_seconds > EDGES], min(longest_seconds, EDGES[-1]))
    by = np.interp(edges, EDGES, times.by)
    waited = np.concatenate([[0.0], np.cumsum(np.diff(edges) * (1.0 - 0.5 * (by[:-1] + by[1:])))])
    value = joules * by - price_joules_per_second * waited
    i = int(np.argmax(value))
    return Retention(float(edges[i]), float(value[i]), lru)
