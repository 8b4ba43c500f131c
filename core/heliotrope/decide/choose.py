"""Choosing among feasible plans (equation 6): lexicographic, weighted, or a soft multiplier on the base score.

What ties is drawn from: `choices` of the plans stay in (`heliotrope.decide.draw`), and the best of them is taken. At
last the base score decides, then the place in the line of the draw.

**Lexicographic** compares term after term and keeps what is within its tolerance of the best; what is left before
latency, if that comes last, is drawn from. A plan that another one left is at least equal to in every term and better
than in one is out. So the choice is on the Pareto front where nothing is drawn (`choices` 0), and otherwise never
further from it than the tolerances in any term before latency.

**Weighted** takes the least of Σ w · x / x*; sums within `score_tolerance` tie. There x* is the promise for latency
(TTFT + expected tokens · TPOT), the least among the plans for carbon, energy and cost, and 1 for risk, which is a share
already. So only ratios matter, and a plan that is worse than another in everything moves nothing. Where the least is
not above 0, the mean size takes its place.

**Soft multiplier** (paper cleanest-grid) divides the scorers' sum by 1 + w · CI / CI_max, so that at w = 1 the dirtiest
region has half its score; scores tie likewise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn
from heliotrope.decide.draw import drawn
from heliotrope.decide.estimate import Estimates
from heliotrope.decide.feasible import tpot_slo_seconds, ttft_slo_seconds
from heliotrope.decide.losses import CHOSEN, CODE, Loss, LossCodes
from heliotrope.decide.policy import DecisionPolicy, Objective, Term
from heliotrope.decide.request import RequestProfile

Rows = NDArray[np.intp]

LOSS_OF_TERM: Mapping[Term, Loss] = {
    Term.CARBON: Loss.CARBON,
    Term.ENERGY: Loss.ENERGY,
    Term.COST: Loss.COST,
    Term.LATENCY: Loss.LATENCY,
    Term.RISK: Loss.RISK,
}
UNKNOWN_FOR_ONE = "unknown for a candidate"


@dataclass(frozen=True, slots=True)
class Choice:
    """Who won and on what; `rows` are the candidates that were compared and `codes` why each of them lost."""

    winner: int
    decided_by: str
    rows: Rows
    codes: LossCodes
    dropped_terms: Mapping[Term, str]
    """Terms that could not be compared, with the reason."""


def choose(
    request: RequestProfile,
    candidates: Candidates,
    estimates: Estimates,
    risk: FloatColumn | None,
    eligible: BoolColumn,
    policy: DecisionPolicy,
    carbon_unusable: str | None,
    seed: int,
) -> Choice:
    """Choose one of the eligible candidates.

    Args:
        request: for the promise that latency is measured by.
        candidates: for their base scores.
        estimates: the columns to compare.
        risk: `heliotrope.decide.risk`; may be None where the policy does not compare it.
        eligible: at least one is true.
        policy: objective, order, tolerances, weights.
        carbon_unusable: why no candidate's carbon may be used in this decision, None if it may.
        seed: of the draws (`heliotrope.decide.draw.seed_of`).
    """
    rows = np.flatnonzero(eligible)
    usable, dropped = _comparable(estimates, risk, rows, policy, carbon_unusable)
    field = _Field(candidates, rows, seed, policy.choices)
    if policy.objective is Objective.WEIGHTED:
        by = _weighted(field, usable, policy, _promise_seconds(request, policy))
    elif policy.objective is Objective.SOFT_MULTIPLIER:
        intensity = None if Term.CARBON in dropped else estimates.intensity_g_per_kwh[rows]
        by = _soft_multiplier(field, intensity, policy)
    else:
        by = _lexicographic(field, usable, policy)
    winner, by = field.decide(by)
    return Choice(winner=winner, decided_by=by, rows=rows, codes=field.codes, dropped_terms=dropped)


def choose_blind(candidates: Candidates, eligible: BoolColumn, seed: int) -> Choice:
    """Choose as a picker does that knows no carbon: the best score of the scorers, equals drawn.

    Arguments as for `choose`.
    """
    rows = np.flatnonzero(eligible)
    field = _Field(candidates, rows, seed, choices=0)
    winner, by = field.decide("only plan")
    return Choice(winner=winner, decided_by=by, rows=rows, codes=field.codes, dropped_terms={})


def terms_in_use(policy: DecisionPolicy) -> Sequence[Term]:
    """What the policy compares."""
    match policy.objective:
        case Objective.WEIGHTED:
            return tuple(term for term, weight in policy.weights.items() if weight > 0.0)
        case Objective.SOFT_MULTIPLIER:
            return (Term.CARBON,)
    return policy.order


class _Field:
    """The plans that are compared: who is still in, and why the others are out."""

    def __init__(self, candidates: Candidates, rows: Rows, seed: int, choices: int) -> None:
        self.rows = rows
        self.left: Rows = np.arange(len(rows))
        """Positions in `rows` of those that are in."""
        self.codes: LossCodes = np.zeros(len(rows), dtype=np.int8)
        self.scores: FloatColumn = candidates.base_score[rows]
        self._endpoints = candidates.endpoints
        self._seed = seed
        self._choices = choices
        self._by_draw = False

    @property
    def decided(self) -> bool:
        """Whether one is left."""
        return len(self.left) == 1

    def keep(self, good: BoolColumn, loss: Loss) -> bool:
        """Put out those of `left` that are not good; whether there was any."""
        if good.all():
            return False
        self.codes[self.left[~good]] = CODE[loss]
        self.left = self.left[good]
        return True

    def keep_near(self, column: FloatColumn, loss: Loss, tolerance: float, *, absolute: bool = False) -> bool:
        """Put out those of `left` whose value is further from the least one of them; whether there was any.

        `tolerance` is a share of that value, or else an amount; `column` has a value for each of `rows`.
        """
        from heliotrope.decide.comparing import keep_near

        before = len(self.left)
        kept = keep_near(column, float(tolerance), absolute, CODE[loss], self.left, self.codes)
        self.left = self.left[:kept]
        return kept < before

    def draw(self) -> None:
        """Leave the policy's number of choices in, if it has one."""
        if not 0 < self._choices < len(self.left):
            return
        chosen = np.zeros(len(self.left), dtype=np.bool_)
        chosen[drawn(self._names(), self._seed, self._choices)] = True
        self.keep(chosen, Loss.TIE)
        self._by_draw = self.decided

    def decide(self, by: str) -> tuple[int, str]:
        """The winner among what is left, and what decided."""
        if not self.decided:
            self.draw()
            scores = self.scores[self.left]
            if self.keep(scores >= scores.max(), Loss.SCORE):
                by = "score"
        first = 0
        if not self.decided:
            by = "tie"
            (first,) = drawn(self._names(), self._seed, 1)
        elif self._by_draw:
            by = "tie"
        winner = int(self.left[first])
        self.codes[self.left] = CODE[Loss.TIE]
        self.codes[winner] = CHOSEN
        return int(self.rows[winner]), by

    def _names(self) -> list[str]:
        return [self._endpoints[row] for row in self.rows[self.left].tolist()]


