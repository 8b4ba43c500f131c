"""The ways to come by the KV cache of a prompt (equation 8 of sustainable-inference-control-plane)."""

from enum import StrEnum


class KvAction(StrEnum):
    """What a plan does about the part of the prompt that somebody has computed before."""

    LOCAL_HIT = "LocalHit"
    """The endpoint that served the session's last turn still caches it."""
    ROUTE_TO_OWNER = "RouteToOwner"
    """The request goes to another endpoint because that one caches the prefix."""
    PEER_TRANSFER = "PeerTransfer"
    """The endpoint pulls the blocks from another one."""
    OFFLOAD_RELOAD = "OffloadReload"
    """The endpoint loads them back from its CPU memory or disk."""
    RECOMPUTE = "Recompute"
    """Nothing is reused."""
