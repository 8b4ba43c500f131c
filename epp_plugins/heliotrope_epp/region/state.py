"""`/debug/state` of the region tier: regions as the next window will see them, queues and the solver."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.region.beliefs import Beliefs
from heliotrope_epp.region.config import RegionTier
from heliotrope_epp.region.deadlines import DeadlineQueue
from heliotrope_epp.region.provisioner import Provisioner
from heliotrope_epp.region.solver import SolverProcess


@dataclass(frozen=True, slots=True)
class Parts:
    """What is looked at."""

    tier: RegionTier
    store: EndpointStore
    provisioner: Provisioner
    beliefs: Beliefs
    deadlines: DeadlineQueue
    solver: SolverProcess


def state_document(
    parts: Parts,
    *,
    now_s: float,
    now_unix_s: float,
    source_healthy: bool,
    problems: Sequence[str],
    policy: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Plain data; unknown is None."""
    counts = parts.beliefs.shares()
    total = sum(counts.values())
    return {
        "tier": "region",
        "generation": parts.store.generation,
        "source_healthy": source_healthy,
        "policy": policy,
        "conflicts": list(parts.store.world.conflicts),
        "problems": list(problems),
        "schedulers": parts.tier.schedulers,
        "solver": {
            "pid": parts.solver.pid,
            "ready": parts.solver.ready,
            "starts": parts.solver.starts,
            "ends": dict(parts.solver.ends),
        },
        "deadline_queue": {"requests": len(parts.deadlines), "ends": dict(parts.deadlines.ends)},
        "regions": [
            _region(parts, name, now_s, now_unix_s) | {"share": counts.get(name, 0.0) / total if total else None}
            for name in parts.tier.names
        ],
    }


def _region(parts: Parts, name: str, now_s: float, now_unix_s: float) -> dict[str, Any]:
    feed, view = parts.provisioner.feeds[name], parts.store.regions().get(name)
    load, reading = feed.load, None if view is None else view.signal.reading
    return {
        "name": name,
        "up": feed.up(now_s, parts.provisioner.lost_after_s),
        "state_age_seconds": finite_or_none(now_s - feed.received_s),
        "problem": feed.problem,
        "paused_seconds": max(feed.paused_until_s - now_s, 0.0),
        "engines": None if load is None else load.engines,
        "running": None if load is None else load.running,
        "waiting": None if load is None else load.waiting,
        "free_slots": None if load is None else load.free_slots,
        "engine": None if load is None or load.engine is None else load.engine.name,
        "freshness": None if view is None else view.signal.freshness(now_unix_s).value,
        "intensity_g_per_kwh": None if reading is None else reading.intensity_g_per_kwh,
        "pue": None if view is None else view.pue,
        "rtt_seconds": None if view is None else finite_or_none(view.rtt_seconds),
    }
