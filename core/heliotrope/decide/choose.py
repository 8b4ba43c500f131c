"""Choosing among feasible plans (equation 6): lexicographic, weighted, or a soft multiplier on the base score."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heliotrope.decide.candidates import BoolColumn, Candidates, FloatColumn
from heliotrope.decide.estimate import Estimates
from heliotrope.decide.feasible import Loss
from heliotrope.decide.policy import DecisionPolicy, Objective, Term

_LOSS_OF_TERM: Mapping[Term, Loss] = {
    Term.CARBON: Loss.CARBON,
    Term.ENERGY: Loss.ENERGY,
    Term.COST: Loss.COST,
    Term.LATENCY: Loss.LATENCY,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Who won and on what; `losses` only holds the candidates that were compared."""

    winner: int
    decided_by: str
    losses: Mapping[int, Loss]
    dropped_terms: Mapping[Term, str]
    """Terms that could not be compared, with the reason."""


def choose(
    candidates: Candidates,
    estimates: Estimates,
    eligible: BoolColumn,
    policy: DecisionPolicy,
    carbon_unusable: str | None,
    tie_break: int,
) -> Choice:
    """Choose one of the eligible candidates.

    Args:
        candidates: for their base scores.
        estimates: the columns to compare.
        eligible: at least one is true.
        policy: objective, order, tolerances, weights.
        carbon_unusable: why no candidate's carbon may be used in this decision, None if it may.
        tie_break: picks among equals (a hash of the request id spreads equals evenly and stays deterministic).
    """
    rows = np.flatnonzero(eligible)
    terms = {
        Term.CARBON: estimates.grams_co2e[rows],
        Term.ENERGY: estimates.incremental_joules[rows],
        Term.COST: estimates.cost[rows],
        Term.LATENCY: estimates.service_seconds[rows],
    }
    dropped: dict[Term, str] = {}
    for term, column in terms.items():
        if term is Term.CARBON and carbon_unusable is not None:
            dropped[term] = carbon_unusable
        elif not np.isfinite(column).all():
            dropped[term] = "unknown for a candidate"
    usable = {term: column for term, column in terms.items() if term not in dropped}
    scores = candidates.base_score[rows]
    losses: dict[int, Loss] = {}
    if policy.objective is Objective.WEIGHTED:
        alive, by = _weighted(rows, usable, policy, losses)
    elif policy.objective is Objective.SOFT_MULTIPLIER:
        intensity = None if Term.CARBON in dropped else estimates.intensity_g_per_kwh[rows]
        alive, by = _soft_multiplier(rows, scores, intensity, policy, losses)
    else:
        alive, by = _lexicographic(rows, usable, policy, losses)
    winner, by = _among_equals(rows, scores, alive, by, tie_break, losses)
    _name_what_dominated(rows, usable, policy, winner, losses)
    return Choice(winner=winner, decided_by=by, losses=losses, dropped_terms=dropped)


def choose_blind(candidates: Candidates, eligible: BoolColumn, tie_break: int) -> Choice:
    """Choose as a picker does that knows no carbon: the best score of the scorers, equals drawn.

    Arguments as for `choose`.
    """
    rows = np.flatnonzero(eligible)
    losses: dict[int, Loss] = {}
    alive = np.ones(len(rows), dtype=np.bool_)
    winner, by = _among_equals(rows, candidates.base_score[rows], alive, "only plan", tie_break, losses)
    return Choice(winner=winner, decided_by=by, losses=losses, dropped_terms={})


def _lexicographic(
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    usable: Mapping[Term, FloatColumn],
    policy: DecisionPolicy,
    losses: dict[int, Loss],
) -> tuple[BoolColumn, str]:
    order = [term for term in policy.order if term in usable]
    alive = np.ones(len(rows), dtype=np.bool_)
    if order:
        alive = _pareto(np.stack([usable[term] for term in order], axis=1))
        losses.update({int(row): Loss.DOMINATED for row in rows[~alive]})
    decided_by = "only plan" if len(rows) == 1 else "dominance"
    for term in order:
        if np.count_nonzero(alive) == 1:
            break
        column = usable[term]
        best = column[alive].min()
        keep: BoolColumn = np.logical_and(alive, column <= best + abs(best) * policy.tolerances.get(term, 0.0))
        lost = alive & ~keep
        if lost.any():
            decided_by = term.value
            losses.update({int(row): _LOSS_OF_TERM[term] for row in rows[lost]})
        alive = keep
    return alive, decided_by


def _pareto(columns: FloatColumn) -> BoolColumn:
    """Rows of an (n, terms) matrix that no other row beats in one term while being at least equal in all."""
    not_worse = (columns[:, None, :] <= columns[None, :, :]).all(axis=2)
    better = (columns[:, None, :] < columns[None, :, :]).any(axis=2)
    dominated = np.asarray(np.any(not_worse & better, axis=0), dtype=np.bool_)
    return ~dominated


def _name_what_dominated(
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    usable: Mapping[Term, FloatColumn],
    policy: DecisionPolicy,
    winner: int,
    losses: dict[int, Loss],
) -> None:
    """Replace "dominated" by the first term, in the policy's order, that the winner is clearly better in."""
    position = {int(row): i for i, row in enumerate(rows)}
    for row, loss in losses.items():
        if loss is not Loss.DOMINATED:
            continue
        for term in policy.order:
            if term not in usable:
                continue
            best = usable[term][position[winner]]
            if usable[term][position[row]] > best + abs(best) * policy.tolerances.get(term, 0.0):
                losses[row] = _LOSS_OF_TERM[term]
                break


def _weighted(
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    usable: Mapping[Term, FloatColumn],
    policy: DecisionPolicy,
    losses: dict[int, Loss],
) -> tuple[BoolColumn, str]:
    total = np.zeros(len(rows))
    for term, column in usable.items():
        largest = column.max()
        if largest > 0.0:
            total += policy.weights.get(term, 0.0) * column / largest
    alive: BoolColumn = total <= total.min()
    losses.update({int(row): Loss.SCORE for row in rows[~alive]})
    return alive, "weighted sum"


def _soft_multiplier(
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    scores: FloatColumn,
    intensity: FloatColumn | None,
    policy: DecisionPolicy,
    losses: dict[int, Loss],
) -> tuple[BoolColumn, str]:
    adjusted = scores
    if intensity is not None and intensity.max() > 0.0:
        adjusted = scores / (1.0 + policy.soft_weight * intensity / intensity.max())
    alive: BoolColumn = adjusted >= adjusted.max()
    losses.update({int(row): Loss.SCORE for row in rows[~alive]})
    return alive, "soft multiplier"


def _among_equals(
    rows: np.ndarray[tuple[int], np.dtype[np.intp]],
    scores: FloatColumn,
    alive: BoolColumn,
    decided_by: str,
    tie_break: int,
    losses: dict[int, Loss],
) -> tuple[int, str]:
    equals = np.flatnonzero(alive)
    if len(equals) == 1:
        return int(rows[equals[0]]), decided_by
    best = equals[scores[equals] >= scores[equals].max()]
    losses.update({int(rows[i]): Loss.SCORE for i in equals if i not in best})
    if len(best) == 1:
        return int(rows[best[0]]), "score"
    winner = best[tie_break % len(best)]
    losses.update({int(rows[i]): Loss.TIE for i in best if i != winner})
    return int(rows[winner]), "tie"
