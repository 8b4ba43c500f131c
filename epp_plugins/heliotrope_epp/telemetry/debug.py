"""`/debug/state`: endpoints, regions and policy as decisions see them at this moment."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.datalayer.store import EndpointStore


def state_document(
    store: EndpointStore,
    *,
    now_s: float,
    now_unix_s: float,
    stale_after_s: float,
    source_healthy: bool,
    problems: Sequence[str],
    energy: Callable[[str], Mapping[str, Any] | None],
    policy: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plain data; unknown is None. `energy` tells of an endpoint's counters, `policy` is that in force."""
    world = store.world
    return {
        "generation": store.generation,
        "source_healthy": source_healthy,
        "policy": policy,
        "conflicts": list(world.conflicts),
        "problems": list(problems),
        "regions": [
            {
                "name": view.name,
                "freshness": view.signal.freshness(now_unix_s).value,
                "intensity_g_per_kwh": None if view.signal.reading is None else view.signal.reading.intensity_g_per_kwh,
                "age_seconds": view.signal.age_s(now_unix_s),
                "source": None if view.signal.reading is None else view.signal.reading.source,
                "pue": view.pue,
            }
            for view in store.regions().values()
        ],
        "endpoints": [
            _endpoint(state, now_s, stale_after_s) | {"energy": energy(state.endpoint.key)} for state in store.states()
        ],
    }


def _endpoint(state: EndpointState, now_s: float, stale_after_s: float) -> dict[str, Any]:
    load = state.load(now_s, stale_after_s)
    return {
        "endpoint": state.endpoint.key,
        "address": state.endpoint.host_port,
        "region": state.traits.region,
        "variant": state.traits.variant,
        "engine": None if state.traits.engine is None else state.traits.engine.name,
        "metrics_age_seconds": None if state.metrics is None else now_s - state.metrics.scraped_s,
        "asleep": None if state.metrics is None else state.metrics.asleep,
        "own_requests": len(state.inflight),
        "running": finite_or_none(load.running),
        "waiting": finite_or_none(load.waiting),
        "kv_tokens": finite_or_none(load.kv_tokens),
        "prefill_duty": finite_or_none(load.prefill_duty),
    }
