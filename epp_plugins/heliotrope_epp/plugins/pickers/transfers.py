"""How KV blocks can come to endpoints: read from their labels, kept between decisions."""

from collections.abc import Sequence
from operator import is_

from heliotrope.cache.links import Links, Place, Tier
from heliotrope.cache.plans import KvPool, kv_pool
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits
from heliotrope_epp.plugins.interface import Option

KV_TRANSFER_LABEL = "heliotrope.io/kv-transfer"
"""`p2p`: the endpoint pulls blocks from others when `x-kv-cache-source-host-port` names one, and lets them pull."""
KV_OFFLOAD_LABEL = "heliotrope.io/kv-offload"
"""`cpu` or `disk`: evicted blocks go there and come back when they are needed."""
NODE_LABEL = "kubernetes.io/hostname"
RACK_LABEL = "heliotrope.io/rack"
P2P = "p2p"


def place_of(endpoint: Endpoint, traits: Traits) -> Place:
    """Where an endpoint runs, as far as it is known."""
    labels = endpoint.labels
    return Place(labels.get(NODE_LABEL) or endpoint.node_address, labels.get(RACK_LABEL), traits.region)


def offload_tier(endpoint: Endpoint) -> Tier | None:
    """Where it keeps evicted blocks; None: nowhere, or somewhere that is not known here."""
    label = endpoint.labels.get(KV_OFFLOAD_LABEL)
    return Tier(label) if label in (Tier.CPU, Tier.DISK) else None


def takes_part(endpoint: Endpoint) -> bool:
    """Whether blocks move between it and others."""
    return endpoint.labels.get(KV_TRANSFER_LABEL) == P2P


class KvPoolCache:
    """The pool of the last decision's endpoints; most are about the same ones."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._endpoints: tuple[Endpoint, ...] = ()
        self._traits: tuple[Traits, ...] = ()
        self._pool: KvPool | None = None

    def of(self, options: Sequence[Option]) -> KvPool | None:
        """Of these options, in their order; None where nothing can be fetched by any of them."""
        # Both are replaced when the resources change and never altered, so identity tells.
        endpoints = tuple([option.state.endpoint for option in options])
        traits = tuple([option.state.traits for option in options])
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
