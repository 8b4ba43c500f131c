"""What an emulated model says: how many tokens, and which words, from the seed and the prompt alone."""

import hashlib
import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

from heliotrope_sim.emulator.config import OutputLength
from heliotrope_sim.emulator.tokens import BYTES_PER_TOKEN, END_OF_MESSAGE, Tokens

# Three letters and a space are one token of four bytes, so that text and tokens agree wherever the text is cut.
_WORDS = (
    b"the sun and sky air sea ice dew fog ray arc orb day eve now far low new old red dim lit "
    b"oak elm fir ash ivy hay rye oat fig nut bee owl elk fox hen cod eel ant bat cat cow dog "
    b"run fly sit see hum sow mow sew dig row hop nap wax ebb "
)
_TABLE_SIZE = 4096


@cache
def _table() -> bytes:
    """A fixed run of words, twice, so that any stretch of one length is a slice."""
    count = len(_WORDS) // BYTES_PER_TOKEN
    picks = (hashlib.blake2b(i.to_bytes(4, "little"), digest_size=8).digest() for i in range(_TABLE_SIZE))
    starts = (int.from_bytes(pick, "little") % count * BYTES_PER_TOKEN for pick in picks)
    words = b"".join(_WORDS[start : start + BYTES_PER_TOKEN] for start in starts)
    return words + words


def prompt_key(prompt: Tokens, seed: int, request_seed: int | None) -> int:
    """A 64-bit number that stands for a prompt under a seed; everything random about its answer follows from it."""
    digest = hashlib.blake2b(prompt.tobytes(), digest_size=8, key=f"{seed}/{request_seed}".encode()[:64])
    return int.from_bytes(digest.digest(), "little")


def draw_length(key: int, distribution: OutputLength) -> int:
    """The length in tokens, end of sequence included, at which the model would stop by itself."""
    # The middle of one of 2^52 equal parts of (0, 1), so that neither end can be drawn.
    uniform = ((key >> 12) + 0.5) / (1 << 52)
    z = NormalDist().inv_cdf(uniform)
    return max(1, round(distribution.median_tokens * math.exp(distribution.sigma * z)))


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, known in full before its first token is due."""

    start: int
    """Where in the run of words it begins."""
    tokens: int
    """How many tokens it has, the end of the sequence included if it stops by itself."""
    finish_reason: str
    """`stop` or `length`."""

    @property
    def words(self) -> int:
        """Tokens that have text."""
        return self.tokens - 1 if self.finish_reason == "stop" else self.tokens

    def word(self, index: int) -> bytes:
        """The text of one token; empty for the end of the sequence."""
        if index >= self.words:
            return b""
        at = (self.start + index) % _TABLE_SIZE * BYTES_PER_TOKEN
        return _table()[at : at + BYTES_PER_TOKEN]

    def text(self, tokens: int | None = None) -> str:
        """The text of the first tokens, by default of all."""
        count = self.words if tokens is None else min(tokens, self.words)
        table = _table()[: _TABLE_SIZE * BYTES_PER_TOKEN]
        at = self.start % _TABLE_SIZE * BYTES_PER_TOKEN
        repeats = (at + count * BYTES_PER_TOKEN) // len(table) + 1
        return (table * repeats)[at : at + count * BYTES_PER_TOKEN].decode()

    def token_ids(self) -> Tokens:
        """Its tokens, as the prompt of a next turn would have them."""
        ids = np.frombuffer(self.text().encode(), dtype="<u4")
        if self.finish_reason == "stop":
            return np.append(ids, np.uint32(END_OF_MESSAGE))
        return ids


def plan_answer(
    key: int,
    distribution: OutputLength,
    *,
    limit: int,
    ignore_eos: bool = False,
    min_tokens: int = 0,
    fixed_tokens: int | None = None,
) -> Answer:
    """Decide an answer.

    Args:
        key: see `prompt_key`.
        distribution: of lengths.
        limit: most tokens that the request and the context allow.
        ignore_eos: go on to the limit.
        min_tokens: stop no earlier.
        fixed_tokens: stop exactly then, if the limit allows.
    """
    if ignore_eos and fixed_tokens is None:
        return Answer(key % _TABLE_SIZE, limit, "length")
    tokens = max(draw_length(key, distribution), min_tokens) if fixed_tokens is None else fixed_tokens
    if tokens > limit:
        return Answer(key % _TABLE_SIZE, limit, "length")
    return Answer(key % _TABLE_SIZE, tokens, "stop")
