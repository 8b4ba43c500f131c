"""What a CarbonPolicy optimises, and within which limits: objective, SLO, boundary, placement, KV actions."""

from datetime import timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from heliotrope.api.lists import ListSet
from heliotrope.api.scalars import DecimalString, DurationString
from heliotrope.api.struct import Struct, rule
from heliotrope.api.v1alpha1.common import Fraction, LongDuration, Name, Percent, ShortDuration

Weight = Annotated[float, DecimalString(maximum=1_000_000)]
WindowDuration = Annotated[timedelta, DurationString("1ms", "10s")]


class ObjectiveMode(StrEnum):
    """How the terms of the objective are brought together."""

    LEXICOGRAPHIC = "Lexicographic"
    WEIGHTED = "Weighted"
    SOFT_MULTIPLIER = "SoftMultiplier"


class Term(StrEnum):
    """A quantity that the objective makes small."""

    CARBON = "carbon"
    ENERGY = "energy"
    COST = "cost"
    LATENCY = "latency"
    RISK = "risk"


class Tolerances(Struct):
    """How much worse than the best a plan may be in a term and still tie with it, in percent."""

    carbon: Percent = 5
    """Tolerance in gCO2e, in percent of the least."""
    energy: Percent = 5
    """Tolerance in joules, in percent of the least."""
    cost: Percent = 5
    """Tolerance in money, in percent of the least."""
    latency: Percent = 0
    """Tolerance in predicted latency, in percent of the least."""
    risk: Percent = 5
    """Tolerance in risk, in percentage points above the least, as risk is a share already."""


class Weights(Struct):
    """Weights of the normalised terms (equation 6), each a decimal string of 0 or more."""

    latency: Weight = 0.0
    """Weight of the predicted latency."""
    energy: Weight = 0.0
    """Weight of the energy."""
    carbon: Weight = 0.0
    """Weight of the carbon."""
    cost: Weight = 0.0
    """Weight of the cost."""
    risk: Weight = 0.0
    """Weight of the risk of failure or recomputation."""

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return self.latency + self.energy + self.carbon + self.cost + self.risk


class Objective(Struct):
    """How one plan is chosen among those that keep the SLO."""

    mode: ObjectiveMode = ObjectiveMode.LEXICOGRAPHIC
    """`Lexicographic` compares term after term; `Weighted` adds weighted terms; `SoftMultiplier` scales the picker's
    own scores down by relative carbon."""
    order: Annotated[tuple[Term, ...], Field(min_length=1, max_length=5)] = (
        Term.CARBON,
        Term.ENERGY,
        Term.COST,
        Term.LATENCY,
    )
    """Terms in the order in which `Lexicographic` compares them; a term that is left out does not count."""
    tolerances_percent: Tolerances = Tolerances()
    """Differences that `Lexicographic` treats as ties, so that the next term decides."""
    weights: Weights = Weights()
    """Weights for `Weighted`."""
    soft_multiplier_weight: Annotated[float, DecimalString(maximum=10)] = 1.0
    """Strength of `SoftMultiplier` from 0 (carbon does not count) to 10, a decimal string."""
    score_tolerance_percent: Percent = 2
    """Weighted sums or scaled scores this close to the best tie, in percent of it."""
    choices: Annotated[int, Field(ge=0, le=64)] = 2
    """How many of the plans that tie in all but latency and score are drawn before these decide, so that pickers with
    the same old view do not all send to one endpoint; 0: none is drawn, all are compared."""

    @rule("self.order.all(t, self.order.exists_one(u, u == t))", "order must name each term once", field="order")
    def _terms_once(self) -> bool:
        return len(self.order) == len(set(self.order))

    @rule(
        "self.mode != 'Weighted' || double(self.weights.latency) + double(self.weights.energy) + "
        "double(self.weights.carbon) + double(self.weights.cost) + double(self.weights.risk) > 0.0",
        'mode Weighted needs at least one weight above 0, for instance carbon: "1"',
        field="weights",
    )
    def _weighted_has_weights(self) -> bool:
        return self.mode is not ObjectiveMode.WEIGHTED or self.weights.total > 0


class Slo(Struct):
    """The latency promise. Plans that break it are out; when all do, the fastest is taken as best effort."""

    ttft: ShortDuration
    """Longest time to first token, from 1ms to 1h."""
    tpot: ShortDuration
    """Longest time per output token after the first, from 1ms to 1h."""


