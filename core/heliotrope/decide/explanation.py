"""A decision as plain data: what spans, logs, `/debug/decisions` and `heliotrope explain` show of it.

Unknown is None, units are in the names, nothing of the prompt is there. `heliotrope.decide.recorded` reads it back.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from heliotrope.carbon.arms import Arm
from heliotrope.decide.candidates import FloatColumn, RegionView
from heliotrope.decide.feasible import INFEASIBLE, tpot_slo_seconds, ttft_slo_seconds
from heliotrope.decide.request import RequestProfile
from heliotrope.decide.standing import of_rows
from heliotrope.predict.targets import Target
from heliotrope.unknown import finite_or_none

if TYPE_CHECKING:
    from heliotrope.decide.decision import Decision

VERSION = 1
"""Of the document. Keys may be added within a version; none changes its meaning."""
MAX_CANDIDATES = 256
"""More are counted, not shown: the chosen one and those that came closest stay."""


def explanation(decision: "Decision") -> dict[str, Any]:
    """The document of one decision."""
    request, policy, candidates = decision.request, decision.policy, decision.candidates
    shown = _shown(decision)
    regions = {where for i in shown for where in (candidates.regions[i], candidates.prefill_region(i))}
    encodes = decision.estimates.encodes
    if encodes is not None:
        regions |= {where for i in shown for where in encodes.regions_of(i)}
    return {
        "version": VERSION,
        "time_unix_s": decision.now_unix_s,
        "request_id": request.request_id,
        "model": request.model,
        "streaming": request.streaming,
        "prompt_tokens": request.prompt_tokens,
        "media": _media(request),
        "expected_output_tokens": finite_or_none(request.expected_output_tokens),
        "policy": policy.name,
        "policy_revision": policy.revision,
        "service_class": policy.provenance.service_class,
        "event": policy.provenance.event,
        "overrides": {
            "applied": [override.value for override in policy.provenance.applied],
            "refused": {override.value: reason for override, reason in policy.provenance.refused},
        },
        "enforced": policy.enforce,
        "arm": decision.assignment.arm.value,
        "request_class": decision.assignment.request_class,
        "objective": {
            "mode": policy.objective.value,
            "order": [term.value for term in policy.order],
            "tolerances": {term.value: value for term, value in policy.tolerances.items()},
            "weights": {term.value: value for term, value in policy.weights.items()},
            "soft_weight": policy.soft_weight,
            "score_tolerance": policy.score_tolerance,
            "choices": policy.choices,
        },
        "constraints": {
            "ttft_slo_seconds": ttft_slo_seconds(request, policy),
            "ttft_slo_from": "policy" if request.ttft_slo_seconds is None else "request",
            "tpot_slo_seconds": tpot_slo_seconds(request, policy),
            "tpot_slo_from": "policy" if request.tpot_slo_seconds is None else "request",
            "certainty_standard_deviations": policy.certainty,
            "quality_floor": policy.quality_floor,
            "allowed_regions": None if policy.allowed_regions is None else sorted(policy.allowed_regions),
            "largest_region_share": policy.largest_region_share,
            "region_shares": _region_shares(decision),
            "least_headroom_watts": None if policy.power is None else policy.power.least_watts,
            "avoid_throttled": None if policy.power is None else policy.power.avoid_throttled,
        },
        "boundary": {"embodied": policy.include_embodied, "water": policy.include_water},
        "outcome": decision.outcome.value,
        "relaxed": [limit.value for limit in decision.relaxed],
        "endpoint": decision.endpoint,
        "decided_by": decision.decided_by,
        **_steered(decision),
        "dropped_terms": {term.value: reason for term, reason in decision.dropped_terms.items()},
        "models_unused": decision.estimates.models_unused,
        "session": None if decision.session is None else decision.session.document(),
        "regions": [
            _region(view, decision.now_unix_s) for name, view in candidates.region_views.items() if name in regions
        ],
        "candidates": [_candidate(decision, i) for i in shown],
        "candidates_omitted": len(candidates) - len(shown),
    }


def _steered(decision: "Decision") -> dict[str, Any]:
    """Of a held-out request: what the policy would have done; None of any other."""
    plan = decision.by_policy().chosen if decision.assignment.arm is Arm.HOLDOUT else None
    return {
        "policy_would_choose": None if plan is None else plan.endpoint,
        "policy_would_choose_plan": None if plan is None else plan.document(),
    }


def _media(request: RequestProfile) -> dict[str, Any]:
    """What the prompt holds beside text, counted; of what is unknown no estimate has any time or joules."""
    counts = Counter(item.modality.value for item in request.media)
    return {
        "count": dict(counts),
        "tokens": sum(item.tokens or 0 for item in request.media),
        "assumed": sum(item.assumed for item in request.media),
        "unknown": sum(item.tokens is None for item in request.media),
    }


def _shown(decision: "Decision") -> Sequence[int]:
    """Positions in their order: all, or the winner, then those that were compared, then the rest, up to the limit."""
    n = len(decision.candidates)
    if n <= MAX_CANDIDATES:
        return range(n)
    losses = decision.losses
    nearest = sorted(range(n), key=lambda i: (losses[i] is not None, losses[i] in INFEASIBLE))
    return sorted(nearest[:MAX_CANDIDATES])


def _region_shares(decision: "Decision") -> dict[str, float] | None:
    """Of this picker's recent requests; None where the policy limits none."""
    counts = decision.standing.region_counts
    total = sum(counts.values())
    if decision.policy.largest_region_share >= 1.0 or total <= 0.0:
        return None
    return {"unknown" if name is None else name: count / total for name, count in counts.items()}


