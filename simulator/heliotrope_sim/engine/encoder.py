"""The vision encoder of an engine: what a step of it takes and draws, and which embeddings it remembers."""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from heliotrope_sim.engine.fixed_point import nanoseconds
from heliotrope_sim.engine.images import ImageInput
from heliotrope_sim.engine.sequence import Sequence


@dataclass(frozen=True, slots=True)
class EncoderCosts:
    """A step over B images of N tokens together: base + per image × B + per token × N, of time and of energy."""

    base_seconds: float
    seconds_per_image: float
    seconds_per_token: float
    base_picojoules: int
    picojoules_per_image: int
    picojoules_per_token: int

    def step_ns(self, images: int, tokens: int) -> int:
        """Time of a step; none without images."""
        if not images:
            return 0
        return nanoseconds(self.base_seconds + self.seconds_per_image * images + self.seconds_per_token * tokens)


class EncoderCache:
    """Embeddings by the hash of their image; the least recently used go first.

    An image that is larger than the whole cache is not remembered.
    """

    __slots__ = ("_tokens", "capacity_tokens", "evictions", "hits", "queries", "used_tokens")

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self.used_tokens = 0
        self.queries = 0
        """Images looked up."""
        self.hits = 0
        self.evictions = 0
        self._tokens: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        """How many images."""
        return len(self._tokens)

    def __contains__(self, mm_hash: str) -> bool:
        """Whether an image is remembered; neither counted nor taken for a use."""
        return mm_hash in self._tokens

    def tokens_of(self, mm_hash: str) -> int | None:
        """The tokens of a remembered image, for another engine; None if it is not remembered."""
        tokens = self._tokens.get(mm_hash)
        if tokens is not None:
            self._tokens.move_to_end(mm_hash)
        return tokens

    def look_up(self, mm_hash: str, *, known: bool = False) -> bool:
        """Whether an image is remembered, or `known` to be on its way anyhow; counted."""
        found = known or self.tokens_of(mm_hash) is not None
        self.queries += 1
        self.hits += found
        return found

    def remember(self, mm_hash: str, tokens: int) -> None:
        """Keep an embedding."""
        if tokens > self.capacity_tokens:
            return
        self.used_tokens += tokens - self._tokens.pop(mm_hash, 0)
        self._tokens[mm_hash] = tokens
        while self.used_tokens > self.capacity_tokens:
            self.used_tokens -= self._tokens.popitem(last=False)[1]
            self.evictions += 1

    def forget(self) -> None:
        """Drop everything."""
        self._tokens.clear()
        self.used_tokens = 0


@dataclass(frozen=True, slots=True)
class EncoderStep:
    """What one step of an encoder takes, draws and does."""

    duration_ns: int
    picojoules: int
    tokens: int
    participants: int


class Encoder:
    """The encoder of one engine."""

    __slots__ = ("_costs", "cache", "encoded_images", "encoded_ns", "encoded_tokens", "loaded_images")

    def __init__(self, costs: EncoderCosts, cache_tokens: int) -> None:
        self._costs = costs
        self.cache = EncoderCache(cache_tokens)
        self.encoded_images = 0
        self.encoded_tokens = 0
        self.encoded_ns = 0
        self.loaded_images = 0

    @staticmethod
    def has_work(sequence: Sequence) -> bool:
        """Whether a step of the encoder must come before a sequence goes on."""
        return bool(sequence.images_to_encode) or sequence.request.encode_only

    def prepare(self, sequence: Sequence, *, may_load: bool) -> tuple[int | None, int]:
        """Find the embeddings that an admitted sequence needs; what is not here has to be encoded or loaded.

        Images whose KV is here or on its way need none.

        Args:
            sequence: which; what it has to encode is written into it.
            may_load: whether embeddings that others have may be loaded.

        Returns:
            Time (ns) and energy (pJ) of the loads, one after another; None where there are none.
        """
        covered = sequence.computed + sequence.loading_tokens
        load_ns: int | None = None
        picojoules = 0
        sequence.images_to_encode = []
        on_the_way: set[str] = set()
        for image in sequence.request.images:
            if image.end <= covered or self.cache.look_up(image.mm_hash, known=image.mm_hash in on_the_way):
                continue
            on_the_way.add(image.mm_hash)
            if image.load_ns is None or not may_load:
                sequence.images_to_encode.append(image)
                continue
            load_ns = (load_ns or 0) + image.load_ns
            picojoules += image.load_picojoules
            self.cache.remember(image.mm_hash, image.tokens)
            self.loaded_images += 1
        return load_ns, picojoules

    def step(self, sequences: Iterable[Sequence], budget_tokens: int) -> EncoderStep:
        """Encode images of sequences, first come, first served, as many as the budget holds, and one at least.

        The same image of two sequences is encoded, and charged to the first, once.
        """
        costs = self._costs
        chosen: dict[str, ImageInput] = {}
        shares: list[tuple[Sequence, int, int]] = []
        tokens = 0
        for sequence in sequences:
            images = own_tokens = 0
            while sequence.images_to_encode:
                image = sequence.images_to_encode[0]
                if image.mm_hash not in chosen:
                    if chosen and tokens + image.tokens > budget_tokens:
                        break
                    chosen[image.mm_hash] = image
                    images += 1
                    own_tokens += image.tokens
                    tokens += image.tokens
                sequence.images_to_encode.pop(0)
            if images:
                shares.append((sequence, images, own_tokens))
            if sequence.images_to_encode:
                break
        total = 0
        for i, (sequence, images, own_tokens) in enumerate(shares):
            base, remainder = divmod(costs.base_picojoules, len(shares))
            drawn = base + costs.picojoules_per_image * images + costs.picojoules_per_token * own_tokens
            drawn += 0 if i else remainder
            sequence.picojoules += drawn
            total += drawn
        for image in chosen.values():
            self.cache.remember(image.mm_hash, image.tokens)
        duration_ns = costs.step_ns(len(chosen), tokens)
        self.encoded_images += len(chosen)
        self.encoded_tokens += tokens
        self.encoded_ns += duration_ns
        return EncoderStep(duration_ns, total, tokens, len(shares))
