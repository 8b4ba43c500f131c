"""How many tokens an image is to a model."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VisualTokenRule:
    """Qwen2-VL's rule (arXiv:2409.12191, and its processor) with its limits."""

    patch_pixels: int = 28
    """Side of the square that becomes one token."""
    min_pixels: int = 56 * 56
    max_pixels: int = 28 * 28 * 16_384
    assumed_width: int = 1_024
    """Of images that would have to be fetched."""
    assumed_height: int = 1_024

    @property
    def assumed_tokens(self) -> int:
        """Of such an image."""
        return visual_tokens(self.assumed_width, self.assumed_height, self)


MAX_ASPECT = 200
"""A side this many times longer than the other is refused by the model's processor."""


def visual_tokens(width: int, height: int, rule: VisualTokenRule) -> int:
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
