"""Images as a model's prompt holds them: a hash, and as many tokens as Qwen2-VL would make of their pixels."""

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliotrope.media import pictures
from heliotrope.media.tokens import MAX_ASPECT, visual_tokens
from heliotrope_sim.emulator.errors import bad_request
from heliotrope_sim.emulator.multimodal.config import VisualTokens
from heliotrope_sim.emulator.tokens import Tokens

DATA_URL = "data:"
_WEB = ("http://", "https://")
# Keeps placeholders out of the range of special tokens.
_ORDINARY = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class Image:
    """One image of a prompt."""

    mm_hash: str
    """What caches know it by: of the picture's bytes, or of its URL where it has to be fetched."""
    tokens: int

    def placeholder(self) -> Tokens:
        """Its tokens in the prompt: equal for equal images, so that a prefix cache can tell images apart."""
        return np.full(self.tokens, np.uint32(int(self.mm_hash[:8], 16) & _ORDINARY), dtype="<u4")


def read(part: Any, rule: VisualTokens) -> Image:
    """The image of an `image_url` part; never fetched, never decoded.

    Raises:
        ApiError: 400 if it has no URL, or a data URL that holds no picture.
    """
    url = part.get("url") if isinstance(part, dict) else part
    if not isinstance(url, str):
        raise bad_request("image_url must hold a URL.", "messages")
    if url.startswith(_WEB):
        return Image(_hash(url.encode()), rule.counted.assumed_tokens)
    if not url.startswith(DATA_URL):
        raise bad_request("An image's URL must be a data URL or begin with http:// or https://.", "messages")
    data = _decoded(url)
    found = pictures.size(data)
    if found is None:
        raise bad_request("cannot identify image file: neither PNG, JPEG, GIF nor WebP", "messages")
    width, height = found
    if max(found) > MAX_ASPECT * min(found):
        raise bad_request(f"The image's sides must not differ by more than {MAX_ASPECT} times.", "messages")
    return Image(_hash(data), visual_tokens(width, height, rule.counted))


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _decoded(url: str) -> bytes:
    head, comma, data = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise bad_request("A data URL must be encoded in base64.", "messages")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise bad_request("A data URL holds what is not base64.", "messages") from None
