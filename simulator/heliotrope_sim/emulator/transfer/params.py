"""`kv_transfer_params` and `ec_transfer_params` as vLLM's connectors read and write them.

NixlConnector (pull mode): a prefiller gets `do_remote_decode` and answers with where its blocks are; a decoder gets
that answer. OffloadingConnector's P2P tier: `remote_kv_source`. What cannot be used is told from what is absent: vLLM
serves such a request without a transfer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

MAX_PORT = 65_535
MAX_NAME = 512


@dataclass(frozen=True, slots=True)
class Peer:
    """The address at which an engine lets others read."""

    host: str
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class RemotePrefill:
    """Blocks of this very prompt, held by another engine for whoever asks for the request."""

    peer: Peer
    engine_id: str
    request_id: str
    tokens: int | None
    """How many of the prompt's tokens; None: not said."""


@dataclass(frozen=True, slots=True)
class KvTransfer:
    """What a request says about KV."""

    remote_decode: bool = False
    """Hold the blocks after the last token: another engine goes on."""
    remote_prefill: RemotePrefill | None = None
    kv_source: Peer | None = None
    """An engine whose prefix cache may know the prompt."""
    unusable: str | None = None
    """Why a transfer that was asked for cannot be tried."""


def read_kv(params: Mapping[str, Any] | None) -> KvTransfer:
    """Read `kv_transfer_params`; never fails."""
    if not params:
        return KvTransfer()
    remote_decode = params.get("do_remote_decode") is True
    source = params.get("remote_kv_source")
    kv_source = _peer(source, "remote_host", "remote_port") if isinstance(source, Mapping) else None
    unusable = "remote_kv_source names no peer" if source is not None and kv_source is None else None
    if params.get("do_remote_prefill") is not True:
        return KvTransfer(remote_decode, None, kv_source, unusable)
    prefill = _remote_prefill(params)
    if prefill is None:
        unusable = "do_remote_prefill without remote_block_ids, remote_engine_id, remote_request_id, host or port"
    return KvTransfer(remote_decode, prefill, kv_source, unusable)


def held(
    *, engine_id: str, request_id: str, peer: Peer, tensor_parallel: int, block_ids: Sequence[int], tokens: int
) -> dict[str, Any]:
    """What a prefiller's answer says, in the form that a decoder's request takes back.

    Args:
        engine_id: of the prefiller; another one after a restart.
        request_id: under which it holds the blocks.
        peer: where it lets others read.
        tensor_parallel: accelerators of the group.
        block_ids: of the one group of KV caches that the emulator has.
        tokens: whose KV the blocks hold.
    """
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [list(block_ids)],
        "remote_engine_id": engine_id,
        "remote_request_id": request_id,
        "remote_host": peer.host,
        "remote_port": peer.port,
        "tp_size": tensor_parallel,
        "remote_num_tokens": tokens,
        "transfer_mode": "pull",
    }


def read_ec(params: Mapping[str, Any] | None) -> dict[str, Peer]:
    """Where embeddings are, by hash of their image; entries that name no peer are left out."""
    found = {}
    for mm_hash, entry in (params or {}).items():
        peer = _peer(entry, "peer_host", "peer_port") if isinstance(entry, Mapping) else None
        if peer is not None:
            found[mm_hash] = peer
    return found


def encoded(peer: Peer, sizes_bytes: Mapping[str, int]) -> dict[str, Any]:
    """What an encoder's answer says: where the embeddings are, and how large."""
    return {
        mm_hash: {"peer_host": peer.host, "peer_port": peer.port, "size_bytes": size}
        for mm_hash, size in sizes_bytes.items()
    }


def _remote_prefill(params: Mapping[str, Any]) -> RemotePrefill | None:
    peer = _peer(params, "remote_host", "remote_port")
    engine_id, request_id = params.get("remote_engine_id"), params.get("remote_request_id")
    if peer is None or not params.get("remote_block_ids") or not _is_name(engine_id) or not _is_name(request_id):
        return None
    tokens = params.get("remote_num_tokens")
    return RemotePrefill(peer, engine_id, request_id, tokens if _is_whole(tokens) and tokens > 0 else None)


def _peer(params: Mapping[str, Any], host_key: str, port_key: str) -> Peer | None:
    host, port = params.get(host_key), params.get(port_key)
    if not _is_name(host) or any(c in host for c in "/?#@[]\\ \t\r\n") or not _is_whole(port):
        return None
    return Peer(host, port) if 0 < port <= MAX_PORT else None


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