class AccountingBoundary(Struct):
    """What counts beside operational emissions, which always do."""

    embodied: bool = False
    """Adds the share of the accelerators' embodied carbon."""
    water: bool = False
    """Reports water use where a region's WUE is known."""


class Scheduler(StrEnum):
    """Assigns a window of requests to regions."""

    GREEDY = "Greedy"
    ILP = "ILP"
    ITERATIVE_ILP = "IterativeILP"
    FACILITY = "Facility"


class SessionGateMode(StrEnum):
    """What decides whether a session moves away from its cache."""

    OFF = "Off"
    LEARNED = "Learned"
    PIN = "Pin"


class SessionGate(Struct):
    """Keeps a conversation where its KV cache is."""

    mode: SessionGateMode = SessionGateMode.LEARNED
    """`Off`: only the price of recomputation speaks against a move. `Learned`: a gate also blocks moves likely to be
    reversed, once it has proven itself on held-out sessions. `Pin`: a session stays while its endpoint is feasible."""
    forget_after: LongDuration = timedelta(hours=1)
    """Silence after which a session is forgotten, from 0s to 720h."""


class Placement(Struct):
    """How requests are spread over regions."""

    scheduler: Scheduler = Scheduler.GREEDY
    """Assigns the requests of a window to regions: `Greedy` one by one, the others all together."""
    greedy_latency_weight: Fraction = 0.0
    """Share of latency in the score of `Greedy`, from 0 (carbon alone) to 1 (latency alone), a decimal string."""
    window: WindowDuration = timedelta(milliseconds=100)
    """Longest time that the region tier collects requests before it assigns them, from 1ms to 10s."""
    window_requests: Annotated[int, Field(ge=1, le=10_000)] = 300
    """Number of requests that closes a window early."""
    solver_deadline: WindowDuration = timedelta(milliseconds=250)
    """Time after which a solver's best solution so far is taken, or `Greedy` if there is none; from 1ms to 10s."""
    largest_region_share_percent: Annotated[int, Field(ge=1, le=100)] = 100
    """Largest share of the policy's recent requests that one region may get, in percent. It yields where only that
    region keeps the SLO."""
    allowed_regions: Annotated[tuple[Name, ...], Field(min_length=1, max_length=64), ListSet()] | None = None
    """Names of the RegionProfiles where requests may be served (data residency); an endpoint of unknown region is then
    out. Absent: everywhere."""
    session_gate: SessionGate = SessionGate()
    """Keeps a conversation where its KV cache is."""

    @rule(
        "!has(self.allowedRegions) || size(self.allowedRegions) * self.largestRegionSharePercent >= 100",
        "the allowed regions cannot take all requests: raise largestRegionSharePercent to at least 100 divided by "
        "their number",
        field="largestRegionSharePercent",
    )
    def _shares_suffice(self) -> bool:
        return self.allowed_regions is None or len(self.allowed_regions) * self.largest_region_share_percent >= 100


class KvAction(StrEnum):
    """A way to come by the KV cache of a prompt, or to keep it."""

    LOCAL_HIT = "LocalHit"
    ROUTE_TO_OWNER = "RouteToOwner"
    PEER_TRANSFER = "PeerTransfer"
    OFFLOAD_RELOAD = "OffloadReload"
    RECOMPUTE = "Recompute"
    RETAIN = "Retain"


class KvActions(Struct):
    """Which KV actions the picker may choose, and what memory pressure costs (equation 8)."""

    allowed: Annotated[tuple[KvAction, ...], Field(min_length=1, max_length=6), ListSet()] = tuple(KvAction)
    """Actions that may be chosen where the engine supports them. `Recompute` must be among them."""
    memory_pressure_weight: Weight = 0.0
    """λ: joules charged for a transfer into a full KV memory, less in proportion when it is emptier; a decimal
    string."""
    longest_retention: LongDuration = timedelta(minutes=5)
    """Longest time that `Retain` holds a prefix between turns, from 0s to 720h."""

    @rule(
        "'Recompute' in self.allowed",
        "allowed must contain Recompute: it is the only action that is always possible",
        field="allowed",
    )
    def _can_recompute(self) -> bool:
        return KvAction.RECOMPUTE in self.allowed
