"""Which KV actions are worth a plan beside what each endpoint caches itself.

Every endpoint is a candidate with its own cache already. Here the plans are found that bring blocks to it from
elsewhere and that equation 8 allows: fewer joules, pressure included, and less time than recomputing. Of the ways for
one endpoint the best is kept, and of all of them the best few, so that a decision does not grow with the square of the
pool.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.action import KvAction
from heliotrope.cache.crowd import Crowd, side_of
from heliotrope.cache.links import Link, LinkClass, Links, Place, Tier
from heliotrope.cache.rules import KvRules
from heliotrope.engine.model import EngineModel
from heliotrope.units import bits_from_bytes

FloatColumn = NDArray[np.float64]
Rows = NDArray[np.intp]

MAX_OWNERS = 4
"""Endpoints that blocks may be pulled from in one decision: those that cache most of the prompt."""
MAX_PLANS = 16
"""Plans that one decision gets beside its endpoints."""
LEAST_TOKENS = 64.0
"""Fewer are not worth a transfer's bookkeeping."""


@dataclass(frozen=True, slots=True)
class KvPool:
    """What does not change from request to request of n endpoints; build it with `kv_pool`.

    An endpoint's kind is equal to another's where blocks fit: the same model, with KV of the same size. Its engine is
    equal where the step model is the same one, its region where it is the same; what is unknown is equal to nothing.
    """

    columns: NDArray[np.float64]
    """Shape (`kernel.COLUMNS`, n)."""
    links: NDArray[np.float64]
    """Shape (4, n, n): bytes per second, latency, joules per bit and side (`heliotrope.cache.crowd`) of the way from j
    to i at [:, i, j]; NaN: none."""
    takes_part: int
    """Endpoints that take part in transfers between endpoints."""

    def __len__(self) -> int:
        return int(self.columns.shape[1])


@dataclass(frozen=True, slots=True)
class CacheView:
    """What is believed of caches for one request: columns of length n."""

    cached_tokens: FloatColumn
    """Of the prompt, in the endpoint's own KV memory."""
    offloaded_tokens: FloatColumn
    """Of the prompt, in that memory or a tier below it; `cached_tokens` where there is no such tier."""
    running: FloatColumn
    waiting: FloatColumn
    waiting_tokens: FloatColumn
    kv_tokens: FloatColumn
    kv_capacity_tokens: FloatColumn
    crowd: Crowd | None = None
    """Transfers on their way; None: none is known."""


@dataclass(frozen=True, slots=True)
class KvPlans:
    """Plans beside the endpoints themselves; all columns have one entry per plan."""

    rows: Rows
    """The endpoint of each plan."""
    actions: tuple[KvAction, ...]
    sources: tuple[int | None, ...]
    """The endpoint that blocks are pulled from; None for a reload."""
    cached_tokens: FloatColumn
    """Prompt tokens that need no prefill under the plan."""
    transfer_seconds: FloatColumn
    transfer_joules: FloatColumn
    """What is drawn; λ·M only decides whether there is a plan."""
    saved_joules: FloatColumn
    """By which recomputing the same tokens there is dearer, λ·M charged."""

    def __len__(self) -> int:
        return len(self.actions)


_NOTHING = np.zeros(0)
_OWN = (KvAction.RECOMPUTE, KvAction.ROUTE_TO_OWNER)
"""What an endpoint does of whose prompt it caches nothing, and something."""
NO_PLANS = KvPlans(np.zeros(0, dtype=np.intp), (), (), _NOTHING, _NOTHING, _NOTHING, _NOTHING)


