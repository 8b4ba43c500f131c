"""Labels of endpoints that say what their KV cache can do; without them nothing is assumed."""

from heliotrope.cache.links import Place, Tier
from heliotrope_epp.datalayer.endpoint import Endpoint, Traits

KV_TRANSFER_LABEL = "heliotrope.io/kv-transfer"
"""`p2p`: the endpoint pulls blocks from others when `x-kv-cache-source-host-port` names one, and lets them pull."""
KV_OFFLOAD_LABEL = "heliotrope.io/kv-offload"
"""`cpu` or `disk`: evicted blocks go there and come back when they are needed."""
KV_OFFLOAD_TOKENS_LABEL = "heliotrope.io/kv-offload-tokens"
"""How many tokens fit there."""
KV_EVENTS_PORT_LABEL = "heliotrope.io/kv-events-port"
"""Where this endpoint publishes KV events, if not where the configuration says."""
KV_REPLAY_PORT_LABEL = "heliotrope.io/kv-replay-port"
"""Where it replays them."""
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
    return min(_number(endpoint, KV_OFFLOAD_TOKENS_LABEL) or 0, MAX_OFFLOAD_TOKENS)


def kv_event_ports(endpoint: Endpoint) -> tuple[int, int | None] | None:
    """The endpoint's own ports of KV events and of their replay; None where its labels name none."""
    port, replay_port = _number(endpoint, KV_EVENTS_PORT_LABEL), _number(endpoint, KV_REPLAY_PORT_LABEL)
    if port is None or not 0 < port < 1 << 16:
        return None
    return port, replay_port if replay_port is not None and 0 < replay_port < 1 << 16 else None


def _number(endpoint: Endpoint, name: str) -> int | None:
    label = endpoint.labels.get(name, "")
    return int(label) if label.isascii() and label.isdecimal() else None
