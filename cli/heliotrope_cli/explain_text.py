"""A recorded decision in plain sentences: where the request went and why, and why each other endpoint lost."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from heliotrope.carbon.arms import Arm
from heliotrope.decide.decision import Outcome
from heliotrope.decide.feasible import Loss
from heliotrope.decide.recorded import (
    Candidate,
    CarbonDecision,
    Constraints,
    Measured,
    Objective,
    PlanComparison,
    Profile,
    Recorded,
    Session,
)
from heliotrope_cli.explain_kv import kv_sentence
from heliotrope_cli.explain_models import model_lines
from heliotrope_cli.explain_plans import comparison_lines, placed, steered_to
from heliotrope_cli.explain_policy import limits as fleet_limits
from heliotrope_cli.explain_policy import percent, settings, why_limited
from heliotrope_cli.quantities import UNKNOWN, grams, joules, plain, seconds, shown, with_error

_COMPARED: dict[str, tuple[Loss, str, Callable[[Candidate], float | None], Callable[[float | None], str]]] = {
    "carbon": (Loss.CARBON, "carbon", lambda c: c.grams_co2e, grams),
    "energy": (Loss.ENERGY, "energy", lambda c: c.incremental_joules, lambda value: f"{joules(value)} added"),
    "cost": (Loss.COST, "cost", lambda c: c.cost, plain),
    "latency": (Loss.LATENCY, "latency", lambda c: c.service_seconds, seconds),
    "risk": (Loss.RISK, "risk", lambda c: c.risk, percent),
}
"""By term: the loss it brings, its name, what is compared and how that is written."""


def sentences(record: Recorded) -> list[str]:
    """The story from top to bottom."""
    lines = [_about(record), _headline(record), *comparison_lines(record.plan_comparison)]
    if record.scheduling is not None:
        lines.extend(model_lines(record.scheduling.models))
    decision = record.carbon_decision
    if decision is not None:
        lines.extend(_decision_lines(decision))
    if record.measured is not None:
        lines.append(_measured(record.measured, _chosen(record)))
    return lines


def why_lost(candidate: Candidate, decision: CarbonDecision) -> str:
    """One candidate's verdict with the numbers behind it."""
    if candidate.chosen:
        return "chosen" if candidate.within_constraints is not False else "chosen: best effort"
    loss, winner = candidate.lost_because or UNKNOWN, decision.winner
    limits = decision.constraints or Constraints()
    for expected, _, value, written in _COMPARED.values():
        if loss == expected and winner is not None:
            return f"{loss}: {written(value(candidate))} against {written(value(winner))}"
    limited = why_limited(candidate, decision)
    if limited is not None:
        return limited
    match loss:
        case Loss.TTFT:
            return _above(loss, candidate.ttft_seconds, candidate.ttft_relative_error, limits.ttft_slo_seconds, limits)
        case Loss.TPOT:
            return _above(loss, candidate.tpot_seconds, candidate.tpot_relative_error, limits.tpot_slo_seconds, limits)
        case Loss.QUALITY:
            return f"{loss}: {plain(candidate.quality)} against {plain(limits.quality_floor)}"
        case Loss.SCORE if winner is not None:
            return f"{loss}: {plain(candidate.base_score)} against {plain(winner.base_score)}"
    return shown(loss)


