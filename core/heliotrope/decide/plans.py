"""Candidates with the plans that fetch KV blocks from elsewhere (`heliotrope.cache.plans`) behind the endpoints."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.plans import CacheView, KvPlans, KvPool, own_actions, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.decide.candidates import Candidates, FloatColumn, PrefillPairs

_OF_POOL = frozenset({"endpoint_count", "region_names", "region_views", "pairs", "encoding"})
"""Fields that are no columns."""
_MATRICES = ("engine_rows", "hardware_rows")
_TUPLES = ("endpoints", "regions")
_ARRAYS = tuple(
    field.name
    for field in fields(Candidates)
    if field.name not in {*_OF_POOL, *_MATRICES, *_TUPLES, "kv_actions", "kv_sources"}
)


def with_kv_plans(
    candidates: Candidates,
    prompt_tokens: float,
    rules: KvRules,
    pool: KvPool | None = None,
    *,
    offloaded_tokens: FloatColumn | None = None,
    last_served: int | None = None,
) -> Candidates:
    """The candidates with every KV action that is worth a plan.

    Args:
        candidates: the endpoints alone, each with what it is believed to cache itself as `RouteToOwner`, or else
            `Recompute`.
        prompt_tokens: of the request.
        rules: which actions the policy allows.
        pool: links and step models of the same endpoints; None: nothing can be fetched.
        offloaded_tokens: cached there or in a tier below; None: there are no such tiers.
        last_served: the row of the endpoint that served the session's last turn, if it is known.
    """
    own = candidates
    if last_served is not None or not rules.own_caches_count:
        actions, counted = own_actions(candidates.cached_tokens, last_served, rules)
        own = replace(candidates, kv_actions=actions, cached_tokens=counted)
    if pool is None:
        return own
    cached = candidates.cached_tokens
    view = CacheView(
        cached_tokens=cached,
        offloaded_tokens=cached if offloaded_tokens is None else offloaded_tokens,
        running=candidates.running,
        waiting=candidates.waiting,
        waiting_tokens=candidates.waiting_tokens,
        kv_tokens=candidates.kv_tokens,
        kv_capacity_tokens=candidates.kv_capacity_tokens,
    )
    plans = plans_of(view, pool, prompt_tokens, rules)
    return with_plans(own, plans) if len(plans) else own


def with_plans(candidates: Candidates, plans: KvPlans) -> Candidates:
    """One row per plan that fetches blocks behind the endpoints."""
    endpoints = candidates.endpoints
    return widened(
        candidates,
        plans.rows,
        actions=plans.actions,
        sources=tuple(None if source is None else endpoints[source] for source in plans.sources),
        cached_tokens=plans.cached_tokens,
        transfer_seconds=plans.transfer_seconds,
        transfer_joules=plans.transfer_joules,
    )


def widened(
    candidates: Candidates,
    rows: NDArray[np.intp],
    *,
    actions: tuple[KvAction, ...],
    sources: tuple[str | None, ...],
    pairs: PrefillPairs | None = None,
    **changed: FloatColumn,
) -> Candidates:
    """One row more per plan; it has the columns of its endpoint, at `rows`, but for what the plan changes.

    Its score is a hair below its endpoint's, so that a choice that looks at scores alone takes the endpoint as it is.
    """
    n = len(candidates)
    extra = rows.tolist()
    taken = np.concatenate([np.arange(n), rows])
    columns: dict[str, Any] = {name: getattr(candidates, name)[taken] for name in _ARRAYS}
    columns |= {name: getattr(candidates, name).take(taken, axis=0) for name in _MATRICES}
    for name in _TUPLES:
        value = getattr(candidates, name)
        columns[name] = (*value, *[value[i] for i in extra])
    columns["base_score"][n:] = np.nextafter(candidates.base_score[rows], -np.inf)
    for name, column in changed.items():
        columns[name][n:] = column
    return Candidates(
        endpoint_count=candidates.endpoint_count,
        region_names=candidates.region_names,
        region_views=candidates.region_views,
        kv_actions=(*candidates.kv_actions, *actions),
        kv_sources=(*candidates.kv_sources, *sources),
        pairs=pairs,
        encoding=candidates.encoding,
        **columns,
    )


def fetches(action: KvAction) -> bool:
    """Whether blocks are brought to the endpoint before its prefill."""
    return action in (KvAction.PEER_TRANSFER, KvAction.OFFLOAD_RELOAD)