def _comparable(
    estimates: Estimates,
    risk: FloatColumn | None,
    rows: Rows,
    policy: DecisionPolicy,
    carbon_unusable: str | None,
) -> tuple[dict[Term, FloatColumn], dict[Term, str]]:
    """Columns of the terms that the policy compares, and why others of them cannot be."""
    from heliotrope.decide.comparing import take_known

    columns = {
        Term.CARBON: estimates.grams_co2e,
        Term.ENERGY: estimates.incremental_joules,
        Term.COST: estimates.cost,
        Term.LATENCY: estimates.service_seconds,
        Term.RISK: np.full(len(estimates.cost), np.nan) if risk is None else risk,
    }
    terms = terms_in_use(policy)
    taken = np.empty((len(terms), len(rows)))
    usable: dict[Term, FloatColumn] = {}
    dropped: dict[Term, str] = {}
    for term in terms:
        if term is Term.CARBON and carbon_unusable is not None:
            dropped[term] = carbon_unusable
            continue
        column = taken[len(usable)]
        if take_known(columns[term], rows, column):
            usable[term] = column
        else:
            dropped[term] = UNKNOWN_FOR_ONE
    return usable, dropped


def _lexicographic(field: _Field, usable: Mapping[Term, FloatColumn], policy: DecisionPolicy) -> str:
    """Filter term by term. Dominated plans fall out at the end: until then their dominator is in whenever they are."""
    order = [term for term in policy.order if term in usable]
    decided_by = "only plan" if len(field.rows) == 1 else "dominance"
    latency_last = bool(order) and order[-1] is Term.LATENCY
    for term in order[:-1] if latency_last else order:
        if field.decided:
            break
        tolerance = policy.tolerances.get(term, 0.0)
        if field.keep_near(usable[term], LOSS_OF_TERM[term], tolerance, absolute=term is Term.RISK):
            decided_by = term.value
    drawn_from = len(field.left)
    field.draw()
    all_compared = len(field.left) == drawn_from
    tolerance = policy.tolerances.get(Term.LATENCY, 0.0)
    if latency_last and not field.decided and field.keep_near(usable[Term.LATENCY], Loss.LATENCY, tolerance):
        decided_by = Term.LATENCY.value
    columns = [usable[term] for term in order]
    if order and not field.decided:
        field.keep(_front(field, columns), Loss.DOMINATED)
    if order and all_compared and field.decided and len(field.rows) > 1 and _is_best(field, columns):
        return "dominance"
    return decided_by


