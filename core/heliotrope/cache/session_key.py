"""Names of sessions as keyed hashes: what a table holds instead of what clients sent.

The key of the hash is drawn by the process, so nobody outside can search for a name that meets another's row, and what
is stored tells nothing. Tenant and model are part of what is hashed: a name that is copied from another tenant, or
used with another model, finds nothing.
"""

import secrets
from enum import StrEnum
from hashlib import blake2b

from heliotrope.cache.session_table import KEY_BYTES

MAX_NAME_LENGTH = 256
"""Longer names are not taken: a client could otherwise make every request cost a long hash."""


class IdentitySource(StrEnum):
    """Where a session's name is from, best first."""

    HEADER = "header"
    PROMPT_CACHE_KEY = "prompt_cache_key"
    PREVIOUS_RESPONSE = "previous_response_id"
    USER_AND_PREFIX = "user and prefix"
    PREFIX = "prefix"


def usable_name(name: str | None) -> bool:
    """Whether a client's name can be one: 1 to 256 visible ASCII characters."""
    return (
        name is not None
        and 0 < len(name) <= MAX_NAME_LENGTH
        and name.isascii()
        and name.isprintable()
        and " " not in name
    )


class SessionKeys:
    """Makes 128-bit keys for one process."""

    def __init__(self, secret: bytes | None = None) -> None:
        """`secret` is up to 64 bytes; None draws one."""
        self._keyed = blake2b(key=secrets.token_bytes(32) if secret is None else secret, digest_size=KEY_BYTES)

    def of(self, source: IdentitySource, tenant: str, model: str, name: bytes) -> bytes:
        """The key of a name; equal only for equal source, tenant, model and name."""
        digest = self._keyed.copy()
        who, what = _encoded(tenant), _encoded(model)
        # Lengths first, so that no two identities make the same bytes.
        digest.update(b"%s %d %d %s%s%s" % (source.encode(), len(who), len(what), who, what, name))
        return digest.digest()


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
