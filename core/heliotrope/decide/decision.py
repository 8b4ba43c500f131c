"""One decision, from request to explanation."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from zlib import crc32

import numpy as np

from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.choose import choose
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.feasible import Feasibility, Loss, feasibility
from heliotrope.decide.policy import DecisionPolicy, Term
from heliotrope.decide.request import RequestProfile


class Outcome(StrEnum):
    """How the decision ended."""

    WITHIN_SLO = "within-slo"
    UNKNOWN_LATENCY = "unknown-latency"
    """No candidate's latency is known; one was chosen by score."""
    BEST_EFFORT = "best-effort"
    """No known candidate meets the latency SLO; the shortest TTFT was chosen."""
    NOTHING_FEASIBLE = "nothing-feasible"
    """Region, quality or capacity rule out every candidate."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The chosen endpoint with every candidate's numbers and the reason it lost."""

    request: RequestProfile
    candidates: Candidates
    policy: DecisionPolicy
    now_unix_s: float
    estimates: Estimates
    outcome: Outcome
    winner: int | None
    decided_by: str
    losses: tuple[Loss | None, ...]
    dropped_terms: Mapping[Term, str]

    @property
    def endpoint(self) -> str | None:
        """The chosen endpoint's name, None when nothing was feasible."""
        return None if self.winner is None else self.candidates.endpoints[self.winner]

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data for spans, logs and `/debug`: unknown is None, units are in the names."""
        e, c = self.estimates, self.candidates
        return {
            "request_id": self.request.request_id,
            "policy": self.policy.name,
            "outcome": self.outcome.value,
            "endpoint": self.endpoint,
            "decided_by": self.decided_by,
            "dropped_terms": {term.value: reason for term, reason in self.dropped_terms.items()},
            "candidates": [
                {
                    "endpoint": c.endpoints[i],
                    "region": c.regions[i],
                    "chosen": i == self.winner,
                    "lost_because": None if self.losses[i] is None else str(self.losses[i]),
                    "ttft_seconds": _plain(e.ttft_seconds[i]),
                    "tpot_seconds": _plain(e.tpot_seconds[i]),
                    "energy_joules": _plain(e.energy_joules[i]),
                    "incremental_joules": _plain(e.incremental_joules[i]),
                    "attributed_joules": _plain(e.attributed_joules[i]),
                    "intensity_g_per_kwh": _plain(e.intensity_g_per_kwh[i]),
                    "grams_co2e": _plain(e.grams_co2e[i]),
                    "cost": _plain(e.cost[i]),
                    "base_score": _plain(c.base_score[i]),
                    "cached_tokens": _plain(c.cached_tokens[i]),
                }
                for i in range(len(c))
            ],
        }


def decide(request: RequestProfile, candidates: Candidates, policy: DecisionPolicy, now_unix_s: float) -> Decision:
    """Estimate, keep what is feasible, choose, and say why.

    When no known candidate meets the latency SLO, latency alone is relaxed: the shortest TTFT is taken and marked
    best-effort. Candidates of unknown latency come after the known ones. Region, quality and capacity stay hard.
    """
    estimates = estimate(request, candidates, policy, now_unix_s)
    checked = feasibility(request, candidates, estimates, policy)
    losses = list(checked.losses)
    eligible, outcome = _eligible(checked)
    if outcome is Outcome.NOTHING_FEASIBLE:
        return Decision(
            request, candidates, policy, now_unix_s, estimates, outcome, None, "constraints", tuple(losses), {}
        )
    if outcome is Outcome.BEST_EFFORT:
        ttft = np.where(eligible, estimates.ttft_seconds, np.inf)
        winner = int(np.argmin(ttft))
        losses[winner] = None
        return Decision(
            request, candidates, policy, now_unix_s, estimates, outcome, winner, "shortest TTFT", tuple(losses), {}
        )
    unusable = carbon_unusable(candidates, eligible, now_unix_s)
    choice = choose(candidates, estimates, eligible, policy, unusable, crc32(request.request_id.encode()))
    for row, loss in choice.losses.items():
        losses[row] = loss
    losses[choice.winner] = None
    return Decision(
        request=request,
        candidates=candidates,
        policy=policy,
        now_unix_s=now_unix_s,
        estimates=estimates,
        outcome=outcome,
        winner=choice.winner,
        decided_by=choice.decided_by,
        losses=tuple(losses),
        dropped_terms=choice.dropped_terms,
    )


def carbon_unusable(candidates: Candidates, eligible: BoolColumn, now_unix_s: float) -> str | None:
    """Why carbon must drop out for all eligible candidates, or None.

    It drops out if any of them lacks a fresh signal, or if their signals are of different type: average and marginal,
    or lifecycle and direct values are never compared.
    """
    kinds = set()
    for i in np.flatnonzero(eligible):
        name = candidates.regions[i]
        view = candidates.region_views.get(name) if name is not None else None
        if view is None:
            return f"{candidates.endpoints[i]} is in no known region"
        freshness = view.signal.freshness(now_unix_s)
        reading = view.signal.reading
        if freshness is not Freshness.FRESH or reading is None:
            return f"signal of {view.name} is {freshness.value.lower()}"
        kinds.add((reading.signal_type, reading.emission_factor))
    if len(kinds) > 1:
        return "signals of different type: " + ", ".join(sorted(f"{t} {f}" for t, f in kinds))
    return None


def _eligible(checked: Feasibility) -> tuple[BoolColumn, Outcome]:
    within = checked.allowed & checked.meets_slo
    if within.any():
        return within, Outcome.WITHIN_SLO
    known = checked.allowed & checked.latency_known
    if known.any():
        return known, Outcome.BEST_EFFORT
    if checked.allowed.any():
        return checked.allowed, Outcome.UNKNOWN_LATENCY
    return checked.allowed, Outcome.NOTHING_FEASIBLE


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