def _about(record: Recorded) -> str:
    time = UNKNOWN
    if record.time_unix_s is not None and 0 <= record.time_unix_s < 1e11:
        time = datetime.fromtimestamp(record.time_unix_s, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    prompt = UNKNOWN if record.prompt_tokens is None else f"{record.prompt_tokens:,}"
    how = "" if record.streaming is None else ", streamed" if record.streaming else ", in one piece"
    return (
        f"Request {shown(record.request_id) or 'without an id'} at {time}: model {shown(record.model or UNKNOWN)}{how}"
        f", {prompt} prompt tokens, {plain(record.expected_output_tokens)} output tokens expected.{_waited(record)}"
    )


def _waited(record: Recorded) -> str:
    held = f" It waited {record.held_seconds:.1f} s for an engine to wake." if record.held_seconds else ""
    if not record.asleep:
        return held
    names = ", ".join(shown(name) for name in record.asleep[:3])
    more = f" and {len(record.asleep) - 3} more" if len(record.asleep) > 3 else ""
    return f"{held} Asleep, and so no candidates: {names}{more}."


def _headline(record: Recorded) -> str:
    decision = record.carbon_decision
    if record.endpoint is None:
        return f"Refused: {shown(record.reason, 500) or _refused(decision)}."
    if decision is None:
        return f"Sent to {shown(record.endpoint)} {_by_score(record)}. No CarbonPolicy decided."
    if not record.carbon_decision_enforced or not decision.enforced:
        return (
            f"Sent to {shown(record.endpoint)} {_by_score(record)}. Policy {shown(decision.policy)} only advises: it "
            f"{_would(decision, record.plan_comparison)}."
        )
    if decision.arm == Arm.HOLDOUT:
        steered = steered_to(decision, record.plan_comparison)
        return (
            f"Sent to {shown(record.endpoint)} blind to carbon {_because(decision)}: it is one of the requests that "
            f"policy {shown(decision.policy)} holds out to measure its saving. Steered, it would have gone {steered}."
        )
    return f"Sent to {shown(record.endpoint)}{_where(decision.winner)} {_because(decision)}."


def _would(decision: CarbonDecision, comparison: PlanComparison | None) -> str:
    if decision.endpoint is None:
        return f"would have refused it: {_refused(decision)}"
    plan = None if comparison is None else comparison.advised
    to = f"{shown(decision.endpoint)}{_where(decision.winner)}" if plan is None else placed(plan)
    to += "," if "," in to else ""
    return f"would have sent it to {to} {_because(decision)}"


def _where(candidate: Candidate | None) -> str:
    return "" if candidate is None or candidate.region is None else f" ({shown(candidate.region)})"


def _refused(decision: CarbonDecision | None) -> str:
    if decision is None:
        return "no endpoint was left"
    counts: dict[str, int] = {}
    for candidate in decision.candidates:
        loss = candidate.lost_because or UNKNOWN
        counts[loss] = counts.get(loss, 0) + 1
    return ", ".join(f"{shown(loss)} ({count})" for loss, count in counts.items()) or "there was no endpoint"


def _by_score(record: Recorded) -> str:
    profile = _primary(record)
    if profile is None:
        return "by the configured picker"
    text = f"by {shown(profile.picker or 'the configured picker')}"
    scores = {c.endpoint: c.score for c in profile.candidates}
    mine = scores.pop(record.endpoint or "", None)
    others = sorted(((s, name) for name, s in scores.items() if s is not None), reverse=True)
    if mine is None or not others:
        return text
    return f"{text}: score {plain(mine)} against {plain(others[0][0])} at {shown(others[0][1])}"


def _primary(record: Recorded) -> Profile | None:
    if record.scheduling is None:
        return None
    return next((p for p in record.scheduling.profiles if p.profile == record.scheduling.primary), None)


def _because(decision: CarbonDecision) -> str:
    winner, by = decision.winner, decision.decided_by
    if winner is None:
        return f"because of {shown(by)}"
    if by in _COMPARED:
        return _because_of(by, winner, decision.candidates)
    others = [c for c in decision.candidates if not c.chosen]
    match by:
        case "only plan":
            return "because it was the only endpoint that keeps the policy's constraints" if others else "alone"
        case "dominance":
            compared = [term for term, (loss, *_) in _COMPARED.items() if any(c.lost_because == loss for c in others)]
            if compared:
                return f"{_because_of(compared[0], winner, others)}, and no other is better in anything"
            return "because no other endpoint is better in anything"
        case "tie":
            equal = sum(c.lost_because == Loss.TIE for c in others)
            return f"by draw among {equal + 1} equal endpoints"
        case "score":
            best = _nearest(others, Loss.SCORE, lambda c: None if c.base_score is None else -c.base_score)
            against = "" if best is None else f": {plain(winner.base_score)} against {plain(best.base_score)} at "
            return f"by score{against}{'' if best is None else shown(best.endpoint)}"
        case "session" if decision.session is not None:
            return f"to keep its session there: {shown(decision.session.because)}"
        case "shortest TTFT":
            known = [c.ttft_seconds for c in others if c.ttft_seconds is not None]
            first = winner.ttft_seconds is None or all(winner.ttft_seconds <= other for other in known)
            which = "shortest" if first else "among those that the estimate cannot tell from the shortest"
            took = seconds(winner.ttft_seconds)
            return f"as best effort: no endpoint keeps the promise, and its TTFT of {took} is {which}"
    return f"by {shown(by)}"


def _because_of(term: str, winner: Candidate, candidates: Sequence[Candidate]) -> str:
    loss, name, value, written = _COMPARED[term]
    other = _nearest(candidates, loss, value)
    if other is None:
        return f"because of {name}: {written(value(winner))}"
    return (
        f"because of {name}: {written(value(winner))} against {written(value(other))} at "
        f"{shown(other.endpoint)}{_where(other)}"
    )


def _nearest(
    candidates: Sequence[Candidate], loss: Loss, value: Callable[[Candidate], float | None]
) -> Candidate | None:
    """Of those that lost by this, the one that came closest."""
    known = [(v, i) for i, c in enumerate(candidates) if c.lost_because == loss and (v := value(c)) is not None]
    return candidates[min(known)[1]] if known else None


def _decision_lines(decision: CarbonDecision) -> list[str]:
    lines = []
    if decision.outcome == Outcome.UNKNOWN_LATENCY:
        lines.append("No endpoint's latency is known, so the promise could not be checked.")
    lines += settings(decision)
    if decision.objective is not None:
        lines.append(f"Policy {shown(decision.policy)}: {_objective(decision.objective)}.")
    if decision.constraints is not None:
        lines.append(f"Constraints: {_constraints(decision.constraints)}.")
    if decision.arm != Arm.HOLDOUT:
        lines += [f"Left out: {shown(term)}, because {shown(why)}." for term, why in decision.dropped_terms.items()]
    if decision.models_unused is not None:
        lines.append(f"Learned models were not asked: {shown(decision.models_unused, 200)}.")
    if decision.session is not None:
        lines.append(_session(decision.session))
    kv = kv_sentence(decision.winner)
    if kv is not None:
        lines.append(kv)
    if decision.request_class:
        lines.append(f"Arm {shown(decision.arm)}, class {shown(decision.request_class)}.")
    return lines


def _session(session: Session) -> str:
    gate = ""
    if session.gate_threshold is not None:
        gate = f"; gate {plain(session.gate_value)} against {plain(session.gate_threshold)}"
    last = "" if session.previous_endpoint is None else f", last at {shown(session.previous_endpoint)}"
    return f"Session's turn {session.turns + 1}{last}: {shown(session.movement)}, {shown(session.because)}{gate}."


def _objective(objective: Objective) -> str:
    match objective.mode:
        case "Weighted":
            terms = [f"{shown(t)} × {w:g}" for t, w in objective.weights.items() if w]
        case "SoftMultiplier":
            terms = [f"score / (1 + {plain(objective.soft_weight)} × relative intensity)"]
        case _:
            terms = [f"{shown(t)} (within {objective.tolerances.get(t, 0.0):.0%})" for t in objective.order]
    return f"{shown(objective.mode)}: {', '.join(terms) or 'nothing'}"


def _constraints(limits: Constraints) -> str:
    parts = []
    for name, value, source in (
        ("TTFT", limits.ttft_slo_seconds, limits.ttft_slo_from),
        ("TPOT", limits.tpot_slo_seconds, limits.tpot_slo_from),
    ):
        if value is not None:
            parts.append(f"{name} {seconds(value)}{'' if source == 'policy' else ' (asked by the request)'}")
    if parts and limits.certainty_standard_deviations:
        parts[-1] += f" with {limits.certainty_standard_deviations:g} standard deviations to spare"
    if limits.quality_floor is not None:
        parts.append(f"quality at least {limits.quality_floor:g}")
    if limits.allowed_regions is not None:
        parts.append(f"regions {', '.join(map(shown, limits.allowed_regions)) or 'none'}")
    parts += fleet_limits(limits)
    return ", ".join(parts) or "none"


def _above(
    loss: str, value: float | None, relative_error: float | None, limit: float | None, limits: Constraints
) -> str:
    spare = limits.certainty_standard_deviations
    errors = f" × {spare:g}" if spare is not None and spare != 1.0 and relative_error is not None else ""
    return f"{loss}: {with_error(seconds(value), relative_error)}{errors} against {seconds(limit)}"


def _chosen(record: Recorded) -> Candidate | None:
    decision = record.carbon_decision
    candidates = () if decision is None else decision.candidates
    return next((c for c in candidates if c.endpoint == record.endpoint), None)


def _measured(measured: Measured, chosen: Candidate | None) -> str:
    status = "no answer" if measured.status is None else f"status {measured.status}"
    parts = [f"{status}, {shown(measured.cause or UNKNOWN)}"]
    expected = chosen or Candidate(endpoint="")
    for name, value, estimate in (
        ("TTFT", measured.ttft_seconds, expected.ttft_seconds),
        ("TPOT", measured.tpot_seconds, expected.tpot_seconds),
    ):
        if value is not None:
            parts.append(f"{name} {seconds(value)} (estimated {seconds(estimate)})")
    energy = measured.energy
    if energy is None:
        parts.append("energy unknown: no counter covered it")
    else:
        parts.append(f"{joules(energy.joules)} (estimated {joules(expected.attributed_joules)})")
        if energy.coverage is not None and energy.coverage < 0.995:
            parts.append(f"of which counters saw {energy.coverage:.0%} of the time")
    if measured.broke_slo is not None:
        parts.append("promise broken" if measured.broke_slo else "promise kept")
    return f"Measured: {', '.join(parts)}."
