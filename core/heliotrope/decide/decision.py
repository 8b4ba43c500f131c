"""One decision, from request to explanation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.signal import Freshness
from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn
from heliotrope.decide.choose import Choice, choose, choose_blind, terms_in_use
from heliotrope.decide.compared import Planned
from heliotrope.decide.draw import drawn, seed_of
from heliotrope.decide.estimate import Estimates, estimate
from heliotrope.decide.explanation import explanation
from heliotrope.decide.feasible import Feasibility, Limit, feasibility, relaxations
from heliotrope.decide.holdout import UNASSIGNED, Assignment
from heliotrope.decide.losses import CHOSEN, INFEASIBLE, Loss, LossCodes, decoded, loss_of
from heliotrope.decide.policy import DecisionPolicy, Term
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.risk import risk
from heliotrope.decide.standing import UNKNOWN_STANDING, Standing
from heliotrope.decide.verdict import SessionVerdict

if TYPE_CHECKING:
    from heliotrope.predict.models import LearnedModels


class Outcome(StrEnum):
    """How the decision ended."""

    WITHIN_SLO = "within-slo"
    UNKNOWN_LATENCY = "unknown-latency"
    """No candidate's latency is known; one was chosen by score."""
    BEST_EFFORT = "best-effort"
    """No known candidate meets the latency SLO; the shortest TTFT was chosen, as far as estimates can tell."""
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
    loss_codes: LossCodes
    """By candidate (`heliotrope.decide.losses`)."""
    dropped_terms: Mapping[Term, str]
    assignment: Assignment = UNASSIGNED
    session: SessionVerdict | None = None
    """None: the request belongs to no session, or nobody looks after sessions."""
    relaxed: tuple[Limit, ...] = ()
    """Limits that gave way, as they left no plan that keeps the latency promise."""
    risk: FloatColumn | None = None
    """None: the policy does not compare it."""
    standing: Standing = UNKNOWN_STANDING
    steered: "Decision | None" = None
    """Of a held-out request whose blind choice had fewer plans: what the policy decides among all of them."""

    @property
    def losses(self) -> tuple[Loss | None, ...]:
        """Why each candidate was not chosen; None for the one that was."""
        return decoded(self.loss_codes)

    def loss(self, row: int) -> Loss | None:
        """Why one candidate was not chosen."""
        return loss_of(int(self.loss_codes[row]))

    @property
    def endpoint(self) -> str | None:
        """The chosen endpoint's name, None when nothing was feasible."""
        return None if self.winner is None else self.candidates.endpoints[self.winner]

    def row_of(self, endpoint: str) -> int | None:
        """The position of an endpoint's plan; None if it was no candidate.

        An endpoint may stand in several rows: that of the chosen plan where the policy is enforced, else its first,
        which uses the endpoint as it is.
        """
        endpoints = self.candidates.endpoints
        if self.policy.enforce and self.winner is not None and endpoints[self.winner] == endpoint:
            return self.winner
        return endpoints.index(endpoint) if endpoint in endpoints else None

    def pair_row(self, decode: str, prefill: str) -> int | None:
        """The position of the plan that prefills at one endpoint and decodes at another; None if there is none."""
        candidates = self.candidates
        pairs = range(candidates.aggregated_count, len(candidates))
        rows = (
            row for row in pairs if candidates.endpoints[row] == decode and candidates.prefill_endpoint(row) == prefill
        )
        return next(rows, None)

    def within_constraints(self, row: int) -> bool | None:
        """Whether a candidate keeps everything that the policy demands; None where its latency is unknown."""
        loss = self.loss(row)
        if loss in INFEASIBLE:
            return None if loss is Loss.UNKNOWN else False
        return {Outcome.WITHIN_SLO: True, Outcome.UNKNOWN_LATENCY: None}.get(self.outcome, False)

    def by_policy(self) -> "Decision":
        """What the policy decides, also where the holdout left this decision blind to carbon."""
        if self.steered is not None:
            return self.steered
        if self.assignment.arm is not Arm.HOLDOUT:
            return self
        steered = replace(self.assignment, arm=Arm.STEERED)
        return _decided(
            self.request, self.candidates, self.policy, self.now_unix_s, self.estimates, steered, self.standing
        )

    def steered_endpoint(self) -> str | None:
        """The endpoint that the policy chooses (`by_policy`)."""
        return self.by_policy().endpoint

    def planned(self, row: int) -> Planned:
        """One of its plans."""
        return Planned(self.candidates, self.estimates, row)

    @property
    def chosen(self) -> Planned | None:
        """The chosen plan; None when nothing was feasible."""
        return None if self.winner is None else self.planned(self.winner)

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
    standing: Standing = UNKNOWN_STANDING,
) -> Decision:
    """Estimate, keep what is feasible, choose, and say why.

    The limits of the fleet (a region's largest share, power headroom) yield where they leave no plan that keeps the
    latency SLO; `relaxed` names them. When no known candidate meets it, latency alone is relaxed: the shortest TTFT is
    taken and marked best-effort. Candidates of unknown latency come after the known ones. Region, quality and capacity
    stay hard. A held-out request keeps to the same constraints; among what they leave it goes where the scorers send
    it.
    """
    estimates = estimate(request, candidates, policy, now_unix_s, models)
    return _decided(request, candidates, policy, now_unix_s, estimates, assignment, standing)


