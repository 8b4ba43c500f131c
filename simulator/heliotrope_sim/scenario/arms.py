"""The policies of a scenario as runs: scheduler, settings, and what requests are promised and allowed under each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from heliotrope.api.v1alpha1 import CarbonPolicy
from heliotrope.decide.from_resources import decision_policy
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.errors import InvalidInputError
from heliotrope.place.from_resources import placement_policy
from heliotrope.place.policy import CapacityUnit, Fallback, PlacementPolicy, WorkLimit
from heliotrope.place.registry import Registry, scheduler_named
from heliotrope_sim.fleet.settings import DecisionTime, RunSettings
from heliotrope_sim.fleet.workload import RequestClass
from heliotrope_sim.scenario.base import Slo
from heliotrope_sim.scenario.files import Files
from heliotrope_sim.scenario.grids import Grid, resources
from heliotrope_sim.scenario.model import Policy, Scenario
from heliotrope_sim.scenario.places import Where
from heliotrope_sim.scenario.shares import with_largest_shares

DEFAULT_CLASS = "default"
DEFAULT_WINDOW_SECONDS = 0.1
DEFAULT_WINDOW_REQUESTS = 300


@dataclass(frozen=True, slots=True)
class Arm:
    """One policy, ready to run."""

    name: str
    scheduler: str
    settings: RunSettings
    classes: tuple[RequestClass, ...]
    """What it aims at and where it may go, in the order of the scenario's classes."""
    notes: tuple[str, ...] = ()


def arms(scenario: Scenario, grids: Sequence[Grid], schedulers: int, files: Files, registry: Registry) -> list[Arm]:
    """One for each policy.

    Args:
        scenario: has the policies.
        grids: its regions.
        schedulers: how many region schedulers there are.
        files: that policies name.
        registry: schedulers by name.

    Raises:
        InvalidInputError: names the policy's key.
    """
    judged = judged_classes(scenario, files)
    return [
        _arm(scenario, i, policy, _loaded(policy, i, files), grids, schedulers, registry, judged)
        for i, policy in enumerate(scenario.policies)
    ]


def judged_classes(scenario: Scenario, files: Files) -> tuple[RequestClass, ...]:
    """What is judged for every policy alike: a class's own promise, else the scenario's, else the first file's.

    Raises:
        InvalidInputError: if nothing promises anything.
    """
    first: DecisionPolicy | None = None
    for i, policy in enumerate(scenario.policies):
        if first is None and policy.file is not None:
            first = decision_policy(_loaded(policy, i, files) or _unreachable())
    found = []
    for name, own, allowed in _stated_classes(scenario):
        slo = own or scenario.slo or (None if first is None else _promise(first, name))
        if slo is None:
            raise InvalidInputError("slo", "nothing says what is promised: set slo, or give a policy a file")
        found.append(_request_class(scenario, name, slo, allowed, "workload.classes"))
    return tuple(found)


def _arm(
    scenario: Scenario,
    index: int,
    policy: Policy,
    resource: CarbonPolicy | None,
    grids: Sequence[Grid],
    schedulers: int,
    registry: Registry,
    judged: tuple[RequestClass, ...],
) -> Arm:
    path = f"policies[{index}]"
    decided = None if resource is None else decision_policy(resource)
    name = policy.scheduler or (None if resource is None else resource.spec.placement.scheduler.value)
    assert name is not None
    scheduler = scheduler_named(registry, name, f"{path}.scheduler")
    by_policy = 1.0 if decided is None else decided.largest_region_share
    if policy.largest_share_percent is not None:
        by_policy = policy.largest_share_percent / 100.0
    by_site = _site_shares(scenario, grids)
    if by_policy < 1.0 or min(by_site) < 1.0:
        scheduler = with_largest_shares(scheduler, by_policy, by_site)
    spec = None if resource is None else resource.spec.placement
    window_s = DEFAULT_WINDOW_SECONDS if spec is None else spec.window.total_seconds()
    settings = RunSettings(
        scheduler=scheduler,
        policy=_placement(scenario, policy, resource, decided, schedulers),
        window_seconds=window_s if policy.window_seconds is None else policy.window_seconds,
        window_requests=policy.window_requests or (DEFAULT_WINDOW_REQUESTS if spec is None else spec.window_requests),
        poll_seconds=scenario.polls.interval_seconds,
        staggered_polls=scenario.polls.staggered,
        project=scenario.projection if policy.projection is None else policy.projection,
        decision_time=_decision_time(scenario, resource),
        forwards_wait=scenario.schedulers.where is Where.EACH_REGION,
        start_unix_s=scenario.start.timestamp(),
        carbon_step_seconds=scenario.carbon_step_seconds,
    )
    notes = (
        ()
        if decided is None or decided.enforce
        else (f"{policy.name} only advises in production; here it is enforced.",)
    )
    return Arm(policy.name, name, settings, _classes(scenario, policy, path, decided, grids, judged), notes)