def kv_pool(
    engines: Sequence[EngineModel | None],
    places: Sequence[Place],
    pulls: Sequence[bool],
    links: Links,
    tiers: Sequence[Tier | None] | None = None,
) -> KvPool:
    """Columns of a set of endpoints; n² links are looked up, so keep the result while the set stays the same.

    Args:
        engines: step models; an endpoint without one neither pulls nor reloads, since nobody knows what it saves.
        places: where the endpoints run.
        pulls: which of them take part in transfers between endpoints.
        links: what each link and tier costs.
        tiers: the tier that an endpoint offloads to; None: none does.
    """
    from heliotrope.cache import kernel

    n = len(engines)
    known = [e for e in engines if e is not None]
    models = {key: i for i, key in enumerate(dict.fromkeys((e.model, e.kv_bytes_per_token) for e in known))}
    steps = {key: i for i, key in enumerate(dict.fromkeys(id(e) for e in known))}
    regions = {name: i for i, name in enumerate(dict.fromkeys(p.region for p in places if p.region is not None))}
    columns = np.full((kernel.COLUMNS, n), np.nan)
    columns[kernel.PULLS] = pulls
    for i, engine in enumerate(engines):
        region, tier = places[i].region, None if tiers is None else tiers[i]
        if region is not None:
            columns[kernel.REGION, i] = regions[region]
        if engine is not None:
            p, e = engine.prefill, engine.energy
            columns[kernel.KIND, i] = models[engine.model, engine.kv_bytes_per_token]
            columns[kernel.ENGINE, i] = steps[id(engine)]
            columns[kernel.KV_BITS, i] = bits_from_bytes(float(engine.kv_bytes_per_token))
            columns[kernel.PREFILL_SECONDS, i] = p.seconds_per_token_above
            columns[kernel.PREFILL_SECONDS_SQUARED, i] = p.seconds_per_token_squared
            columns[kernel.PREFILL_JOULES, i] = e.prefill_joules_per_token
            columns[kernel.PREFILL_JOULES_SQUARED, i] = e.prefill_joules_per_token_squared
        if tier is not None and (link := links.tiers.get(tier)) is not None:
            columns[kernel.TIER_BYTES_PER_SECOND : kernel.COLUMNS, i] = _three(link)
    between = _between(places, np.array(pulls, dtype=np.bool_), links)
    return KvPool(columns, between, sum(map(bool, pulls)))


def own_actions(
    cached_tokens: FloatColumn, last_served: int | None, rules: KvRules
) -> tuple[tuple[KvAction, ...], FloatColumn]:
    """What each endpoint's own cache means as an action, and the cached tokens that a decision may count on.

    `LocalHit` is the endpoint that served the session's last turn, if it is believed to cache anything;
    `RouteToOwner` any other that is; `Recompute` the rest. A request without a known session has no local hit. Where
    the policy does not allow the action, the cache is not counted on and the endpoint is priced as a recompute;
    the engine may use what it finds all the same.

    Args:
        cached_tokens: believed, per endpoint.
        last_served: the endpoint of the session's last turn; None where nobody knows or it is no candidate.
        rules: allowed actions.
    """
    actions = [_OWN[tokens > 0.0] for tokens in cached_tokens.tolist()]
    if last_served is not None and actions[last_served] is KvAction.ROUTE_TO_OWNER:
        actions[last_served] = KvAction.LOCAL_HIT
    if rules.own_caches_count:
        return tuple(actions), cached_tokens
    counted = np.array([action in rules.allowed for action in actions], dtype=np.bool_)
    tokens = np.where(counted, cached_tokens, 0.0)
    return tuple(a if ok else KvAction.RECOMPUTE for a, ok in zip(actions, counted, strict=True)), tokens


