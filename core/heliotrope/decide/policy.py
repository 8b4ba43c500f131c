"""A CarbonPolicy as the fast path uses it: checked, frozen, in SI units."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Objective(StrEnum):
    """How feasible plans are compared."""

    LEXICOGRAPHIC = "Lexicographic"
    WEIGHTED = "Weighted"
    SOFT_MULTIPLIER = "SoftMultiplier"


class Term(StrEnum):
    """What a plan can be better in."""

    CARBON = "carbon"
    ENERGY = "energy"
    COST = "cost"
    LATENCY = "latency"


DEFAULT_ORDER = (Term.CARBON, Term.ENERGY, Term.COST, Term.LATENCY)
DEFAULT_TOLERANCES: Mapping[Term, float] = {Term.CARBON: 0.02, Term.ENERGY: 0.05, Term.COST: 0.02, Term.LATENCY: 0.0}


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """The settings of one decision.

    `tolerances` are relative (0.05 = within 5 % of the best counts as equal). `certainty` is how many standard
    deviations are added to a latency estimate before it is compared with its SLO: it keeps cleaner engines from being
    filled into their queues, where waiting is on average short but spreads as widely as it is long.
    """

    name: str
    objective: Objective = Objective.LEXICOGRAPHIC
    order: tuple[Term, ...] = DEFAULT_ORDER
    tolerances: Mapping[Term, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    weights: Mapping[Term, float] = field(default_factory=dict)
    soft_weight: float = 1.0
    ttft_slo_seconds: float | None = None
    tpot_slo_seconds: float | None = None
    quality_floor: float | None = None
    allowed_regions: frozenset[str] | None = None
    include_embodied: bool = False
    include_water: bool = False
    certainty: float = 3.0
    enforce: bool = True
    holdout_percent: int = 0
    """Share of requests, in [0, 50], whose endpoint is chosen blind to carbon."""
    holdout_seed: int = 0