def _placement(
    scenario: Scenario, policy: Policy, resource: CarbonPolicy | None, decided: DecisionPolicy | None, schedulers: int
) -> PlacementPolicy:
    limit = WorkLimit(seconds=None, nodes=policy.solver_nodes or scenario.solver_nodes)
    if resource is None:
        made = PlacementPolicy(limit=limit, peers=schedulers - 1)
    else:
        made = placement_policy(resource.spec.placement, decided, limit, schedulers - 1)
    window_s = made.window_seconds if policy.window_seconds is None else policy.window_seconds
    share = made.share_cap if policy.cleanest_share_percent is None else policy.cleanest_share_percent / 100.0
    return replace(
        made,
        latency_weight=_either(policy.latency_weight, made.latency_weight),
        carbon_weight=_either(policy.carbon_weight, made.carbon_weight),
        share_cap=share,
        window_seconds=window_s,
        standard_deviations=_either(policy.standard_deviations, made.standard_deviations),
        capacity_unit=made.capacity_unit if policy.capacity_unit is None else CapacityUnit(policy.capacity_unit),
        fallback=made.fallback if policy.fallback is None else Fallback(policy.fallback),
        projects=policy.sees_window,
    )


def _classes(
    scenario: Scenario,
    policy: Policy,
    path: str,
    decided: DecisionPolicy | None,
    grids: Sequence[Grid],
    judged: tuple[RequestClass, ...],
) -> tuple[RequestClass, ...]:
    """A policy's own promise and regions, within what a class is allowed."""
    regions = policy.allowed_regions
    where = f"{path}.allowed_regions"
    if regions is None and decided is not None and decided.allowed_regions is not None:
        regions, where = tuple(sorted(decided.allowed_regions)), f"{path}.file: spec.placement.allowedRegions"
    elif regions is not None:
        _check_regions(regions, [grid.name for grid in grids], where)
    found = []
    for (name, _, allowed), judge in zip(_stated_classes(scenario), judged, strict=True):
        both = regions if allowed is None else allowed if regions is None else tuple(r for r in allowed if r in regions)
        slo = policy.slo or (None if decided is None else _promise(decided, name))
        aims = slo or Slo(ttft_seconds=judge.ttft_slo_seconds, tpot_seconds=judge.tpot_slo_seconds)
        found.append(_request_class(scenario, name, aims, both, where))
    return tuple(found)


def _request_class(scenario: Scenario, name: str, slo: Slo, regions: tuple[str, ...] | None, path: str) -> RequestClass:
    sites = frozenset(site.name or site.region for site in scenario.sites if regions is None or site.region in regions)
    if not sites:
        there = ", ".join(dict.fromkeys(site.region for site in scenario.sites))
        raise InvalidInputError(
            path,
            f"requests of class {name!r} may go nowhere: no site is in {', '.join(regions or ()) or 'any region'}; "
            f"there are sites in {there}",
        )
    return RequestClass(name, slo.ttft_seconds, slo.tpot_seconds, None if regions is None else sites)


def _stated_classes(scenario: Scenario) -> list[tuple[str, Slo | None, tuple[str, ...] | None]]:
    stated = scenario.workload.classes
    return [(each.name, each.slo, each.allowed_regions) for each in stated] or [(DEFAULT_CLASS, None, None)]


def _promise(policy: DecisionPolicy, name: str) -> Slo | None:
    """Of a policy to a class of this name."""
    own = next((each for each in policy.classes if each.name == name), None)
    ttft = policy.ttft_slo_seconds if own is None or own.ttft_slo_seconds is None else own.ttft_slo_seconds
    tpot = policy.tpot_slo_seconds if own is None or own.tpot_slo_seconds is None else own.tpot_slo_seconds
    return None if ttft is None or tpot is None else Slo(ttft_seconds=ttft, tpot_seconds=tpot)


def _loaded(policy: Policy, index: int, files: Files) -> CarbonPolicy | None:
    if policy.file is None:
        return None
    found = [r for r in resources(files, policy.file) if isinstance(r, CarbonPolicy)]
    named = [r for r in found if policy.resource is None or r.metadata.name == policy.resource]
    if len(named) != 1:
        there = ", ".join(r.metadata.name for r in found) or "none"
        what = "must hold one CarbonPolicy" if policy.resource is None else f"has no CarbonPolicy {policy.resource!r}"
        raise InvalidInputError(f"policies[{index}].file", f"{policy.file} {what}; it has {there}; set resource")
    return named[0]


def _site_shares(scenario: Scenario, grids: Sequence[Grid]) -> tuple[float, ...]:
    """A region's largest share, shared out over its sites by engines."""
    engines = [site.nodes * site.engines_per_node for site in scenario.sites]
    share = {grid.name: grid.largest_share for grid in grids}
    found = []
    for site, own in zip(scenario.sites, engines, strict=True):
        together = sum(n for other, n in zip(scenario.sites, engines, strict=True) if other.region == site.region)
        found.append(share[site.region] * own / together if share[site.region] < 1.0 else 1.0)
    return tuple(found)


def _decision_time(scenario: Scenario, resource: CarbonPolicy | None) -> DecisionTime:
    stated = scenario.decision_time
    limit = stated.limit_seconds
    if resource is not None and "limit_seconds" not in stated.model_fields_set:
        limit = resource.spec.placement.solver_deadline.total_seconds()
    return DecisionTime(stated.base_seconds, stated.seconds_per_request, stated.seconds_per_node, limit)


def _check_regions(regions: Sequence[str], known: Sequence[str], path: str) -> None:
    unknown = [region for region in regions if region not in known]
    if unknown:
        raise InvalidInputError(path, f"there is no region {unknown[0]!r}; there are {', '.join(known)}")


def _either(stated: float | None, default: float) -> float:
    return default if stated is None else stated


def _unreachable() -> CarbonPolicy:
    raise AssertionError("a policy with a file has a resource")
