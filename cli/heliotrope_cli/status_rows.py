"""From resources to what `heliotrope status` says of each: plain data, None where nothing is known."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from heliotrope.api.scalars import format_time
from heliotrope.api.v1alpha1 import CarbonPolicy, NodePower, RegionProfile, WorkloadVariant
from heliotrope.api.v1alpha1.common import Condition
from heliotrope.api.v1alpha1.nodepower import SILENT_S
from heliotrope_cli.region_forecasts import published
from heliotrope_cli.status_read import Snapshot, WaitingJob

VERSION = 1
"""Of the JSON document."""
POLICY_CONDITIONS = {
    "accepted": "Accepted",
    "acts": "Enforced",
    "signals": "SignalsFresh",
    "demand": "DemandKnown",
    "power": "PowerManaged",
    "demand_response": "DemandAnswered",
    "activation": "Activated",
}
"""Conditions of a CarbonPolicy by the names that they go by here."""

Row = dict[str, Any]


def document(snapshot: Snapshot, savings: list[Row]) -> Row:
    """Everything as plain data; a list that could not be read is None."""
    now = snapshot.now_unix_s
    return {
        "version": VERSION,
        "now": _time(now),
        "regions": _all(region, snapshot.regions, now),
        "policies": _all(lambda each, _: policy(each), snapshot.policies, now),
        "variants": _all(lambda each, _: variant(each), snapshot.variants, now),
        "waiting_jobs": None if snapshot.jobs is None else waiting(snapshot.jobs),
        "node_powers": _all(
            lambda each, _: node_power(each, now, snapshot.reported_unix_s.get(each.metadata.name)),
            snapshot.node_powers,
            now,
        ),
        "savings": savings,
        "problems": list(snapshot.problems),
    }


def region(profile: RegionProfile, now_unix_s: float) -> Row:
    """A grid region, its signal's freshness counted from now."""
    status, found = profile.status, published(profile, now_unix_s)
    reading = None if status is None else status.intensity
    error = found.error
    return {
        "region": profile.metadata.name,
        "zone": profile.spec.zone,
        "intensity_g_per_kwh": found.intensity_g_per_kwh,
        "age_seconds": None if reading is None else now_unix_s - reading.time.timestamp(),
        "freshness": found.freshness.value,
        "signal": f"{profile.spec.signal.type.value} {profile.spec.signal.emission_factor.value}",
        "source": None if reading is None else reading.source,
        "estimated": None if reading is None else reading.estimated,
        "forecast_error_g_per_kwh": None if error is None else error.mae,
        "baseline_error_g_per_kwh": None if error is None else error.baseline_mae,
    }


def policy(resource: CarbonPolicy) -> Row:
    """A policy and the conditions that say what it does."""
    status = resource.status
    conditions = () if status is None else status.conditions
    event = None if status is None else status.demand_response
    return {
        "policy": _name(resource),
        "pools": [ref.name for ref in resource.spec.target_refs],
        "enforcement": resource.spec.enforcement.value,
        **{name: _condition(conditions, kind) for name, kind in POLICY_CONDITIONS.items()},
        "event": None
        if event is None
        else {"name": event.event, "watts": event.watts, "end": None if event.end is None else format_time(event.end)},
        "holdout_percent": resource.spec.holdout_percent,
    }


def variant(resource: WorkloadVariant) -> Row:
    """A variant, its numbers of replicas and clocks."""
    spec, status = resource.spec, resource.status
    conditions = () if status is None else status.conditions
    return {
        "variant": _name(resource),
        "model": spec.model,
        "region": None if spec.region_ref is None else spec.region_ref.name,
        "role": spec.role.value,
        "desired": None if status is None else status.desired_replicas,
        "current": None if status is None else status.current_replicas,
        "active": None if status is None else status.active_engines,
        "scaled": _condition(conditions, "Scaled"),
        "conflicted": _condition(conditions, "Conflicted"),
        "clocks": [
            {
                "role": each.role.value,
                "sm_clock_mhz": each.sm_clock_mhz,
                "watts": each.watts,
                "enforcement": None if each.enforcement is None else each.enforcement.value,
                "reason": each.reason,
            }
            for each in (() if status is None else status.chosen_power)
        ],
    }


def waiting(jobs: Iterable[WaitingJob]) -> Row:
    """Jobs that wait for a cleaner hour; the first of them first."""
    found = list(jobs)
    return {
        "count": len(found),
        "next_planned_start": next((job.planned_start for job in found if job.planned_start is not None), None),
        "jobs": [
            {
                "job": f"{job.namespace}/{job.name}",
                "planned_start": job.planned_start,
                "deadline": job.deadline,
                "reason": job.reason,
            }
            for job in found
        ],
    }


def node_power(resource: NodePower, now_unix_s: float, reported_unix_s: float | None = None) -> Row:
    """A node's GPUs, whether what is wanted of them is in effect, and how long ago its agent said so.

    Args:
        resource: the NodePower.
        now_unix_s: the time.
        reported_unix_s: when the status was last written; None: not known, and the agent's own time is taken.
    """
    status = resource.status
    conditions = () if status is None else status.conditions
    heartbeat = None if status is None else status.heartbeat_time
    if reported_unix_s is None and heartbeat is not None:
        reported_unix_s = heartbeat.timestamp()
    age_s = None if reported_unix_s is None or heartbeat is None else now_unix_s - reported_unix_s
    stopped = any(each.type == "Applied" and each.reason == "AgentStopped" for each in conditions)
    return {
        "node": resource.metadata.name,
        "enforcement": resource.spec.enforcement.value,
        "intents": len(resource.spec.intents),
        "managed_gpus": None if status is None else status.managed_gpus,
        "applied": _condition(conditions, "Applied"),
        "lease": _condition(conditions, "LeaseValid"),
        "agent_age_seconds": age_s,
        "agent_silent": None if age_s is None else age_s >= SILENT_S and not stopped,
    }


def _all(row: Any, found: tuple[Any, ...] | None, now_unix_s: float) -> list[Row] | None:
    return None if found is None else [row(each, now_unix_s) for each in found]


def _condition(conditions: Iterable[Condition], kind: str) -> Row | None:
    found = next((each for each in conditions if each.type == kind), None)
    return None if found is None else {"status": found.status.value, "reason": found.reason, "message": found.message}


def _name(resource: CarbonPolicy | WorkloadVariant) -> str:
    return "/".join(filter(None, (resource.metadata.namespace, resource.metadata.name)))


def _time(unix_s: float) -> str:
    return format_time(datetime.fromtimestamp(int(unix_s), UTC))
