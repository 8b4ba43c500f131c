"""Candidates with the plans that fetch KV blocks from elsewhere (`heliotrope.cache.plans`) behind the endpoints."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.crowd import Crowd
from heliotrope.cache.plans import CacheView, KvPlans, KvPool, own_actions, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.decide.candidates import Candidates, FloatColumn, PrefillPairs

_OF_POOL = frozenset({"endpoint_count", "region_names", "region_views", "pairs", "encoding", "cached_deviation_tokens"})
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
    offloaded_deviation_tokens: FloatColumn | None = None,
    last_served: int | None = None,
    crowd: Crowd | None = None,
) -> Candidates:
    """The candidates with every KV action that is worth a plan.

    Args:
        candidates: the endpoints alone, each with what it is believed to cache itself as `RouteToOwner`, or else
            `Recompute`.
        prompt_tokens: of the request.
        rules: which actions the policy allows.
        pool: links and step models of the same endpoints; None: nothing can be fetched.
        offloaded_tokens: cached there or in a tier below; None: there are no such tiers.
        offloaded_deviation_tokens: one standard deviation of these; None: nobody says.
        last_served: the row of the endpoint that served the session's last turn, if it is known.
        crowd: transfers on their way; None: none is known.
    """
    own, deviation = candidates, candidates.cached_deviation_tokens
    if last_served is not None or not rules.own_caches_count:
        actions, counted = own_actions(candidates.cached_tokens, last_served, rules)
        counted_on = None if deviation is None else np.where(counted > 0.0, deviation, 0.0)
        own = replace(candidates, kv_actions=actions, cached_tokens=counted, cached_deviation_tokens=counted_on)
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
        crowd=crowd,
    )
    plans = plans_of(view, pool, prompt_tokens, rules)
    if not len(plans):
        return own
    off = None if deviation is None else _deviation_of(plans, cached, deviation, offloaded_deviation_tokens)
    return with_plans(own, plans, off)


def _deviation_of(
    plans: KvPlans, cached: FloatColumn, deviation: FloatColumn, offloaded_deviation: FloatColumn | None
) -> FloatColumn:
    """Of the tokens that plans fetch: of a pull its source's share of doubt, of a reload that of the lower tiers."""
    off = np.zeros(len(plans))
    for i, source in enumerate(plans.sources):
        if source is not None:
            off[i] = deviation[source] * plans.cached_tokens[i] / cached[source]
        elif offloaded_deviation is not None:
            off[i] = offloaded_deviation[plans.rows[i]]
    return off


def with_plans(candidates: Candidates, plans: KvPlans, deviation_tokens: FloatColumn | None = None) -> Candidates:
    """One row per plan that fetches blocks behind the endpoints; `deviation_tokens` is that of its cached tokens."""
    endpoints = candidates.endpoints
    return widened(
        candidates,
        plans.rows,
        actions=plans.actions,
        sources=tuple(None if source is None else endpoints[source] for source in plans.sources),
        deviation_tokens=deviation_tokens,
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
    deviation_tokens: FloatColumn | None = None,
    **changed: FloatColumn,
) -> Candidates:
    """One row more per plan; it has the columns of its endpoint, at `rows`, but for what the plan changes.

    `deviation_tokens` is that of its cached tokens; None: nothing speaks against them.
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
    deviation = candidates.cached_deviation_tokens
    if deviation is not None or deviation_tokens is not None:
        here = np.zeros(n) if deviation is None else deviation
        there = np.zeros(len(rows)) if deviation_tokens is None else deviation_tokens
        columns["cached_deviation_tokens"] = np.concatenate([here, there])
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
