"""Which endpoints are believed to remember the embeddings of which images: those that they went to lately."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from heliotrope.media.attachment import Attachment

DEFAULT_CACHE_SIZE = 10_000
"""Images; llm-d's default."""
MAX_HOLDERS = 64
"""Endpoints that are remembered per image, the latest ones."""


class EmbeddingIndex:
    """By image, its holders; the least recently used image goes first. Lives on the loop's thread.

    What an engine has evicted meanwhile is not known here: an engine that lacks an embedding encodes again.
    """

    def __init__(self, cache_size: int = DEFAULT_CACHE_SIZE) -> None:
        self._size = cache_size
        self._holders: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        self.evictions = 0
        """Images that were forgotten for others' sake."""

    def __len__(self) -> int:
        """How many images."""
        return len(self._holders)

    def resize(self, cache_size: int) -> None:
        """Remember so many images at most."""
        self._size = cache_size
        self._shrink()

    def remember(self, key: str, endpoints: Iterable[str]) -> None:
        """These endpoints have just seen an image."""
        holders = self._holders.setdefault(key, OrderedDict())
        self._holders.move_to_end(key)
        for endpoint in endpoints:
            holders[endpoint] = None
            holders.move_to_end(endpoint)
        while len(holders) > MAX_HOLDERS:
            holders.popitem(last=False)
        self._shrink()

    def held(self, media: Sequence[Attachment]) -> dict[str, frozenset[str]]:
        """By endpoint, the keys of those things that it is believed to remember; not taken for a use."""
        found: dict[str, set[str]] = {}
        for item in media:
            for endpoint in self._holders.get(item.key, ()):
                found.setdefault(endpoint, set()).add(item.key)
        return {endpoint: frozenset(keys) for endpoint, keys in found.items()}

    def forget(self, endpoint: str) -> None:
        """The endpoint is gone or lost its cache."""
        for key in [key for key, holders in self._holders.items() if endpoint in holders]:
            holders = self._holders[key]
            del holders[endpoint]
            if not holders:
                del self._holders[key]

    def _shrink(self) -> None:
        while len(self._holders) > self._size:
            self._holders.popitem(last=False)
            self.evictions += 1
