"""Images as a model's prompt holds them: a hash, and as many tokens as Qwen2-VL would make of their pixels."""

import base64
import binascii
import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from heliotrope_sim.emulator.errors import bad_request
from heliotrope_sim.emulator.multimodal import pictures
from heliotrope_sim.emulator.multimodal.config import VisualTokens
from heliotrope_sim.emulator.tokens import Tokens

DATA_URL = "data:"
_WEB = ("http://", "https://")
# A side this many times longer than the other is refused, as by the model's processor.
_MAX_ASPECT = 200
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


def visual_tokens(width: int, height: int, rule: VisualTokens) -> int:
    """How many tokens an image is (Qwen2-VL, arXiv:2409.12191, and its processor).

    Both sides are rounded to whole patches; an image beyond the limits is scaled to them, the aspect kept. Every
    patch is a token.
    """
    patch = rule.patch_pixels
    wide, high = max(patch, round(width / patch) * patch), max(patch, round(height / patch) * patch)
    if wide * high > rule.max_pixels:
        scale = math.sqrt(width * height / rule.max_pixels)
        wide = max(patch, math.floor(width / scale / patch) * patch)
        high = max(patch, math.floor(height / scale / patch) * patch)
    elif wide * high < rule.min_pixels:
        scale = math.sqrt(rule.min_pixels / (width * height))
        wide, high = math.ceil(width * scale / patch) * patch, math.ceil(height * scale / patch) * patch
    return (wide // patch) * (high // patch)


def read(part: Any, rule: VisualTokens) -> Image:
    """The image of an `image_url` part; never fetched, never decoded.

    Raises:
        ApiError: 400 if it has no URL, or a data URL that holds no picture.
    """
    url = part.get("url") if isinstance(part, dict) else part
    if not isinstance(url, str):
        raise bad_request("image_url must hold a URL.", "messages")
    if url.startswith(_WEB):
        return Image(_hash(url.encode()), visual_tokens(rule.assumed_width, rule.assumed_height, rule))
    if not url.startswith(DATA_URL):
        raise bad_request("An image's URL must be a data URL or begin with http:// or https://.", "messages")
    data = _decoded(url)
    found = pictures.size(data)
    if found is None:
        raise bad_request("cannot identify image file: neither PNG, JPEG, GIF nor WebP", "messages")
    width, height = found
    if max(found) > _MAX_ASPECT * min(found):
        raise bad_request(f"The image's sides must not differ by more than {_MAX_ASPECT} times.", "messages")
    return Image(_hash(data), visual_tokens(width, height, rule))


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
