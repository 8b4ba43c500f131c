"""What a vision encoder takes and draws."""

import math
from dataclasses import dataclass, fields

from heliotrope.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class EncoderModel:
    """A step over B images of N tokens together takes base + per image · B + per token · N, of seconds and of joules.

    The defaults are an estimate, not a measurement: a tower of 0.7 B parameters sees four patches per token, which is
    5.4 GFLOP; an accelerator of the H100's class does that in about 20 µs with 500 W. Their error says so.
    """

    base_seconds: float = 0.004
    seconds_per_image: float = 0.001
    seconds_per_token: float = 20e-6
    base_joules: float = 1.6
    joules_per_image: float = 0.4
    joules_per_token: float = 0.01
    bytes_per_token: float = 16_384.0
    """Of an embedding: the model's width in 16-bit numbers (8,192 for a 70B model)."""
    relative_error: float = 0.5
    """One standard deviation of seconds and joules over the estimate."""

    def __post_init__(self) -> None:
        """Refuse what no encoder can be."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not (math.isfinite(value) and value >= 0.0):
                raise InvalidInputError(field.name, f"must be finite and not negative, not {value!r}")

    def seconds(self, images: float, tokens: float) -> float:
        """Of one step; 0 without images."""
        if not images:
            return 0.0
        return self.base_seconds + self.seconds_per_image * images + self.seconds_per_token * tokens

    def joules(self, images: float, tokens: float) -> float:
        """Of one step; 0 without images."""
        if not images:
            return 0.0
        return self.base_joules + self.joules_per_image * images + self.joules_per_token * tokens


DEFAULT_ENCODER = EncoderModel()
