"""How KV blocks can come to endpoints, kept between decisions."""

from collections.abc import Sequence
from operator import is_

from heliotrope.cache.links import Links
from heliotrope.cache.plans import KvPool, kv_pool
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins.kv_labels import offload_tier, place_of, takes_part


class KvPoolCache:
    """The pool of the last decision's endpoints; most are about the same ones."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._endpoints: tuple[Endpoint, ...] = ()
        self._traits: tuple[Traits, ...] = ()
        self._pool: KvPool | None = None

    def of(self, states: Sequence[EndpointState]) -> KvPool | None:
        """Of these endpoints, in their order; None where nothing can be fetched by any of them."""
        # Both are replaced when the resources change and never altered, so identity tells.
        endpoints = tuple([state.endpoint for state in states])
        traits = tuple([state.traits for state in states])
        if not (_same(endpoints, self._endpoints) and _same(traits, self._traits)):
            self._endpoints, self._traits = endpoints, traits
            self._pool = self._built(endpoints, traits)
        return self._pool

    def _built(self, endpoints: Sequence[Endpoint], traits: Sequence[Traits]) -> KvPool | None:
        pulls = [takes_part(endpoint) for endpoint in endpoints]
        tiers = [offload_tier(endpoint) for endpoint in endpoints]
        if sum(pulls) < 2 and not any(tiers):
            return None
        places = [place_of(endpoint, of) for endpoint, of in zip(endpoints, traits, strict=True)]
        return kv_pool([t.engine for t in traits], places, pulls, self._links, tiers)


def _same(these: tuple[object, ...], those: tuple[object, ...]) -> bool:
    return len(these) == len(those) and all(map(is_, these, those))
