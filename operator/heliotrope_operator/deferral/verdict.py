"""What becomes of a Job or Workload that opted in: a pure function of what is known.

Whoever opts in hands over the start. So whenever it cannot be planned - no policy, an annotation that cannot be read,
no region, no signal - the work starts at once and the event says why: a Job that hangs is worse than one that emits
what it would have emitted anyway. Only a policy that was not seen yet is waited for a little, as files are applied in
any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.api.v1alpha1 import CarbonPolicy, RegionProfile
from heliotrope.api.v1alpha1.common import Enforcement
from heliotrope.scale.deferral import Plan, Rules, plan
from heliotrope.scale.deferral import Reason as PlanReason
from heliotrope_operator.deferral.annotations import EXPECTED_DURATION, POLICY, REGION, Ask
from heliotrope_operator.outlook import outlook
from heliotrope_operator.times import format_unix

PATIENCE_S = 60.0
"""Time since creation for a policy or region to appear, and for the region's source to be asked first."""


class Unplanned(StrEnum):
    """Why work starts without a plan, beside the reasons of plans."""

    ADVISE_ONLY = "AdviseOnly"
    INVALID_ANNOTATION = "InvalidAnnotation"
    DURATION_UNKNOWN = "DurationUnknown"
    NO_POLICY = "NoPolicy"
    POLICY_AMBIGUOUS = "PolicyAmbiguous"
    REGION_UNKNOWN = "RegionUnknown"


