"""Names that clients choose, bounded in number."""

OTHER = "other"
MAX_LENGTH = 253


class LabelCap:
    """Keeps the first names that come; every further one counts as `other`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def of(self, name: str) -> str:
        """The name itself, cut to 253 characters, or `other`."""
        name = name[:MAX_LENGTH]
        if name in self._known:
            return name
        # A lone surrogate cannot be written down, and would spoil a whole page of metrics or batch of rows.
        name = name.encode("utf-8", errors="replace").decode()
        if name in self._known:
            return name
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(name)
        return name
