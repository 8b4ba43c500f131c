"""What a prompt holds beside text: which modality, how many tokens, and what caches know it by."""

import base64
import binascii
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.media import pictures
from heliotrope.media.tokens import MAX_ASPECT, VisualTokenRule, visual_tokens

HEADER_BYTES = 1 << 17
"""The size of a picture is looked for in so many of its first bytes: more than a JPEG's metadata usually takes."""
BORDER_TOKENS = 2
"""Marks of an image's beginning and end in the prompt."""


class Modality(StrEnum):
    """What kind of thing it is."""

    IMAGE = "image"
    AUDIO = "audio"
    VIDEO = "video"
    OTHER = "other"
    """A part of a type that is not known here."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """One thing of a prompt that an encoder must see. Neither its content nor its address is kept."""

    modality: Modality
    key: str
    """Equal for equal things, so that caches can be asked for it."""
    tokens: int | None
    """In the prompt, marks included; None: unknown, which is not 0."""
    assumed: bool = False
    """The tokens are those of a usual picture, as this one would have to be fetched."""


def image_tokens(url: str, rule: VisualTokenRule) -> tuple[int | None, bool]:
    """Tokens of an image, its marks included, and whether they are an assumption.

    The size is read from the first bytes of a data URL; nothing is decoded to pixels and nothing is fetched.

    Returns:
        None for what is no picture of known size: the engine says what is wrong with it.
    """
    if url.startswith(("http://", "https://")):
        return rule.assumed_tokens + BORDER_TOKENS, True
    found = _size(url)
    if found is None or max(found) > MAX_ASPECT * min(found):
        return None, False
    return visual_tokens(*found, rule) + BORDER_TOKENS, False


def _size(url: str) -> pictures.Size | None:
    comma = url.find(",", 0, 256)
    if comma < 0 or not url.startswith("data:") or not url[:comma].endswith(";base64"):
        return None
    first = url[comma + 1 : comma + 1 + HEADER_BYTES // 3 * 4]
    try:
        return pictures.size(base64.b64decode(first[: len(first) // 4 * 4], validate=True))
    except (binascii.Error, ValueError):
        return None
