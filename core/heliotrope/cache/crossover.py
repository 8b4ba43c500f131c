"""From which prefix length on moving KV blocks beats recomputing them: equation 8 and its time condition, solved.

Recomputing L tokens costs a·L + b·L², moving them c + t·L, both in seconds and in joules. The difference is convex and
not above 0 at L = 0, so that it crosses 0 at most once: whatever is worth moving stays worth moving when it is longer.
"""

from dataclasses import dataclass
from math import inf, sqrt

from heliotrope.cache.costs import Recompute, Transfer, recompute, transfer
from heliotrope.cache.links import Link
from heliotrope.engine.model import EngineModel
from heliotrope.units import bits_from_bytes


@dataclass(frozen=True, slots=True)
class Situation:
    """What a transfer meets at both ends."""

    prefill_duty: float = 0.0
    """Share of the receiver's time that prefills of others take, in [0, 1): recomputing takes 1 / (1 − duty) longer."""
    transfers: int = 1
    """Transfers that share the link; each gets its part of the rate."""
    memory_pressure: float = 0.0
    """M at the receiver, in [0, 1]."""
    pressure_weight_joules: float = 0.0
    """λ."""
    sender_dirt: float = 1.0
    """CI·PUE of the sender over that of the receiver: 1 compares joules, anything else emissions."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both ways for one prefix length."""

    tokens: float
    moved: Transfer
    computed: Recompute
    moved_cost_joules: float
    """Joules as the receiver's grid counts them, λ·M included."""

    @property
    def moves(self) -> bool:
        """Whether moving is cheaper and faster."""
        return self.moved_cost_joules < self.computed.joules and self.moved.seconds < self.computed.seconds


def compare(engine: EngineModel, link: Link, tokens: float, situation: Situation) -> Comparison:
    """A prefix of so many tokens, of which the receiver caches none."""
    shared = _shared(link, situation)
    moved = transfer(tokens, engine.kv_bytes_per_token, shared)
    alone = recompute(engine, 0.0, tokens)
    busy = Recompute(alone.seconds / (1.0 - situation.prefill_duty), alone.joules)
    cost = tokens * _joules_per_token(engine, link, situation) + _charge(situation)
    return Comparison(tokens, moved, busy, cost)


def break_even_tokens(engine: EngineModel, link: Link, situation: Situation) -> float:
    """The length from which on `compare` says to move; infinite where it never does."""
    shared = _shared(link, situation)
    p, e = engine.prefill, engine.energy
    stretch = 1.0 / (1.0 - situation.prefill_duty)
    seconds = _crossing(
        p.seconds_per_token_above * stretch - engine.kv_bytes_per_token / shared.bytes_per_second,
        p.seconds_per_token_squared * stretch,
        link.latency_seconds,
    )
    joules = _crossing(
        e.prefill_joules_per_token - _joules_per_token(engine, link, situation),
        e.prefill_joules_per_token_squared,
        _charge(situation),
    )
    return max(seconds, joules)


def _shared(link: Link, situation: Situation) -> Link:
    return Link(
        link.bytes_per_second / situation.transfers,
        link.latency_seconds,
        link.network_joules_per_bit,
        link.sender_joules_per_bit,
        link.receiver_joules_per_bit,
    )


def _joules_per_token(engine: EngineModel, link: Link, situation: Situation) -> float:
    dirt = situation.sender_dirt
    per_bit = (
        link.sender_joules_per_bit * dirt
        + link.network_joules_per_bit * 0.5 * (1.0 + dirt)
        + link.receiver_joules_per_bit
    )
    return bits_from_bytes(float(engine.kv_bytes_per_token)) * per_bit


def _charge(situation: Situation) -> float:
    return situation.pressure_weight_joules * situation.memory_pressure


def _crossing(linear: float, quadratic: float, offset: float) -> float:
    """The least L ≥ 0 from which on linear·L + quadratic·L² ≥ offset; infinite if there is none."""
    if quadratic <= 0.0:
        return inf if linear <= 0.0 else offset / linear
    return (-linear + sqrt(linear * linear + 4.0 * quadratic * offset)) / (2.0 * quadratic)
