"""An image of a prompt, as an engine sees it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ImageInput:
    """One image; never its pixels."""

    mm_hash: str
    """What equal images have in common."""
    tokens: int
    """Of the prompt that stand for it."""
    end: int
    """Tokens of the prompt up to its last one: KV of that many spares its embedding."""
    load_ns: int | None = None
    """What it takes to load its embedding from an encoder; None: it is encoded here."""
    load_picojoules: int = 0
