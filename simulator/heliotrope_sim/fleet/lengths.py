"""How long prompts and answers are where a trace does not say.

Papers print means only. Lengths here are log-normal with those means and coefficients of variation that are assumed;
they stand in for data sets that are not redistributable.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError

Int64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal lengths, independent of each other, cut to their limits."""

    mean_prompt_tokens: float
    mean_output_tokens: float
    prompt_variation: float = 0.5
    """Standard deviation by mean."""
    output_variation: float = 0.4
    most_prompt_tokens: int = 4096
    most_output_tokens: int = 4096

    def __post_init__(self) -> None:
        """Means are at least a token."""
        for name in ("mean_prompt_tokens", "mean_output_tokens"):
            if not getattr(self, name) >= 1.0:
                raise InvalidInputError(f"lengths.{name}", f"must be at least 1, got {getattr(self, name)}")
        for name in ("prompt_variation", "output_variation"):
            if not getattr(self, name) >= 0.0:
                raise InvalidInputError(f"lengths.{name}", f"must be 0 or more, got {getattr(self, name)}")

    def draw(self, random: np.random.Generator, count: int) -> tuple[Int64, Int64]:
        """Prompt and output tokens of so many requests; prompts are drawn first."""
        return (
            _draw(random, count, self.mean_prompt_tokens, self.prompt_variation, self.most_prompt_tokens),
            _draw(random, count, self.mean_output_tokens, self.output_variation, self.most_output_tokens),
        )


def _draw(random: np.random.Generator, count: int, mean: float, variation: float, most: int) -> Int64:
    spread = np.sqrt(np.log1p(variation**2))
    tokens = np.rint(random.lognormal(np.log(mean) - spread**2 / 2.0, spread, count))
    return np.clip(tokens, 2, most).astype(np.int64)


CNN_DAILYMAIL = Lengths(841.0, 71.0)
"""Summaries of news (paper carbon-slo-tension, table II: means)."""
OPEN_ORCA = Lengths(195.0, 211.0, prompt_variation=1.0, output_variation=0.8)
"""Instructions and answers (ibid.)."""
LONG_PROMPTS = Lengths(10_700.0, 71.0, most_prompt_tokens=32_768)
"""Ibid., §V-D."""
MIXED_PROMPTS = Lengths(2_900.0, 140.0, prompt_variation=1.5, output_variation=0.8, most_prompt_tokens=32_768)
"""Ibid."""
