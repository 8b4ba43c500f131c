"""What a request's body says of the conversation that it belongs to."""

from dataclasses import dataclass, field
from re import compile as pattern
from typing import Any

_RESPONSE_ID = pattern(rb'"id"\s*:\s*"(resp_[!-~]{1,200}?)"')


@dataclass(frozen=True, slots=True)
class SessionHints:
    """Names as the client gave them, unchecked; empty: none. They never reach a log, span or metric."""

    prompt_cache_key: str = field(default="", repr=False)
    previous_response_id: str = field(default="", repr=False)
    user: str = field(default="", repr=False)
    previous_prompt_bytes: int = 0
    """The first so many bytes of the prompt are the prompt of the turn before; 0: there is none, or nobody knows."""


NO_HINTS = SessionHints()


def session_hints(prompt_cache_key: Any, previous_response_id: Any, user: Any, previous_bytes: int) -> SessionHints:
    """The hints of a body's fields; what is no text is left out, for engines refuse it better than a picker."""
    return SessionHints(_text(prompt_cache_key), _text(previous_response_id), _text(user), previous_bytes)


def response_id_of(tail: bytes) -> str | None:
    """The id of a Responses API answer in the end of its body; None if it is not there.

    Only such ids come back as `previous_response_id`, and the last events of a stream name it. Of a long answer in one
    piece it stands before the tail and is not found.
    """
    found = _RESPONSE_ID.search(tail)
    return None if found is None else found.group(1).decode("ascii")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
