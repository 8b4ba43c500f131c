"""Whether a session stays where its last turn was although the policy would move it (context-is-not-free, algorithm 1).

The proposal is the policy's own choice among all plans, each of which is charged for the history that it must compute
again. A session that would leave a feasible endpoint that still caches its history is at a switch: there the learned
gate, which knows how often such moves are reversed, may keep it. `Pin` keeps it wherever it is feasible. Only what is
feasible counts: best effort, where every latency breaks its promise, goes to the shortest TTFT and nowhere else.
"""

from dataclasses import replace

import numpy as np

from heliotrope.cache.gate import Gate
from heliotrope.cache.gate_features import GateFeatures, Placement, Turn, features_of
from heliotrope.cache.session_rules import SessionMode
from heliotrope.cache.sessions import SessionView
from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.decision import Decision
from heliotrope.decide.losses import CHOSEN, CODE, INFEASIBLE, Loss
from heliotrope.decide.policy import Term
from heliotrope.decide.verdict import Because, Movement, SessionVerdict
from heliotrope.predict.features import HARDWARE_FEATURES, column_of

NAN = float("nan")
_MOVEMENT = {Because.CHOSEN: Movement.STAYED, Because.PIN: Movement.KEPT, Because.GATE: Movement.KEPT}
_GATE_WAS_ASKED = frozenset({Because.GATE, Because.WORTH_IT, Because.GATE_UNKNOWN})
_MAX_NUM_SEQS = column_of("max_num_seqs", HARDWARE_FEATURES)


def with_session(decision: Decision, session: SessionView | None, gate: Gate, identified_by: str = "") -> Decision:
    """The decision with its session's verdict: as it was, or at the session's previous endpoint.

    Args:
        decision: the proposal.
        session: None if no earlier turn is known.
        gate: the learned gate; one that is off keeps nothing.
        identified_by: for the verdict.
    """
    if decision.winner is None:
        return decision
    if session is None or session.turns == 0:
        return replace(decision, session=SessionVerdict(Movement.NEW, Because.FIRST, 0, None, 0, identified_by))
    home, because, value = _judged(decision, session, gate)
    verdict = SessionVerdict(
        movement=_MOVEMENT.get(because, Movement.MOVED),
        because=because,
        turns=session.turns,
        previous_endpoint=session.previous_endpoint,
        history_tokens=session.history_tokens,
        identified_by=identified_by,
        gate_value=value,
        gate_threshold=gate.threshold if because in _GATE_WAS_ASKED else None,
    )
    if home is None or verdict.movement is not Movement.KEPT:
        return replace(decision, session=verdict)
    codes = decision.loss_codes.copy()
    codes[decision.winner], codes[home] = CODE[Loss.SESSION], CHOSEN
    return replace(decision, winner=home, decided_by="session", loss_codes=codes, session=verdict)


def _judged(decision: Decision, session: SessionView, gate: Gate) -> tuple[int | None, Because, float | None]:
    """Lines 9 to 14: the best plan of the previous endpoint, what becomes of the session, and the gate's value."""
    previous = session.previous_endpoint
    if decision.endpoint == previous:
        return None, Because.CHOSEN, None
    if decision.assignment.arm is Arm.HOLDOUT:
        return None, Because.HELD_OUT, None
    row = None if previous is None else decision.row_of(previous)
    if row is None:
        return None, Because.GONE, None
    home = _best_feasible(decision, row)
    if home is None:
        return None, Because.INFEASIBLE, None
    mode = decision.policy.sessions.mode
    if mode is SessionMode.PIN:
        return home, Because.PIN, None
    if not decision.candidates.cached_tokens[row] > 0.0:
        return home, Because.NO_CACHE, None
    if mode is SessionMode.OFF:
        return home, Because.MODE_OFF, None
    if not gate.on:
        return home, Because.GATE_OFF, None
    value = gate.advantage(switch_features(decision, session, home)) if _carbon_known(decision, home) else None
    if value is None:
        return home, Because.GATE_UNKNOWN, None
    return home, Because.GATE if value > gate.threshold else Because.WORTH_IT, value


def _carbon_known(decision: Decision, home: int) -> bool:
    """Of both sides: without it the proposal is none of carbon's, and the gate has never seen its like."""
    assert decision.winner is not None
    grams = decision.estimates.grams_co2e
    known = np.isfinite(grams[decision.winner]) and np.isfinite(grams[home])
    return Term.CARBON not in decision.dropped_terms and bool(known)


def switch_features(decision: Decision, session: SessionView, home: int) -> GateFeatures:
    """What the gate sees of the proposed switch away from plan `home`."""
    request = decision.request
    assert decision.winner is not None
    history = float(min(session.history_tokens, request.prompt_tokens))
    turn = Turn(
        number=session.turns + 1,
        new_tokens=request.prompt_tokens - history,
        history_tokens=history,
        expected_output_tokens=request.expected_output_tokens,
        seconds_since_last_turn=session.idle_seconds,
        switches=float(session.switches),
        turns_at_previous=float(session.turns_at_previous),
    )
    return features_of(_placement(decision, decision.winner, history), _placement(decision, home, history), turn)


def _placement(decision: Decision, row: int, history_tokens: float) -> Placement:
    c, e, floor = decision.candidates, decision.estimates, decision.policy.quality_floor
    return Placement(
        grams_co2e=float(e.grams_co2e[row]),
        cached_tokens=min(c.reused_tokens(row), history_tokens),
        intensity_g_per_kwh=float(e.intensity_g_per_kwh[row]),
        quality_margin=float(c.quality[row]) / floor if floor else NAN,
        kv_use=float(c.kv_tokens[row] / c.kv_capacity_tokens[row]) if c.kv_capacity_tokens[row] > 0.0 else NAN,
        free_share=_free_share(c, row),
        model=decision.request.model,
        region=c.regions[row] or "",
    )


def _free_share(candidates: Candidates, row: int) -> float:
    """Of the places in the batch."""
    places = float(candidates.hardware_rows[row, _MAX_NUM_SEQS])
    if not places > 0.0:
        return NAN
    taken = float(candidates.running[row] + candidates.waiting[row])
    return float(np.clip(1.0 - taken / places, 0.0, 1.0))  # NaN stays


def _best_feasible(decision: Decision, first: int) -> int | None:
    """The cleanest feasible plan at the endpoint of row `first`; None if none is feasible."""
    candidates, grams = decision.candidates, decision.estimates.grams_co2e
    endpoints = candidates.endpoints
    # Endpoints stand first, each once; plans that fetch blocks follow.
    plans = [i for i in range(candidates.endpoint_count, len(endpoints)) if endpoints[i] == endpoints[first]]
    rows = [i for i in (first, *plans) if decision.loss(i) not in INFEASIBLE]
    return min(rows, key=lambda i: float("inf") if np.isnan(grams[i]) else float(grams[i])) if rows else None
