"""What each way to come by KV blocks costs (equation 8 of sustainable-inference-control-plane).

    E_net(i→j) + E_load(j) + λ·M_pressure(j) < E_recompute(j)      subject to      t_transfer < t_recompute

Tokens are counted from the start of the prompt, because attention makes the later ones dearer: recomputing the tokens
from p to q costs a·(q − p) + b·(q² − p²).
"""

from dataclasses import dataclass
from math import isfinite

from heliotrope.cache.links import Link
from heliotrope.engine.model import EngineModel
from heliotrope.units import bits_from_bytes, grams_co2e


@dataclass(frozen=True, slots=True)
class Transfer:
    """What moving blocks takes, by where the joules are drawn."""

    seconds: float
    sender_joules: float
    network_joules: float
    receiver_joules: float

    @property
    def joules(self) -> float:
        """All of them."""
        return self.sender_joules + self.network_joules + self.receiver_joules

    def grams_co2e(
        self,
        *,
        sender_g_per_kwh: float,
        receiver_g_per_kwh: float,
        sender_pue: float = 1.0,
        receiver_pue: float = 1.0,
    ) -> float:
        """Emissions; half of the network is charged to each end's grid."""
        half = 0.5 * self.network_joules
        return grams_co2e(self.sender_joules + half, sender_pue, sender_g_per_kwh) + grams_co2e(
            self.receiver_joules + half, receiver_pue, receiver_g_per_kwh
        )


@dataclass(frozen=True, slots=True)
class Recompute:
    """What prefilling blocks takes that nobody has kept."""

    seconds: float
    joules: float


def transfer(tokens: float, kv_bytes_per_token: float, link: Link) -> Transfer:
    """Moving the blocks of so many tokens over a link, or up from a tier; nothing for none."""
    if tokens <= 0.0:
        return Transfer(0.0, 0.0, 0.0, 0.0)
    size_bytes = tokens * kv_bytes_per_token
    bits = bits_from_bytes(size_bytes)
    return Transfer(
        seconds=link.latency_seconds + size_bytes / link.bytes_per_second,
        sender_joules=bits * link.sender_joules_per_bit,
        network_joules=bits * link.network_joules_per_bit,
        receiver_joules=bits * link.receiver_joules_per_bit,
    )


def recompute(engine: EngineModel, first: float, last: float) -> Recompute:
    """Prefilling the tokens from `first` to `last` of a prompt whose earlier ones are cached.

    What a prefill step costs whatever its length is left out: the rest of the prompt needs that step anyway.
    """
    p, e = engine.prefill, engine.energy
    tokens, squares = last - first, last * last - first * first
    return Recompute(
        seconds=p.seconds_per_token_above * tokens + p.seconds_per_token_squared * squares,
        joules=e.prefill_joules_per_token * tokens + e.prefill_joules_per_token_squared * squares,
    )


def pressure(kv_tokens: float, added_tokens: float, capacity_tokens: float) -> float:
    """M: the share of the KV memory that is in use once the request is there, in [0, 1]; NaN where unknown."""
    share = (kv_tokens + added_tokens) / capacity_tokens
    return min(max(share, 0.0), 1.0) if isfinite(share) else share


def worthwhile(moved: Transfer, computed: Recompute, pressure_weight_joules: float, memory_pressure: float) -> bool:
    """Equation 8 with its latency condition. Unknown pressure decides against moving, unless it costs nothing.

    Args:
        moved: the transfer or reload.
        computed: recomputing the same tokens at the receiver.
        pressure_weight_joules: λ, the joules charged for a transfer into a full memory.
        memory_pressure: M in [0, 1] or NaN.
    """
    charged = pressure_weight_joules * memory_pressure if pressure_weight_joules > 0.0 else 0.0
    return moved.joules + charged < computed.joules and moved.seconds < computed.seconds