def _decided(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    estimates: Estimates,
    assignment: Assignment,
    standing: Standing,
) -> Decision:
    checked = feasibility(request, candidates, estimates, policy, standing)
    eligible, outcome, relaxed = _eligible(checked)
    codes = checked.codes(relaxed)
    risks = risk(request, candidates, standing) if Term.RISK in terms_in_use(policy) else None
    winner: int | None = None
    decided_by, dropped = "constraints", {}
    if outcome is Outcome.BEST_EFFORT:
        winner = _soonest(request, candidates, estimates, eligible, policy, standing)
        decided_by = "shortest TTFT"
    elif outcome is not Outcome.NOTHING_FEASIBLE:
        choice = _chosen(request, candidates, policy, now_unix_s, estimates, risks, eligible, assignment.arm, standing)
        winner, decided_by, dropped = choice.winner, choice.decided_by, dict(choice.dropped_terms)
        codes[choice.rows] = choice.codes
    if winner is not None:
        codes[winner] = CHOSEN
    return Decision(
        request=request,
        candidates=candidates,
        policy=policy,
        now_unix_s=now_unix_s,
        estimates=estimates,
        outcome=outcome,
        winner=winner,
        decided_by=decided_by,
        loss_codes=codes,
        dropped_terms=dropped,
        assignment=assignment,
        relaxed=relaxed,
        risk=risks,
        standing=standing,
    )


def _soonest(
    request: RequestProfile,
    candidates: Candidates,
    estimates: Estimates,
    eligible: BoolColumn,
    policy: DecisionPolicy,
    standing: Standing,
) -> int:
    """The shortest TTFT; of those that its estimate cannot tell apart, as many as the policy draws are compared.

    Overload is when pickers with one old view do most harm by all sending to the same endpoint.
    """
    ttft = np.where(eligible, estimates.ttft_seconds, np.inf)
    shortest = int(np.argmin(ttft))
    near = np.flatnonzero(ttft * (1.0 - np.minimum(estimates.ttft_relative_error, 1.0)) <= ttft[shortest])
    if not 0 < policy.choices < len(near):
        return shortest
    seed = seed_of(request.request_id, standing.draw_seed)
    rows = near[drawn([candidates.endpoints[row] for row in near.tolist()], seed, policy.choices)]
    return int(rows[np.argmin(ttft[rows])])


def _chosen(
    request: RequestProfile,
    candidates: Candidates,
    policy: DecisionPolicy,
    now_unix_s: float,
    estimates: Estimates,
    risks: FloatColumn | None,
    eligible: BoolColumn,
    arm: Arm,
    standing: Standing,
) -> Choice:
    seed = seed_of(request.request_id, standing.draw_seed)
    if arm is Arm.HOLDOUT:
        return choose_blind(candidates, eligible, seed)
    unusable = carbon_unusable(candidates, eligible, now_unix_s) if Term.CARBON in terms_in_use(policy) else None
    return choose(request, candidates, estimates, risks, eligible, policy, unusable, seed)


def carbon_unusable(candidates: Candidates, eligible: BoolColumn, now_unix_s: float) -> str | None:
    """Why carbon must drop out for all eligible candidates, or None.

    It drops out if any of them lacks a fresh signal, or if their signals are of different type: average and marginal,
    or lifecycle and direct values are never compared.
    """
    from heliotrope.decide.comparing import first_rows

    kinds, names = set(), candidates.region_names
    rows = np.empty(len(names) + 1, dtype=np.intp)
    first_rows(candidates.region_codes, eligible, rows)
    for name, row in zip((*names, None), rows.tolist(), strict=True):
        if row < 0:
            continue
        view = candidates.region_views.get(name) if name is not None else None
        if view is None:
            return f"{candidates.endpoints[row]} is in no known region"
        freshness = view.signal.freshness(now_unix_s)
        reading = view.signal.reading
        if freshness is not Freshness.FRESH or reading is None:
            return f"signal of {view.name} is {freshness.value.lower()}"
        kinds.add((reading.signal_type, reading.emission_factor))
    if len(kinds) > 1:
        return "signals of different type: " + ", ".join(sorted(f"{t} {f}" for t, f in kinds))
    return None


def _eligible(checked: Feasibility) -> tuple[BoolColumn, Outcome, tuple[Limit, ...]]:
    """What may be chosen, how well it keeps the promise, and the limits that gave way for it."""
    limits = relaxations(checked)
    for outcome, good in (
        (Outcome.WITHIN_SLO, checked.allowed & checked.meets_slo),
        (Outcome.BEST_EFFORT, checked.allowed & checked.latency_known),
        (Outcome.UNKNOWN_LATENCY, checked.allowed),
    ):
        if not good.any():
            continue
        for limit, relaxed in limits:
            within = good if limit is None else good & limit
            if within.any():
                return within, outcome, relaxed
    return checked.allowed, Outcome.NOTHING_FEASIBLE, ()