_HARMLESS = frozenset(
    {
        PlanReason.CLEANER_LATER,
        PlanReason.PLANNED_START,
        PlanReason.CLEANEST_NOW,
        PlanReason.GAIN_TOO_SMALL,
        PlanReason.WITHIN_NOISE,
        PlanReason.LONGEST_DELAY,
        Unplanned.ADVISE_ONLY,
    }
)
"""Reasons that ask nobody to act."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What to do."""

    start: bool
    reason: str
    message: str
    warning: bool = False
    plan: Plan | None = None
    """None: nothing could be planned."""
    policy: CarbonPolicy | None = None
    region: RegionProfile | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known beside the Job."""

    policies: tuple[CarbonPolicy, ...]
    """Those of its namespace."""
    regions: tuple[RegionProfile, ...]
    """All."""
    pool_regions: frozenset[str]
    """Regions of the variants in the pools that the policies of the namespace attach to, by name."""


def judge(
    ask: Ask, around: Surroundings, *, created_unix_s: float, topology_region: str | None, now_unix_s: float
) -> Verdict:
    """Wait or start.

    Args:
        ask: what the Job asks for.
        around: policies and regions.
        created_unix_s: when it was created.
        topology_region: `topology.kubernetes.io/region` that its pods ask for; None if they ask for none.
        now_unix_s: the time.
    """
    if ask.problems:
        return _at_once(Unplanned.INVALID_ANNOTATION, "; ".join(ask.problems))
    early = now_unix_s < created_unix_s + PATIENCE_S
    policy = _policy(ask.policy, around.policies)
    if isinstance(policy, _Missing):
        return Verdict(False, policy.reason, policy.message) if early else _at_once(policy.reason, policy.message)
    assert policy.spec.deferral is not None, "only such policies are chosen"
    if ask.work is None:
        message = f"it does not say how long it runs: annotate {EXPECTED_DURATION}, for instance 2h"
        return _at_once(Unplanned.DURATION_UNKNOWN, message, policy)
    region = _region(ask.region, topology_region, around)
    if region is None:
        message = (
            f"it is not known in which region it runs: annotate {REGION} with the name of a RegionProfile"
            if ask.region is None
            else f"there is no RegionProfile {ask.region}"
        )
        if early:
            return Verdict(False, Unplanned.REGION_UNKNOWN, message, policy=policy)
        return _at_once(Unplanned.REGION_UNKNOWN, message, policy)
    rules = Rules(
        policy.spec.deferral.longest_delay.total_seconds(), policy.spec.deferral.safety_margin.total_seconds()
    )
    found = plan(ask.work, rules, outlook(region), now_unix_s, ask.planned_unix_s)
    message = _told(found, region.metadata.name)
    never_asked = region.status is None or region.status.freshness is None
    if found.reason is PlanReason.SIGNAL_LOST and never_asked and early:
        return Verdict(False, found.reason, message, policy=policy)
    if policy.spec.enforcement is Enforcement.ADVISE:
        would = message if not found.start else f"it would start now: {message}"
        message = f"policy {policy.metadata.name} is told to Advise, so it starts as it came; under Enforce: {would}"
        return Verdict(True, Unplanned.ADVISE_ONLY, message, plan=found, policy=policy, region=region)
    warning = found.reason not in _HARMLESS
    return Verdict(found.start, found.reason, message, warning, found, policy, region)


def _at_once(reason: Unplanned, message: str, policy: CarbonPolicy | None = None) -> Verdict:
    return Verdict(True, reason, f"it starts at once: {message}", warning=reason not in _HARMLESS, policy=policy)


@dataclass(frozen=True, slots=True)
class _Missing:
    """Why no policy holds for a Job."""

    reason: Unplanned
    message: str


def _policy(named: str | None, policies: Sequence[CarbonPolicy]) -> CarbonPolicy | _Missing:
    """The policy that a Job names; else the only one that defers."""
    deferring = {each.metadata.name: each for each in policies if each.spec.deferral is not None}
    if named is not None:
        message = f"there is no CarbonPolicy {named} with `deferral` in its namespace"
        return deferring.get(named) or _Missing(Unplanned.NO_POLICY, message)
    if len(deferring) == 1:
        return next(iter(deferring.values()))
    if not deferring:
        return _Missing(Unplanned.NO_POLICY, "no CarbonPolicy of its namespace has `deferral`")
    message = f"several CarbonPolicies have `deferral` ({', '.join(sorted(deferring))}): annotate {POLICY} with one"
    return _Missing(Unplanned.POLICY_AMBIGUOUS, message)


def _region(named: str | None, topology: str | None, around: Surroundings) -> RegionProfile | None:
    """By annotation; else by the nodes that its pods ask for; else the only one of the pools; else the only one."""
    by_name = {region.metadata.name: region for region in around.regions}
    if named is not None:
        return by_name.get(named)
    if topology is not None:
        claimed = [region for region in around.regions if topology in region.spec.topology_regions]
        return claimed[0] if len(claimed) == 1 else None
    of_pools = sorted(around.pool_regions & by_name.keys())
    if of_pools:
        return by_name[of_pools[0]] if len(of_pools) == 1 else None
    return around.regions[0] if len(around.regions) == 1 else None


_STARTS = {
    PlanReason.PLANNED_START: "its planned time has come",
    PlanReason.CLEANEST_NOW: "no later window is expected to be cleaner",
    PlanReason.GAIN_TOO_SMALL: "later windows are hardly cleaner",
    PlanReason.WITHIN_NOISE: "later windows look cleaner by less than the forecast may be wrong",
    PlanReason.DEADLINE_RISK: "starting later, it could miss its deadline",
    PlanReason.LONGEST_DELAY: "it has waited for the policy's longestDelay",
    PlanReason.SIGNAL_LOST: "the region's carbon signal is not fresh",
    PlanReason.FORECAST_TOO_SHORT: "the forecast does not cover its run, so there is nothing to compare",
}


def _told(found: Plan, region: str) -> str:
    now = "unknown" if found.now is None else f"{found.now.expected:.0f} g/kWh"
    if found.start:
        return f"{_STARTS[found.reason]} ({region}, {now} expected over its run)"
    assert found.planned is not None
    assert found.saving is not None
    return (
        f"it waits until {format_unix(found.planned_unix_s)} for a cleaner window in {region}: "
        f"{found.planned.expected:.0f} instead of {now}, {found.saving:.0%} less as forecast; it starts at the latest "
        f"at {format_unix(found.latest_unix_s)}"
    )
