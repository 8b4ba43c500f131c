"""Which session a request belongs to: a pure function of headers and body.

Best first: a header, OpenAI's `prompt_cache_key` and `previous_response_id`, and else the prompt itself. A chat resends
its history, so all messages before the last answer are the whole prompt of the turn before; its hash was that turn's
key. `user` names a person who may hold several chats, so it counts only together with that. Two sessions with equal
prompts and different names stay apart, and share what the prefix index believes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from xxhash import xxh3_128_digest

from heliotrope.cache.session_key import IdentitySource, SessionKeys, usable_name
from heliotrope_epp.parsers.session_hints import SessionHints

SESSION_HEADERS = ("x-session-id", "x-claude-code-session-id")
"""The first is the default of llm-d's session-id-producer; the second is what Claude Code sends."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A session by its key."""

    source: IdentitySource
    key: bytes = field(repr=False)
    known_as: bytes | None = field(default=None, repr=False)
    """The key that the session had until now, if this turn changes it."""
    begins: bool = False
    """Its history says that this is a first turn: equal first prompts of strangers are no session."""


@dataclass(slots=True, eq=False)
class Scope:
    """Within which a name means something."""

    tenant: str
    model: str
    cache_salt: str = field(default="", repr=False)
    """Another salt is another cache, so another session."""

    def key(self, keys: SessionKeys, source: IdentitySource, name: bytes) -> bytes:
        """The key of a name in this scope."""
        model = f"{len(self.model)} {self.model} {self.cache_salt}"
        return keys.of(source, self.tenant, model, name)

    def response_key(self, keys: SessionKeys, response_id: str) -> bytes:
        """The key under which a response's id is remembered."""
        return self.key(keys, IdentitySource.PREVIOUS_RESPONSE, response_id.encode("ascii"))


@dataclass(slots=True, eq=False)
class Named:
    """What a request says of itself; made and read in one call."""

    header: Callable[[str], str | None]
    hints: SessionHints
    prompt: bytes = field(repr=False)
    scope: Scope


def identify(
    named: Named, keys: SessionKeys, session_of_response: Callable[[bytes], bytes | None]
) -> tuple[Identity | None, int]:
    """The session of a request.

    Args:
        named: the request.
        keys: hash names.
        session_of_response: the session's key by the key of a response's id; None if that response is unknown.

    Returns:
        The identity, None where nothing tells; and how many names were no usable ones (`usable_name`).
    """
    refused = 0
    for source, name in _names(named):
        if not name:
            continue
        if not usable_name(name):
            refused += 1
            continue
        key = named.scope.key(keys, source, name.encode("ascii"))
        if source is IdentitySource.PREVIOUS_RESPONSE:
            key = session_of_response(key) or key
        return Identity(source, key), refused
    user = named.hints.user
    if user and not usable_name(user):
        refused += 1
        user = ""
    return _by_prefix(named, keys, user), refused


def _names(named: Named) -> Iterator[tuple[IdentitySource, str | None]]:
    """Best first."""
    for header in SESSION_HEADERS:
        yield IdentitySource.HEADER, named.header(header)
    yield IdentitySource.PROMPT_CACHE_KEY, named.hints.prompt_cache_key
    yield IdentitySource.PREVIOUS_RESPONSE, named.hints.previous_response_id


def _by_prefix(named: Named, keys: SessionKeys, user: str) -> Identity | None:
    if not named.prompt:
        return None
    source = IdentitySource.USER_AND_PREFIX if user else IdentitySource.PREFIX
    who = user.encode("ascii") + b"\0"
    key = named.scope.key(keys, source, who + xxh3_128_digest(named.prompt))
    before = named.hints.previous_prompt_bytes
    if before == 0:
        return Identity(source, key, begins=True)
    earlier = xxh3_128_digest(memoryview(named.prompt)[:before])
    return Identity(source, key, named.scope.key(keys, source, who + earlier))
