"""A CarbonPolicy as the fast path uses it: checked, frozen, in SI units."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from heliotrope.cache.rules import KvRules
from heliotrope.cache.session_rules import SessionRules
from heliotrope.decide.quality import ModelRules


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
    RISK = "risk"


DEFAULT_ORDER = (Term.CARBON, Term.ENERGY, Term.COST, Term.LATENCY)
DEFAULT_TOLERANCES: Mapping[Term, float] = {
    Term.CARBON: 0.02,
    Term.ENERGY: 0.05,
    Term.COST: 0.02,
    Term.LATENCY: 0.0,
    Term.RISK: 0.05,
}
DEFAULT_SCORE_TOLERANCE = 0.02
DEFAULT_CHOICES = 2


class Override(StrEnum):
    """Something that a request may change by header."""

    SLO = "slo"
    OBJECTIVE = "objective"
    REGIONS = "regions"
    DEADLINE = "deadline"
    """Of the region tier: until when it may hold the request."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How feasible plans are compared: the part of a policy that a class, an event or a request may replace."""

    objective: Objective
    order: tuple[Term, ...] = DEFAULT_ORDER
    tolerances: Mapping[Term, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    weights: Mapping[Term, float] = field(default_factory=dict)
    soft_weight: float = 1.0
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE
    choices: int = DEFAULT_CHOICES


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """Requests with settings of their own; None leaves the policy's."""

    name: str
    inference_objectives: frozenset[str] = frozenset()
    lowest_priority: int | None = None
    """With `highest_priority` None too: priority counts for nothing."""
    highest_priority: int | None = None
    ttft_slo_seconds: float | None = None
    tpot_slo_seconds: float | None = None
    comparison: Comparison | None = None
    answers_demand: bool = True
    """Whether the comparison of a demand event takes the place of this class's."""


@dataclass(frozen=True, slots=True)
class DemandEvent:
    """Holds from `start_unix_s` until before `end_unix_s`."""

    name: str
    start_unix_s: float
    end_unix_s: float


@dataclass(frozen=True, slots=True)
class Overridable:
    """What a request may change, and within which bounds in seconds."""

    allowed: frozenset[Override] = frozenset({Override.SLO})
    shortest_ttft_seconds: float = 0.0
    longest_ttft_seconds: float = float("inf")
    shortest_tpot_seconds: float = 0.0
    longest_tpot_seconds: float = float("inf")


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """Power that an endpoint must have left."""

    least_watts: float = 0.0
    avoid_throttled: bool = True


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the settings of one request come from beside its policy."""

    service_class: str | None = None
    event: str | None = None
    """The demand event whose comparison holds."""
    applied: tuple[Override, ...] = ()
    refused: tuple[tuple[Override, str], ...] = ()
    """What the request asked for and does not get, with the reason."""


@dataclass(frozen=True, slots=True)
class DecisionPolicy:
    """The settings of one decision.

    `tolerances` are relative (0.05 = within 5 % of the best counts as equal), but for risk, which is a share already:
    0.05 = five percentage points. `choices` is how many of the plans that tie in all but latency are drawn before that
    and the score decide (`heliotrope.decide.draw`); 0: none is drawn. `certainty` is how many standard
    deviations are added to a latency estimate before it is compared with its SLO: it keeps cleaner engines from being
    filled into their queues, where waiting is on average short but spreads as widely as it is long.
    """

    name: str
    objective: Objective = Objective.LEXICOGRAPHIC
    order: tuple[Term, ...] = DEFAULT_ORDER
    tolerances: Mapping[Term, float] = field(default_factory=lambda: dict(DEFAULT_TOLERANCES))
    weights: Mapping[Term, float] = field(default_factory=dict)
    soft_weight: float = 1.0
    score_tolerance: float = DEFAULT_SCORE_TOLERANCE
    """Weighted sums and soft-multiplied scores this close to the best, relative to it, tie."""
    choices: int = DEFAULT_CHOICES
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
    kv: KvRules = field(default_factory=KvRules)
    sessions: SessionRules = field(default_factory=SessionRules)
    largest_region_share: float = 1.0
    """Of the policy's recent requests, in (0, 1]; yields where only that region keeps the SLO."""
    power: PowerLimit | None = None
    """Yields likewise."""
    classes: tuple[ServiceClass, ...] = ()
    """The first that a request belongs to holds."""
    events: tuple[DemandEvent, ...] = ()
    event_comparison: Comparison | None = None
    overrides: Overridable = Overridable()
    models: ModelRules | None = None
    """None: every request is answered by the model that it asks for."""
    revision: str = ""
    """Tells versions of the policy apart: its generation, or a digest of its spec where it has none."""
    provenance: Provenance = Provenance()
    """Of the settings, once `heliotrope.decide.resolve` has resolved them for a request."""
