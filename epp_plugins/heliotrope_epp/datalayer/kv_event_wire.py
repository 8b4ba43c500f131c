"""KV events as vLLM and llm-d send them: three frames, msgpack of maps or, as earlier versions wrote it, of arrays.

A message comes from an engine, not from a client, and is judged all the same: whatever is no batch is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from heliotrope.errors import InvalidInputError

SEQUENCE_BYTES = 8
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that a tier holds from now on, in the order of the prompt."""

    hashes: tuple[int, ...]
    parent: int | None
    token_ids: tuple[int, ...]
    """Of all of them; empty where the engine does not tell."""
    block_size: int
    medium: str | None
    lora_name: str | None
    extra_keys: tuple[object, ...]
    """By block; what beside its tokens tells a block from another."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that a tier holds no more."""

    hashes: tuple[int, ...]
    medium: str | None


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing is held any more."""


Event = Stored | Removed | Cleared

_STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
)
_REMOVED = ("block_hashes", "medium")


def decoded(frames: Sequence[bytes]) -> tuple[int, list[Event]]:
    """The sequence number and the events of a message; events of other types are left out.

    Raises:
        InvalidInputError: if it is no such message.
    """
    if len(frames) != 3 or len(frames[1]) != SEQUENCE_BYTES:
        raise InvalidInputError("frames", "a message is a topic, a sequence number of 8 bytes and a payload")
    return int.from_bytes(frames[1], "big"), events_of(frames[2])


def events_of(payload: bytes) -> list[Event]:
    """The events of a payload.

    Raises:
        InvalidInputError: if it is no batch of events.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise InvalidInputError("payload", f"is larger than {MAX_MESSAGE_BYTES // 1024 // 1024} MiB")
    try:
        batch = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        raise InvalidInputError("payload", "is not msgpack") from None
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise InvalidInputError("payload", "is no array of a time and events")
    events = (_event(item, f"events[{i}]") for i, item in enumerate(batch[1]))
    return [event for event in events if event is not None]


def _event(item: object, path: str) -> Event | None:
    if isinstance(item, dict):
        kind, fields = item.get("type"), item
    elif isinstance(item, list) and item:
        kind = item[0]
        names = _STORED if kind == "BlockStored" else _REMOVED
        fields = dict(zip(names, item[1:], strict=False))
    else:
        raise InvalidInputError(path, "is neither a map nor an array")
    if kind == "AllBlocksCleared":
        return Cleared()
    if kind == "BlockRemoved":
        return Removed(_hashes(fields, path), _text(fields.get("medium")))
    if kind != "BlockStored":
        return None
    return _stored(fields, path)


def _stored(fields: dict[object, object], path: str) -> Stored:
    hashes = _hashes(fields, path)
    tokens, size, parent = fields.get("token_ids") or (), fields.get("block_size"), fields.get("parent_block_hash")
    if not isinstance(tokens, (list, tuple)) or not all(isinstance(t, int) and 0 <= t < 1 << 32 for t in tokens):
        raise InvalidInputError(f"{path}.token_ids", "must be numbers of tokens")
    if not isinstance(size, int) or size < 0:
        raise InvalidInputError(f"{path}.block_size", "must be a number of tokens")
    if tokens and len(tokens) != size * len(hashes):
        raise InvalidInputError(f"{path}.token_ids", f"must be {size} for each of {len(hashes)} blocks")
    keys = fields.get("extra_keys") or ()
    return Stored(
        hashes,
        None if parent is None else _hash(parent, path),
        tuple(tokens),
        size,
        _text(fields.get("medium")),
        _text(fields.get("lora_name")),
        tuple(keys) if isinstance(keys, (list, tuple)) else (),
    )


def _hashes(fields: dict[object, object], path: str) -> tuple[int, ...]:
    hashes = fields.get("block_hashes")
    if not isinstance(hashes, list):
        raise InvalidInputError(f"{path}.block_hashes", "must be an array")
    return tuple(_hash(value, path) for value in hashes)


def _hash(value: object, path: str) -> int:
    """Engines name blocks by numbers or by digests."""
    if isinstance(value, bytes):
        return int.from_bytes(value, "big")
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidInputError(f"{path}.block_hashes", "must be numbers or bytes")


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
