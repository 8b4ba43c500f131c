"""The bodies that a sidecar sends for one request: to encoders, to the prefiller, to its own engine.

Fields and values are those of llm-d's sidecar (llm-d-router ebab6879, `connector_nixlv2.go`, `connector_p2p.go`,
`connector_ec_common.go`), which are vLLM's `kv_transfer_params` and `ec_transfer_params`. Whatever the client put into
them is dropped: they tell an engine whose memory to read.
"""

import json
import uuid
from collections.abc import Mapping
from typing import Any

from heliotrope_sim.sidecar.endpoint import host_of, port_of

KV_PARAMS = "kv_transfer_params"
EC_PARAMS = "ec_transfer_params"
TOKEN_LIMITS = ("max_tokens", "max_completion_tokens", "min_tokens")
_MULTIMODAL = frozenset(("image_url", "audio_url", "video_url", "input_audio"))

Body = dict[str, Any]


def cleaned(body: Mapping[str, Any]) -> Body:
    """A client's body without the fields that only routers may set."""
    return {key: value for key, value in body.items() if key not in (KV_PARAMS, EC_PARAMS)}


def prefill(body: Mapping[str, Any], kv_source: Body | None = None) -> Body:
    """What the prefiller gets: one token, no stream, and the wish to keep the blocks."""
    params: Body = {
        "do_remote_decode": True,
        "do_remote_prefill": False,
        "remote_engine_id": None,
        "remote_block_ids": None,
        "remote_host": None,
        "remote_port": None,
    }
    if kv_source is not None:
        params["remote_kv_source"] = kv_source
    asked = {**body, KV_PARAMS: params, "stream": False} | dict.fromkeys(TOKEN_LIMITS, 1)
    asked.pop("stream_options", None)
    return asked


def decode(body: Mapping[str, Any], answer: Mapping[str, Any]) -> Body:
    """What the sidecar's engine gets after the prefiller's answer."""
    return {**body, KV_PARAMS: answer.get(KV_PARAMS)}


def with_kv_source(body: Mapping[str, Any], kv_source: Body) -> Body:
    """What the sidecar's engine gets when it is to pull a cached prefix itself."""
    return {**body, KV_PARAMS: {"remote_kv_source": kv_source}}


def kv_source(target: str, connector_port: int | None) -> Body:
    """Where a cached prefix is, for vLLM's P2P tier."""
    return {
        "kv_request_id": str(uuid.uuid4()),
        "remote_host": host_of(target),
        "remote_port": connector_port or port_of(target),
    }


def multimodal_parts(body: Mapping[str, Any]) -> list[Body]:
    """The parts of a conversation that an encoder must see; the same URL once."""
    parts: list[Body] = []
    seen: set[str] = set()
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        for part in content if isinstance(content, list) else []:
            if not isinstance(part, dict) or part.get("type") not in _MULTIMODAL:
                continue
            held = part.get(part["type"])
            url = held.get("url") if isinstance(held, dict) else None
            if isinstance(url, str):
                if url in seen:
                    continue
                seen.add(url)
            parts.append(part)
    return parts


def encode(body: Mapping[str, Any], part: Body) -> Body:
    """What an encoder gets for one part."""
    asked = {**body, "messages": [{"role": "user", "content": [part]}], "max_tokens": 1, "stream": False}
    if "max_completion_tokens" in body:
        asked["max_completion_tokens"] = 1
    for field in ("stream_options", "min_tokens"):
        asked.pop(field, None)
    return asked


def cached_tokens(answer: Mapping[str, Any]) -> int:
    """The prompt tokens that a prefiller found in its cache; 0 where it says nothing."""
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return cached if isinstance(cached, int) else 0


def parsed(raw: bytes) -> Body | None:
    """A JSON object, or None if it is not one."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None
