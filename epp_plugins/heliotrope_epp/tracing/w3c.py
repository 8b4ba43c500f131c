"""W3C Trace Context: reading `traceparent` and `tracestate` that anybody may have written, and writing ours."""

import re
from collections.abc import Callable
from dataclasses import dataclass

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
BAGGAGE = "baggage"

SAMPLED = 0x01
RANDOM = 0x02

_MAX_TRACEPARENT = 256
"""Later versions may be longer than the 55 characters of version 00, but not without end."""
_MAX_TRACESTATE = 512
_MAX_MEMBERS = 32

_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"(?:[a-z][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
_MEMBER = re.compile(
    rf"[ \t]*(?:({_KEY})=([\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e])[ \t]*)?"
)


@dataclass(frozen=True, slots=True)
class Parent:
    """A span of somebody else, whose child ours is."""

    trace_id: int
    span_id: int
    flags: int

    @property
    def sampled(self) -> bool:
        """Whether its owner records it."""
        return bool(self.flags & SAMPLED)


def incoming(header: Callable[[str], str | None]) -> tuple[Parent | None, str]:
    """The parent that these headers name, with its state; a malformed or oversized part of it counts as absent."""
    text = header(TRACEPARENT)
    parent = None if text is None else parse_traceparent(text)
    state = None if parent is None else header(TRACESTATE)
    if state is None or tracestate_members(state) is None:
        return parent, ""
    return parent, state


def parse_traceparent(text: str) -> Parent | None:
    """The parent that a header names; None if it is malformed, which means that there is none."""
    if len(text) > _MAX_TRACEPARENT:
        return None
    match = _PARENT.fullmatch(text)
    if match is None:
        return None
    version, trace_id, span_id, flags, rest = match.groups()
    if version == "ff" or (version == "00" and rest is not None):
        return None
    parent = Parent(int(trace_id, 16), int(span_id, 16), int(flags, 16))
    return parent if parent.trace_id and parent.span_id else None


def tracestate_members(text: str) -> list[tuple[str, str]] | None:
    """The members of a tracestate in their order; None if it is malformed or too long, which means to drop it."""
    if len(text) > _MAX_TRACESTATE:
        return None
    members: dict[str, str] = {}
    for part in text.split(","):
        match = _MEMBER.fullmatch(part)
        if match is None:
            return None
        key, value = match.groups()
        if key is None:
            continue
        if key in members:
            return None
        members[key] = value
    return list(members.items()) if len(members) <= _MAX_MEMBERS else None


def format_traceparent(trace_id: int, span_id: int, flags: int) -> str:
    """The header's value in version 00."""
    return f"00-{trace_id:032x}-{span_id:016x}-{flags:02x}"