def _at(column: FloatColumn | None, decision: "Decision", i: int) -> float | None:
    """Of the endpoint that serves plan i."""
    rows = of_rows(column, decision.candidates)
    return None if rows is None else finite_or_none(rows[i])


def _throttled(decision: "Decision", i: int) -> bool | None:
    throttled = _at(decision.standing.throttled, decision, i)
    return None if throttled is None else throttled > 0.0


def _candidate(decision: "Decision", i: int) -> dict[str, Any]:
    e, c, loss = decision.estimates, decision.candidates, decision.loss(i)
    return {
        "endpoint": c.endpoints[i],
        "region": c.regions[i],
        "prefill_endpoint": c.prefill_endpoint(i),
        "prefill_region": c.prefill_region(i),
        "chosen": i == decision.winner,
        "within_constraints": decision.within_constraints(i),
        "lost_because": None if loss is None else str(loss),
        "ttft_seconds": finite_or_none(e.ttft_seconds[i]),
        "ttft_relative_error": finite_or_none(e.ttft_relative_error[i]),
        "tpot_seconds": finite_or_none(e.tpot_seconds[i]),
        "tpot_relative_error": finite_or_none(e.tpot_relative_error[i]),
        "sources": {name: _source(decision, target, column, i) for name, target, column in _SOURCES},
        "queue_ttft_seconds": finite_or_none(e.queue_ttft_seconds[i]),
        "service_seconds": finite_or_none(e.service_seconds[i]),
        "energy_joules": finite_or_none(e.energy_joules[i]),
        "energy_relative_error": finite_or_none(e.energy_relative_error[i]),
        "incremental_joules": finite_or_none(e.incremental_joules[i]),
        "attributed_joules": finite_or_none(e.attributed_joules[i]),
        "encode_endpoints": None if e.encodes is None else list(e.encodes.endpoints(i)),
        "encode_regions": None if e.encodes is None else list(e.encodes.regions_of(i)),
        "encode_seconds": 0.0 if e.encodes is None else finite_or_none(e.encodes.plans[i].seconds),
        "encode_joules": 0.0 if e.encodes is None else finite_or_none(e.encodes.plans[i].joules),
        "encode_grams_co2e": 0.0 if e.encodes is None else finite_or_none(e.encodes.grams_co2e[i]),
        "prefiller_joules": 0.0 if e.prefiller_joules is None else finite_or_none(e.prefiller_joules[i]),
        "intensity_g_per_kwh": finite_or_none(e.intensity_g_per_kwh[i]),
        "grams_co2e": finite_or_none(e.grams_co2e[i]),
        "water_liters": finite_or_none(e.water_liters[i]),
        "cost": finite_or_none(e.cost[i]),
        "risk": None if decision.risk is None else finite_or_none(decision.risk[i]),
        "failure_rate": _at(decision.standing.failure_rate, decision, i),
        "headroom_watts": _at(decision.standing.headroom_watts, decision, i),
        "throttled": _throttled(decision, i),
        "base_score": finite_or_none(c.base_score[i]),
        "quality": finite_or_none(c.quality[i]),
        "cached_tokens": finite_or_none(c.reused_tokens(i)),
        "kv_action": c.kv_actions[i].value,
        "kv_source": c.kv_sources[i],
        "transfer_seconds": finite_or_none(c.transfer_seconds[i]),
        "transfer_joules": finite_or_none(c.transfer_joules[i]),
        "running": finite_or_none(c.running[i]),
        "waiting": finite_or_none(c.waiting[i]),
    }


_SOURCES = (
    ("ttft", Target.TTFT, "ttft_seconds"),
    ("tpot", Target.TPOT, "tpot_seconds"),
    ("energy", Target.REQUEST_ENERGY, "energy_joules"),
)


def _source(decision: "Decision", target: Target, column: str, i: int) -> str:
    """Which model an estimate is from."""
    learned = decision.estimates.learned.get(target)
    if learned is not None and learned[i]:
        return "learned"
    return "analytic" if np.isfinite(getattr(decision.estimates, column)[i]) else "unknown"


def _region(view: RegionView, now_unix_s: float) -> dict[str, Any]:
    reading = view.signal.reading
    return {
        "name": view.name,
        "freshness": view.signal.freshness(now_unix_s).value,
        "intensity_g_per_kwh": None if reading is None else reading.intensity_g_per_kwh,
        "age_seconds": view.signal.age_s(now_unix_s),
        "stale_after_seconds": finite_or_none(view.signal.stale_after_s),
        "signal_type": None if reading is None else reading.signal_type.value,
        "emission_factor": None if reading is None else reading.emission_factor.value,
        "estimated": None if reading is None else reading.estimated,
        "source": None if reading is None else reading.source,
        "forecast": view.signal.forecast is not None,
        "pue": finite_or_none(view.pue),
        "wue_l_per_kwh": finite_or_none(view.wue_l_per_kwh),
    }
