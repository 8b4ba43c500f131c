"""What a client says of how long a model may reason before it answers.

Two things are said, and they are kept apart. A budget is a number of tokens. An effort is a word that only the model
knows the meaning of: its order is known, its tokens are not, and turning it into tokens would be a guess. So an effort
is its rank; what it costs with a given model is learned from the answers.
"""

import math
from dataclasses import dataclass
from enum import IntEnum

NAN = float("nan")


class Effort(IntEnum):
    """OpenAI's words, in their order; vLLM and SGLang take the same ones."""

    NONE = 0
    """It answers at once."""
    MINIMAL = 1
    LOW = 2
    MEDIUM = 3
    HIGH = 4
    XHIGH = 5
    MAX = 6


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Of one request; None: the client does not say, so the model's default holds, which nobody here knows."""

    effort: Effort | None = None
    budget_tokens: int | None = None

    @property
    def effort_rank(self) -> float:
        """`Effort` as a feature; NaN: not said."""
        return NAN if self.effort is None else float(self.effort)

    @property
    def budget(self) -> float:
        """Tokens as a feature; NaN: not said."""
        return NAN if self.budget_tokens is None else float(self.budget_tokens)

    def kind(self) -> tuple[int, int] | None:
        """Equal for requests whose answers may be expected to be alike; budgets by doublings. None: nothing is said."""
        if self.effort is None and self.budget_tokens is None:
            return None
        effort = -1 if self.effort is None else int(self.effort)
        return effort, -1 if self.budget_tokens is None else int(math.log2(self.budget_tokens + 1))


UNSAID = Reasoning()