def plans_of(view: CacheView, pool: KvPool, prompt_tokens: float, rules: KvRules) -> KvPlans:
    """The plans that equation 8 allows, best first.

    A pull shares its links with those that are on their way, so that it takes longer by their number.

    A pull is left out where its source would serve the request itself at least as well: the same step model in the
    same region, no busier in any respect. `rules` says which actions may be chosen.

    Args:
        view: what is believed for this request; unknown (NaN) tokens make no plan.
        pool: the same endpoints in the same order.
        prompt_tokens: of the request.
        rules: allowed actions and λ.
    """
    from heliotrope.cache import kernel

    cached = view.cached_tokens
    reloads = KvAction.OFFLOAD_RELOAD in rules.allowed and bool((view.offloaded_tokens - cached >= LEAST_TOKENS).any())
    owners = np.empty(MAX_OWNERS, dtype=np.intp)
    count = 0
    if pool.takes_part > 1 and KvAction.PEER_TRANSFER in rules.allowed:
        count = kernel.owners_of(cached, pool.columns, LEAST_TOKENS, owners)
    if count == 0 and not reloads:
        return NO_PLANS
    result = np.empty((kernel.RESULTS, len(pool)))
    crowd = Crowd.none(len(pool)) if view.crowd is None else view.crowd
    found = kernel.best_plans(
        cached,
        view.offloaded_tokens,
        view.running,
        view.waiting,
        view.waiting_tokens,
        view.kv_tokens,
        view.kv_capacity_tokens,
        pool.columns,
        pool.links,
        crowd.into,
        crowd.out,
        owners[:count],
        prompt_tokens,
        rules.memory_pressure_joules,
        LEAST_TOKENS,
        reloads,
        result,
    )
    if found == 0:
        return NO_PLANS
    rows = np.argsort(-result[kernel.SAVED], kind="stable")[: min(found, MAX_PLANS)]
    best = result[:, rows]
    sources = tuple(None if j < 0 else int(j) for j in best[kernel.SOURCE].tolist())
    return KvPlans(
        rows=rows,
        actions=tuple(KvAction.OFFLOAD_RELOAD if j is None else KvAction.PEER_TRANSFER for j in sources),
        sources=sources,
        cached_tokens=np.minimum(best[kernel.TOKENS], prompt_tokens),
        transfer_seconds=best[kernel.SECONDS],
        transfer_joules=best[kernel.JOULES],
        saved_joules=best[kernel.SAVED],
    )


_CLASSES = tuple(LinkClass)


def _between(places: Sequence[Place], pulls: NDArray[np.bool_], links: Links) -> NDArray[np.float64]:
    """The planes of `KvPool.links`: `link_class` of every pair that takes part, at once."""
    table = np.full((len(_CLASSES) + 1, 4), np.nan)  # the last row is for pairs without a link
    for position, kind in enumerate(_CLASSES):
        if (link := links.between.get(kind)) is not None:
            table[position] = *_three(link), side_of(kind)
    known = np.array([p.region is not None for p in places], dtype=np.bool_)
    region = _equal([p.region for p in places])
    rack = region & _equal([p.rack for p in places])
    codes = np.full(region.shape, -1, dtype=np.intp)
    # Nearer classes are written over farther ones.
    codes[known[:, None] & known] = _CLASSES.index(LinkClass.WAN)
    codes[region] = _CLASSES.index(LinkClass.REGION)
    codes[rack] = _CLASSES.index(LinkClass.RACK)
    codes[_equal([p.node for p in places])] = _CLASSES.index(LinkClass.NODE)
    codes[~(pulls[:, None] & pulls)] = -1
    np.fill_diagonal(codes, -1)
    planes: NDArray[np.float64] = np.ascontiguousarray(table[codes].transpose(2, 0, 1))
    return planes


def _equal(names: Sequence[str | None]) -> NDArray[np.bool_]:
    """Shape (n, n): where both are known and the same."""
    codes = {name: i for i, name in enumerate(dict.fromkeys(names))}
    column = np.array([-1 if name is None else codes[name] for name in names], dtype=np.intp)
    equal: NDArray[np.bool_] = (column[:, None] == column) & (column >= 0)
    return equal


def _three(link: Link) -> tuple[float, float, float]:
    joules_per_bit = link.sender_joules_per_bit + link.network_joules_per_bit + link.receiver_joules_per_bit
    return link.bytes_per_second, link.latency_seconds, joules_per_bit
