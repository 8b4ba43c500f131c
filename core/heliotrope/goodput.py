"""SLO-goodput per joule, gram, litre and dollar (equations 9-12 of sustainable-inference-control-plane).

    G_E = G_SLO / E_total      G_C = G_SLO / (C_op + C_emb)      G_W = G_SLO / W_total      G_$ = G_SLO / Cost_total

G_SLO counts output tokens of requests that kept every promise of latency and quality. The four stay apart: a weighted
sum of them would hide who gains and who loses. Unknown (NaN) is not zero: a total that is unknown, or of which a part
is, makes its goodput unknown.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

FloatColumn = NDArray[np.float64]
BoolColumn = NDArray[np.bool_]

NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Spent:
    """What was used up over an interval; NaN: unknown."""

    joules: float = NAN
    """Of everything that is accounted for."""
    operational_grams: float = NAN
    """CO2e of that energy."""
    embodied_grams: float = NAN
    """CO2e of making the hardware, its share of this interval. Whoever leaves it out of account says 0."""
    water_liters: float = NAN
    cost: float = NAN
    """In one currency."""

    @property
    def grams(self) -> float:
        """C_op + C_emb."""
        return self.operational_grams + self.embodied_grams


@dataclass(frozen=True, slots=True)
class Goodput:
    """The vector. NaN where unknown, infinite where something was got for nothing."""

    slo_tokens: float
    """G_SLO."""
    tokens_per_joule: float
    """G_E."""
    tokens_per_gram: float
    """G_C."""
    tokens_per_liter: float
    """G_W."""
    tokens_per_currency: float
    """G_$."""


def slo_tokens(
    output_tokens: FloatColumn,
    ttft_seconds: FloatColumn,
    tpot_seconds: FloatColumn,
    quality: FloatColumn,
    *,
    ttft_slo_seconds: FloatColumn,
    tpot_slo_seconds: FloatColumn,
    least_quality: FloatColumn,
) -> tuple[float, BoolColumn]:
    """G_SLO in tokens, and which requests count; columns have one value per request.

    Args:
        output_tokens: NaN: the answer is unknown, so that the request does not count.
        ttft_seconds: NaN: it never came, so that the promise is broken.
        tpot_seconds: NaN where there was only one token: there is nothing to break.
        quality: of the model that answered; NaN: unknown.
        ttft_slo_seconds: NaN: nothing is promised; so for the next two.
        tpot_slo_seconds: see there.
        least_quality: a promise that an unknown quality breaks.
    """
    kept: BoolColumn = np.isfinite(ttft_seconds) & np.isfinite(output_tokens)
    kept &= np.isnan(ttft_slo_seconds) | (ttft_seconds <= ttft_slo_seconds)
    kept &= np.isnan(tpot_slo_seconds) | np.isnan(tpot_seconds) | (tpot_seconds <= tpot_slo_seconds)
    kept &= np.isnan(least_quality) | (quality >= least_quality)
    return float(output_tokens[kept].sum()), kept


def goodput(tokens: float, spent: Spent) -> Goodput:
    """The vector of an interval.

    Args:
        tokens: G_SLO; NaN: unknown.
        spent: over the same interval.
    """
    return Goodput(
        slo_tokens=tokens,
        tokens_per_joule=_per(tokens, spent.joules),
        tokens_per_gram=_per(tokens, spent.grams),
        tokens_per_liter=_per(tokens, spent.water_liters),
        tokens_per_currency=_per(tokens, spent.cost),
    )


def dominates(one: Iterable[float], other: Iterable[float]) -> bool:
    """Whether one vector of costs is nowhere worse and somewhere better; never where a value is unknown."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)  # NaN compares false


def pareto(costs: NDArray[np.float64]) -> BoolColumn:
    """Which rows of costs no other row dominates, shape (n, terms); a row with an unknown value is on no frontier."""
    rows: list[list[float]] = costs.tolist()
    known = [all(map(isfinite, row)) for row in rows]
    return np.array([known[i] and not any(dominates(other, row) for other in rows) for i, row in enumerate(rows)])


def _per(tokens: float, amount: float) -> float:
    if amount > 0.0:
        return tokens / amount
    return np.inf if amount == 0.0 and tokens > 0.0 else NAN
