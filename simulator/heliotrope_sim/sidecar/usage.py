"""The usage of an answer whose prompt was prefilled elsewhere says what *that* engine found in its cache.

To the decode engine the whole prompt came from outside. Clients are billed, and routers learn, from what was spared.
"""

import json
from typing import Any

MAX_LINE_BYTES = 1024 * 1024
_USAGE = b'"usage":'


class CachedTokens:
    """Writes a number of cached tokens into every usage of one answer."""

    def __init__(self, cached: int, *, stream: bool) -> None:
        self._cached = cached
        self._stream = stream
        self._rest = b""

    def feed(self, piece: bytes) -> bytes:
        """What can be sent on after this piece; lines of a stream are held until they are whole."""
        data = self._rest + piece
        if not self._stream:
            self._rest = data
            return b""
        whole, newline, self._rest = data.rpartition(b"\n")
        if len(self._rest) > MAX_LINE_BYTES:
            # No event of an engine is that long: let it pass rather than hold it.
            whole, newline, self._rest = data, b"", b""
        return b"\n".join(self._line(line) for line in whole.split(b"\n")) + newline if newline or whole else b""

    def finish(self) -> bytes:
        """What is left at the end."""
        rest, self._rest = self._rest, b""
        return self._line(rest) if self._stream else self._rewritten(rest)

    def _line(self, line: bytes) -> bytes:
        prefix, mark, data = line.partition(b"data: ")
        if prefix or not mark:
            return line
        return mark + self._rewritten(data)

    def _rewritten(self, data: bytes) -> bytes:
        if _USAGE not in data:
            return data
        try:
            body: Any = json.loads(data)
        except ValueError:
            return data
        usage = body.get("usage") if isinstance(body, dict) else None
        if not isinstance(usage, dict):
            return data
        usage["prompt_tokens_details"] = {**(usage.get("prompt_tokens_details") or {}), "cached_tokens": self._cached}
        return json.dumps(body, separators=(",", ":")).encode()