def _front(field: _Field, columns: Sequence[FloatColumn]) -> BoolColumn:
    """False for plans left in that another one left in beats in one term while being at least equal in all."""
    matrix = np.stack([column[field.left] for column in columns], axis=1)
    not_worse = (matrix[:, None, :] <= matrix[None, :, :]).all(axis=2)
    better = (matrix[:, None, :] < matrix[None, :, :]).any(axis=2)
    front: BoolColumn = ~np.any(not_worse & better, axis=0)
    return front


def _is_best(field: _Field, columns: Sequence[FloatColumn]) -> bool:
    """Whether no plan is better in any term than the one that is left; its equals in all would be left as well."""
    from heliotrope.decide.comparing import is_least

    position = int(field.left[0])
    return all(is_least(column, position) for column in columns)


def _weighted(
    field: _Field, usable: Mapping[Term, FloatColumn], policy: DecisionPolicy, promise_seconds: float | None
) -> str:
    total = np.zeros(len(field.rows))
    for term, column in usable.items():
        total += policy.weights[term] * column / _scale(term, column, promise_seconds)
    _keep_least(field, total, policy)
    return "weighted sum"


def _keep_least(field: _Field, column: FloatColumn, policy: DecisionPolicy) -> None:
    """Of those within the tolerance of the least, the least of the drawn."""
    best = column.min()
    field.keep(column <= best + abs(best) * policy.score_tolerance, Loss.SCORE)
    field.draw()
    rest = column[field.left]
    field.keep(rest <= rest.min(), Loss.SCORE)


def _scale(term: Term, column: FloatColumn, promise_seconds: float | None) -> float:
    """What a term of the sum is measured by; above 0."""
    if term is Term.RISK:
        return 1.0
    if term is Term.LATENCY and promise_seconds is not None:
        return promise_seconds
    least = float(column.min())
    if least > 0.0:
        return least
    return float(np.abs(column).mean()) or 1.0


def _promise_seconds(request: RequestProfile, policy: DecisionPolicy) -> float | None:
    """The longest time that the promise leaves for the whole answer; None: there is no promise."""
    ttft, tpot = ttft_slo_seconds(request, policy), tpot_slo_seconds(request, policy)
    return None if ttft is None or tpot is None else ttft + request.expected_output_tokens * tpot


def _soft_multiplier(field: _Field, intensity: FloatColumn | None, policy: DecisionPolicy) -> str:
    adjusted = field.scores
    if intensity is not None and intensity.max() > 0.0:
        adjusted = adjusted / (1.0 + policy.soft_weight * intensity / intensity.max())
    _keep_least(field, -adjusted, policy)
    return "soft multiplier"
