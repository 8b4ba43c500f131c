"""Whole plans in words: where each phase is, what is pulled, and what another plan would have saved."""

from collections.abc import Sequence

from heliotrope.cache.action import KvAction
from heliotrope.decide.recorded import CarbonDecision, Plan, PlanComparison
from heliotrope_cli.quantities import UNKNOWN, grams, joules, shown


def phases(encode: Sequence[str | None] | None, prefill: str | None, decode: str) -> str:
    """Where a plan encodes images, prefills and decodes; one name where that is the same."""
    rest = shown(decode) if prefill in (None, decode) else f"{shown(prefill or UNKNOWN)} → {shown(decode)}"
    return f"{', '.join(shown(name or UNKNOWN) for name in encode)} ▸ {rest}" if encode else rest


def placed(plan: Plan) -> str:
    """Where a plan's phases are, with their regions and what it fetches."""
    regions = phases(plan.encode_regions, plan.prefill_region, plan.region or UNKNOWN)
    text = phases(plan.encode_endpoints, plan.prefill_endpoint, plan.endpoint)
    if plan.region is not None:
        text += f" ({regions})"
    match plan.kv_action:
        case KvAction.PEER_TRANSFER:
            text += f", pulling KV from {shown(plan.kv_source or UNKNOWN)}"
        case KvAction.OFFLOAD_RELOAD:
            text += ", reloading KV from a lower tier"
    return text


def steered_to(decision: CarbonDecision, comparison: PlanComparison | None) -> str:
    """Where a held-out request would have gone."""
    plan = decision.policy_would_choose_plan
    if plan is None:
        same = decision.policy_would_choose == decision.endpoint
        return "there too" if same else f"to {shown(decision.policy_would_choose or 'nowhere')}"
    if comparison is None:
        alone = plan.prefill_endpoint in (None, plan.endpoint) and not plan.encode_endpoints
        same = plan.endpoint == decision.endpoint and alone and plan.kv_source is None
    else:
        same = comparison.same is True
    return "there too" if same else f"to {placed(plan)}"


def comparison_lines(comparison: PlanComparison | None) -> list[str]:
    """What ran beside what the policy would have done, where these differ. Nothing of it is measured."""
    if comparison is None or comparison.same is not False or comparison.ran is None or comparison.advised is None:
        return []
    ran, advised, saved = comparison.ran, comparison.advised, comparison.modelled_saving
    line = (
        f"Modelled, of the whole plans: {_taken(ran)} as it ran at {placed(ran)}; {_taken(advised)} as the policy "
        f"would have had it"
    )
    pairs = ((saved.energy_joules, joules), (saved.grams_co2e, grams))
    changes = [f"{written(abs(value))} {'less' if value >= 0.0 else 'more'}" for value, written in pairs if value]
    # "200 J and 20 mg less" reads better than the word twice.
    if len(changes) == 2 and changes[0].endswith("less") == changes[1].endswith("less"):
        changes[0] = changes[0].rsplit(" ", 1)[0]
    lines = [f"{line}{': ' if changes else ''}{' and '.join(changes)}."]
    if saved.grams_co2e is None and ran.grams_co2e is not None and advised.grams_co2e is not None:
        lines.append("Their emissions are from signals of different types, which are not compared.")
    return lines


def _taken(plan: Plan) -> str:
    return f"{joules(plan.energy_joules)} and {grams(plan.grams_co2e)}"
