"""What ran beside what a policy would have done, plan against plan, where the policy was not followed.

Under `Advise`, and for held-out requests, the configured plug-ins choose. Both plans are whole: where images are
encoded, where the prompt is prefilled and decoded, which blocks are pulled. Both stand in one estimate, so that one
pool, one horizon and one kind of model is behind both. Nothing of it is measured: it is what estimates say would have
been saved (`heliotrope.carbon.savings` has what was).
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliotrope.cache.action import KvAction
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.plans import fetches
from heliotrope.unknown import finite_or_none

if TYPE_CHECKING:
    from heliotrope.decide.decision import Decision
    from heliotrope.predict.models import LearnedModels

SAVED = ("energy_joules", "incremental_joules", "grams_co2e", "water_liters", "cost", "ttft_seconds", "service_seconds")
"""Columns of `Estimates` that are compared."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One plan and what it is estimated to take: a row of candidates and of their estimates."""

    candidates: Candidates
    estimates: Estimates
    row: int

    @property
    def endpoint(self) -> str:
        """Where it decodes, which is where the request goes."""
        return self.candidates.endpoints[self.row]

    @property
    def prefill_endpoint(self) -> str:
        """Where it prefills: the same one, unless it is a pair."""
        return self.candidates.prefill_endpoint(self.row)

    @property
    def encode_endpoints(self) -> tuple[str, ...]:
        """Where it has images encoded, if that is not where it prefills."""
        encodes = self.estimates.encodes
        return () if encodes is None else encodes.endpoints(self.row)

    @property
    def disaggregated(self) -> bool:
        """Whether another endpoint prefills."""
        return self.prefill_endpoint != self.endpoint

    @property
    def kv_action(self) -> KvAction:
        """How the endpoint that prefills comes by the prompt's KV."""
        return self.candidates.kv_actions[self.row]

    @property
    def kv_source(self) -> str | None:
        """The endpoint that blocks are pulled from."""
        return self.candidates.kv_sources[self.row]

    @property
    def kv_from(self) -> str | None:
        """Where blocks come from that another endpoint has: a pull's source, a pair's prefiller; None: none do."""
        return self.prefill_endpoint if self.disaggregated else self.kv_source

    @property
    def transfer_begins_seconds(self) -> float:
        """From the decision until blocks of a pair begin to move: its prefill; 0 of a pull; NaN where unknown."""
        pairs, pair = self.candidates.pairs, self.row - self.candidates.aggregated_count
        if pairs is None or pair < 0:
            return 0.0
        from heliotrope.decide import phase_kernel as k

        return float(pairs.prefill[k.TTFT, pairs.rows[pair]])

    def value(self, column: str) -> float:
        """Of a column of the estimates; NaN: unknown."""
        return float(getattr(self.estimates, column)[self.row])

    def document(self) -> dict[str, Any]:
        """Plain data; units are in the names, None is unknown."""
        candidates, encodes, row = self.candidates, self.estimates.encodes, self.row
        return {
            "endpoint": self.endpoint,
            "region": candidates.regions[row],
            "prefill_endpoint": self.prefill_endpoint,
            "prefill_region": candidates.prefill_region(row),
            "encode_endpoints": None if encodes is None else list(encodes.endpoints(row)),
            "encode_regions": None if encodes is None else list(encodes.regions_of(row)),
            "kv_action": self.kv_action.value,
            "kv_source": self.kv_source,
            **{name: finite_or_none(self.value(name)) for name in SAVED},
        }

    def does_as(self, other: "Planned") -> bool:
        """Whether both do the same at the same endpoints."""
        return (
            self.endpoint == other.endpoint
            and self.prefill_endpoint == other.prefill_endpoint
            and self.encode_endpoints == other.encode_endpoints
            and self._fetched() == other._fetched()
        )

    def signal_kinds(self) -> frozenset[tuple[str, str]]:
        """What the carbon signals mean that its emissions are from."""
        candidates, encodes, row = self.candidates, self.estimates.encodes, self.row
        regions = {candidates.regions[row], candidates.prefill_region(row)}
        if encodes is not None:
            regions |= set(encodes.regions_of(row))
        views = [candidates.region_views.get(name) for name in regions if name is not None]
        readings = [view.signal.reading for view in views if view is not None]
        return frozenset((r.signal_type.value, r.emission_factor.value) for r in readings if r is not None)

    def _fetched(self) -> tuple[KvAction, str | None] | None:
        """An endpoint's own cache is used whatever it is called."""
        return (self.kv_action, self.kv_source) if fetches(self.kv_action) else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What ran and what the policy would have done."""

    ran: Planned | None
    """None: the configured plug-ins left nothing to send the request to."""
    advised: Planned | None
    """None: nothing is feasible by the policy."""

    @property
    def same(self) -> bool | None:
        """Whether both are one plan; None where one of them is none."""
        if self.ran is None or self.advised is None:
            return None
        return self.ran.does_as(self.advised)

    def saved(self, column: str) -> float:
        """How much less the policy's plan is estimated to take; NaN where either is unknown.

        Emissions by signals of different types are not compared.
        """
        if self.ran is None or self.advised is None:
            return float("nan")
        if column == "grams_co2e" and len(self.ran.signal_kinds() | self.advised.signal_kinds()) > 1:
            return float("nan")
        return self.ran.value(column) - self.advised.value(column)

    def document(self) -> dict[str, Any]:
        """Plain data, for explanations."""
        return {
            "ran": None if self.ran is None else self.ran.document(),
            "advised": None if self.advised is None else self.advised.document(),
            "same": self.same,
            "modelled_saving": {name: finite_or_none(self.saved(name)) for name in SAVED},
        }


def compared(decision: "Decision", ran: int | None) -> Comparison:
    """A decision's own plans beside each other: what ran, by its row, and what the policy decides."""
    return Comparison(None if ran is None else decision.planned(ran), decision.chosen)


def estimated_together(
    decision: "Decision", candidates: Candidates, ran: int, models: "LearnedModels | None" = None
) -> Comparison:
    """Both plans in one estimate, where what ran is none of the decision's plans.

    Args:
        decision: the policy's.
        candidates: its candidates with the plan that ran as one more row, or encoding otherwise in a row.
        ran: that row.
        models: learned models, as the decision had them.
    """
    estimates = estimate(decision.request, candidates, decision.policy, decision.now_unix_s, models)
    advised = None if decision.winner is None else Planned(candidates, estimates, decision.winner)
    return Comparison(Planned(candidates, estimates, ran), advised)
