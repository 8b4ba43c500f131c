"""Labels of endpoints that say what their KV cache can do; without them nothing is assumed."""

from heliotrope.cache.links import Place, Tier
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits

KV_TRANSFER_LABEL = "heliotrope.io/kv-transfer"
"""`p2p`: the endpoint pulls blocks from others when `x-kv-cache-source-host-port` names one, and lets them pull."""
KV_OFFLOAD_LABEL = "heliotrope.io/kv-offload"
"""`cpu` or `disk`: evicted blocks go there and come back when they are needed."""
KV_OFFLOAD_TOKENS_LABEL = "heliotrope.io/kv-offload-tokens"
"""How many tokens fit there."""
NODE_LABEL = "kubernetes.io/hostname"
RACK_LABEL = "heliotrope.io/rack"
P2P = "p2p"

MAX_OFFLOAD_TOKENS = 1_000_000_000
"""More is taken for this: an index of it would already have millions of blocks."""


def place_of(endpoint: Endpoint, traits: Traits) -> Place:
    """Where an endpoint runs, as far as it is known."""
    labels = endpoint.labels
    return Place(labels.get(NODE_LABEL) or endpoint.node_address, labels.get(RACK_LABEL) or None, traits.region)


def takes_part(endpoint: Endpoint) -> bool:
    """Whether blocks move between it and others."""
    return endpoint.labels.get(KV_TRANSFER_LABEL) == P2P


def offload_tier(endpoint: Endpoint) -> Tier | None:
    """Where it keeps evicted blocks; None: nowhere, or somewhere that is not known here."""
    label = endpoint.labels.get(KV_OFFLOAD_LABEL)
    return Tier(label) if label in (Tier.CPU, Tier.DISK) else None


def offload_tokens(endpoint: Endpoint) -> int:
    """How many tokens it keeps below its own memory; 0 where the labels do not say, or say what is no number."""
    if offload_tier(endpoint) is None:
        return 0
    label = endpoint.labels.get(KV_OFFLOAD_TOKENS_LABEL, "")
    return min(int(label), MAX_OFFLOAD_TOKENS) if label.isascii() and label.isdecimal() else 0
