"""What `/v1/state` says: the live endpoints of a pool, summed up by region."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import fsum, isfinite

from heliotrope.engine.coefficients import Coefficient, coefficients
from heliotrope.engine.model import EngineModel
from heliotrope.unknown import finite_or_none
from heliotrope_epp.datalayer.endpoint import ROLE_LABEL
from heliotrope_epp.datalayer.region_state import VERSION, EngineStep, RegionLoad, StatePage
from heliotrope_epp.datalayer.state import EndpointState, Load
from heliotrope_epp.datalayer.store import EndpointStore
from heliotrope_epp.plugins.filters.decode import DECODE_ROLES
from heliotrope_epp.plugins.filters.prefill import PREFILL_ROLES

_Known = tuple[EndpointState, Load]


def state_page(
    store: EndpointStore, *, pool: str | None, now_s: float, now_unix_s: float, stale_after_s: float
) -> StatePage:
    """The page of this moment.

    Args:
        store: the pool's endpoints.
        pool: its name.
        now_s: monotonic.
        now_unix_s: the same moment.
        stale_after_s: age from which metrics count as unknown.
    """
    by_region: dict[str | None, list[EndpointState]] = {}
    for state in store.states():
        by_region.setdefault(state.traits.region, []).append(state)
    names = sorted(by_region, key=lambda name: (name is None, name or ""))
    return StatePage(
        version=VERSION,
        pool=pool,
        time_unix_s=now_unix_s,
        regions=tuple(_region(name, by_region[name], now_s, stale_after_s) for name in names),
    )


def _region(name: str | None, states: Sequence[EndpointState], now_s: float, stale_after_s: float) -> RegionLoad:
    """Prompts wait and are computed where endpoints prefill, sequences run where they decode; most do both."""
    awake: list[_Known] = []
    asleep = unknown = 0
    for state in states:
        page = state.fresh_metrics(now_s, stale_after_s)
        if page is None:
            unknown += 1
        elif page.asleep is True:
            asleep += 1
        else:
            awake.append((state, state.load(now_s, stale_after_s)))
    decoding = [each for each in awake if _serves(each[0], DECODE_ROLES)]
    prefilling = [each for each in awake if _serves(each[0], PREFILL_ROLES)]
    capacities = [_batch_capacity(state) for state, _ in decoding]
    taken = [load.requests for _, load in decoding]
    places = [max(c - t, 0.0) for c, t in zip(capacities, taken, strict=True)]
    return RegionLoad(
        region=name,
        engines=len(decoding),
        idle_engines=sum(load.requests == 0.0 for _, load in decoding),
        asleep_engines=asleep,
        unknown_engines=unknown,
        running=_mean(load.running for _, load in decoding),
        waiting=_mean(load.waiting for _, load in prefilling),
        waiting_tokens=_mean(load.waiting_tokens for _, load in prefilling),
        kv_tokens=_mean(load.kv_tokens for _, load in decoding),
        kv_capacity_tokens=_mean(load.kv_capacity_tokens for _, load in decoding),
        kv_usage=_mean(min(load.kv_usage, 1.0) for _, load in decoding),
        prefill_duty=_mean(min(max(load.prefill_duty, 0.0), 1.0) for _, load in prefilling),
        batch_capacity=_mean(capacities),
        free_slots=None if not places else finite_or_none(fsum(places)),
        engine=_step_model([state for state, _ in decoding] or states),
    )


def _serves(state: EndpointState, roles: tuple[str, ...]) -> bool:
    role = state.endpoint.labels.get(ROLE_LABEL)
    return role is None or role in roles


def _batch_capacity(state: EndpointState) -> float:
    engine = state.traits.engine
    return float("nan") if engine is None else float(engine.max_num_seqs)


def _mean(values: Iterable[float]) -> float | None:
    """Over those that are known; None without any."""
    known = [value for value in values if isfinite(value)]
    return fsum(known) / len(known) if known else None


def _step_model(states: Sequence[EndpointState]) -> EngineStep | None:
    models: Counter[EngineModel] = Counter(s.traits.engine for s in states if s.traits.engine is not None)
    if not models:
        return None
    model, count = models.most_common(1)[0]
    row = coefficients(model)
    return EngineStep(name=model.name, engines=count, coefficients={c.name.lower(): float(row[c]) for c in Coefficient})
