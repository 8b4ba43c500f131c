"""Text to pseudo tokens and back: cheap, deterministic, and stable under a shared prefix.

Four bytes of UTF-8 are one token, whose id is those bytes as a little-endian number; the last token of a text is
padded with zero bytes. Every message is tokenized by itself between two special tokens, so that conversations that
begin with the same messages begin with the same tokens, and an answer sent back as a message has the tokens that it
was generated with.
"""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.uint32]

BYTES_PER_TOKEN = 4
# 0xFF never occurs in UTF-8, so no text has these ids.
END_OF_MESSAGE = 0xFFFF_FFFF
_ROLE_BASE = 0xFFFF_FE00
_ROLES = {"system": 0, "developer": 1, "user": 2, "assistant": 3, "tool": 4, "function": 5, "tools": 6}
_OTHER_ROLE = 7
START_OF_IMAGE = 0xFFFF_FF00
END_OF_IMAGE = 0xFFFF_FF01
MAX_TOKEN_ID = 0xFFFF_FFFF


def tokenize(text: str) -> Tokens:
    """The tokens of a text: ⌈bytes / 4⌉ of them."""
    data = text.encode("utf-8", errors="replace")
    return np.frombuffer(data + b"\0" * (-len(data) % BYTES_PER_TOKEN), dtype="<u4")


def tokenize_messages(messages: Iterable[tuple[str, str]], tools: list[dict[str, Any]] | None = None) -> Tokens:
    """The tokens of a conversation of (role, text), with the opening of the assistant's answer.

    Each message costs its text and two special tokens, the opening one; tools count as a message of their JSON.
    """
    return tokenize_turns(((role, [tokenize(text)]) for role, text in messages), tools)


def tokenize_turns(turns: Iterable[tuple[str, Iterable[Tokens]]], tools: list[dict[str, Any]] | None = None) -> Tokens:
    """The same for messages of (role, parts), whose parts are tokens already."""
    parts: list[Tokens] = []
    if tools:
        parts += _message("tools", [tokenize(json.dumps(tools, sort_keys=True, separators=(",", ":")))])
    for role, content in turns:
        parts += _message(role, content)
    parts.append(_special(_role("assistant")))
    return np.concatenate(parts)


def framed_image(placeholder: Tokens) -> Tokens:
    """An image's tokens between the two that mark its ends."""
    return np.concatenate([_special(START_OF_IMAGE), placeholder, _special(END_OF_IMAGE)])


def _message(role: str, content: Iterable[Tokens]) -> list[Tokens]:
    return [_special(_role(role)), *content, _special(END_OF_MESSAGE)]


def _role(role: str) -> int:
    return _ROLE_BASE + _ROLES.get(role, _OTHER_ROLE)


def _special(token: int) -> Tokens:
    return np.array([token], dtype="<u4")
