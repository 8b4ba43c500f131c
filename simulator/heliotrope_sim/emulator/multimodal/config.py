"""How an engine sees images."""

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heliotrope.media.tokens import VisualTokenRule
from heliotrope_sim.engine import Encoder, EncoderCosts
from heliotrope_sim.engine.fixed_point import picojoules


class VisualTokens(BaseModel):
    """How many tokens an image is; defaults of Qwen2-VL's processor."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    patch_pixels: int = Field(default=28, ge=1)
    """Side of the square that becomes one token."""
    min_pixels: int = Field(default=56 * 56, ge=1)
    max_pixels: int = Field(default=28 * 28 * 16_384, ge=1)
    assumed_width: int = Field(default=1_024, ge=1)
    """Of images that would have to be fetched."""
    assumed_height: int = Field(default=1_024, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.patch_pixels**2 <= self.max_pixels or self.min_pixels > self.max_pixels:
            raise ValueError("max_pixels must hold at least one patch and be no less than min_pixels")
        return self

    @property
    def counted(self) -> VisualTokenRule:
        """The rule that counts with these numbers."""
        return VisualTokenRule(**self.model_dump())


class EncoderConfig(BaseModel):
    """The vision encoder of a multimodal model: what a step of it takes and draws, and what it remembers.

    A step over B images of N tokens together takes base + per image × B + per token × N, of seconds and of joules. The
    defaults are an estimate, not a measurement: a tower of 0.7 B parameters sees four patches per token, which is
    5.4 GFLOP; an accelerator of the H100's class does that in about 20 µs with 500 W.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    base_seconds: float = Field(default=0.004, ge=0)
    seconds_per_image: float = Field(default=0.001, ge=0)
    seconds_per_token: float = Field(default=20e-6, ge=0)
    base_joules: float = Field(default=1.6, ge=0)
    joules_per_image: float = Field(default=0.4, ge=0)
    joules_per_token: float = Field(default=0.01, ge=0)
    cache_tokens: int = Field(default=65_536, ge=0)
    """Tokens whose embeddings are remembered; the least recently used image goes first."""
    bytes_per_token: int = Field(default=16_384, ge=1)
    """Of an embedding: the model's width in 16-bit numbers (8,192 for a 70B model)."""
    visual_tokens: VisualTokens = VisualTokens()

    def encoder(self) -> Encoder:
        """As the engine has it."""
        costs = EncoderCosts(
            base_seconds=self.base_seconds,
            seconds_per_image=self.seconds_per_image,
            seconds_per_token=self.seconds_per_token,
            base_picojoules=picojoules(self.base_joules),
            picojoules_per_image=picojoules(self.joules_per_image),
            picojoules_per_token=picojoules(self.joules_per_token),
        )
        return Encoder(costs, self.cache_tokens)
