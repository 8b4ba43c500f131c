"""One decision, from request to explanation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.choose import Choice, choose, choose_blind
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.explanation import explanation
from heliotrope.decide.feasible import INFEASIBLE, Feasibility, Loss, feasibility
from heliotrope.decide.holdout import UNASSIGNED, Assignment
from heliotrope.decide.policy import DecisionPolicy, Term
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.verdict import SessionVerdict

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels


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
    assignment: Assignment = UNASSIGNED
    session: SessionVerdict | None = None
    """None: the request belongs to no session, or nobody looks after sessions."""

    @property
    def endpoint(self) -> str | None:
        """The chosen endpoint's name, None when nothing was feasible."""
        return None if self.winner is None else self.candidates.endpoints[self.winner]

    def row_of(self, endpoint: str) -> int | None:
        """The position of an endpoint among the candidates; None if it was none of them."""
        endpoints = self.candidates.endpoints
        return endpoints.index(endpoint) if endpoint in endpoints else None

    def within_constraints(self, row: int) -> bool | None:
        """Whether a candidate keeps everything that the policy demands; None where its latency is unknown."""
        loss = self.losses[row]
        if loss in INFEASIBLE:
            return None if loss is Loss.UNKNOWN else False
        return {Outcome.WITHIN_SLO: True, Outcome.UNKNOWN_LATENCY: None}.get(self.outcome, False)

    def steered_endpoint(self) -> str | None:
        """The endpoint that the policy chooses, also where the holdout left this decision blind to carbon."""
        steered = replace(self.assignment, arm=Arm.STEERED)
        return _decided(self.request, self.candidates, self.policy, self.now_unix_s, self.estimates, steered).endpoint

    def explanation(self) -> dict[str, Any]:
        """All of it as plain data for spans, logs and `/debug`; see `heliotrope.decide.explanation`."""
        return explanation(self)


def decide(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    *,
    assignment: Assignment = UNASSIGNED,
    models: "LearnedModels | None" = None,
) -> Decision:
    """Estimate, keep what is feasible, choose, and say why.

    When no known candidate meets the latency SLO, latency alone is relaxed: the shortest TTFT is taken and marked
    best-effort. Candidates of unknown latency come after the known ones. Region, quality and capacity stay hard.
    A held-out request keeps to the same constraints; among what they leave it goes where the scorers send it.
    """
    estimates = estimate(request, candidates, policy, now_unix_s, models)
    return _decided(request, candidates, policy, now_unix_s, estimates, assignment)


def _decided(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    estimates: Estimates,
    assignment: Assignment,
) -> Decision:
    checked = feasibility(request, candidates, estimates, policy)
    losses = list(checked.losses)
    eligible, outcome = _eligible(checked)
    winner: int | None = None
    decided_by, dropped = "constraints", {}
    if outcome is Outcome.BEST_EFFORT:
        winner = int(np.argmin(np.where(eligible, estimates.ttft_seconds, np.inf)))
        decided_by = "shortest TTFT"
    elif outcome is not Outcome.NOTHING_FEASIBLE:
        choice = _chosen(request, candidates, policy, now_unix_s, estimates, eligible, assignment.arm)
        winner, decided_by, dropped = choice.winner, choice.decided_by, dict(choice.dropped_terms)
        for row, loss in choice.losses.items():
            losses[row] = loss
    if winner is not None:
        losses[winner] = None
    return Decision(
        request=request,
        candidates=candidates,
        policy=policy,
        now_unix_s=now_unix_s,
        estimates=estimates,
        outcome=outcome,
        winner=winner,
        decided_by=decided_by,
        losses=tuple(losses),
        dropped_terms=dropped,
        assignment=assignment,
    )


def _chosen(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    estimates: Estimates,
    eligible: BoolColumn,
    arm: Arm,
) -> Choice:
    tie_break = crc32(request.request_id.encode(errors="surrogatepass"))
    if arm is Arm.HOLDOUT:
        return choose_blind(candidates, eligible, tie_break)
    unusable = carbon_unusable(candidates, eligible, now_unix_s)
    return choose(candidates, estimates, eligible, policy, unusable, tie_break)


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
