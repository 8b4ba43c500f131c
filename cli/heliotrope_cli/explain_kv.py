"""The chosen plan's KV action in a sentence."""

from heliotrope.cache.action import KvAction
from heliotrope.decide.recorded import Candidate
from heliotrope_cli.quantities import UNKNOWN, joules, seconds, shown


def kv_sentence(chosen: Candidate | None) -> str | None:
    """How the prompt's KV gets there; None where it is computed, or nobody says."""
    if chosen is None or chosen.kv_action in (None, KvAction.RECOMPUTE):
        return None
    tokens = UNKNOWN if chosen.cached_tokens is None else f"{chosen.cached_tokens:,.0f}"
    cost = f"{seconds(chosen.transfer_seconds)}, {joules(chosen.transfer_joules)}"
    match chosen.kv_action:
        case KvAction.PEER_TRANSFER:
            return f"KV: {tokens} prompt tokens pulled from {shown(chosen.kv_source or UNKNOWN)} ({cost})."
        case KvAction.OFFLOAD_RELOAD:
            return f"KV: {tokens} prompt tokens reloaded from a lower tier ({cost})."
        case KvAction.LOCAL_HIT:
            return f"KV: {tokens} prompt tokens expected in the cache of the session's endpoint."
        case KvAction.ROUTE_TO_OWNER:
            return f"KV: {tokens} prompt tokens expected in the endpoint's cache."
    return f"KV: {shown(chosen.kv_action or UNKNOWN)}."
