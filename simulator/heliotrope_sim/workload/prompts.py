"""Texts of a wanted length for traces that ship without their texts."""

from random import Random

_WORDS = (
    "sun",
    "grid",
    "wind",
    "river",
    "clock",
    "model",
    "token",
    "batch",
    "region",
    "carbon",
    "joule",
    "queue",
    "reason",
)
BYTES_PER_TOKEN = 4


def prompt_of(tokens: int, seed: int) -> str:
    """A text of about this many tokens at four bytes each; the same seed gives the same text."""
    random = Random(seed)
    wanted = tokens * BYTES_PER_TOKEN
    words: list[str] = []
    length = 0
    while length < wanted:
        word = random.choice(_WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words)[:wanted]
