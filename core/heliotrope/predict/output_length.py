"""How many tokens an answer will have, from the answers before it."""

from collections import OrderedDict
from dataclasses import dataclass

PRIOR_TOKENS = 200.0
"""Until a model has answered: near the mean of public traces (Azure 2023 conversations: 211)."""
PRIOR_WEIGHT = 8.0
DECAY = 0.99
"""Weight of an observation relative to the next one: a window of about 100 answers."""
MAX_MODELS = 1_000


@dataclass(slots=True)
class _Mean:
    weighted_tokens: float = PRIOR_TOKENS * PRIOR_WEIGHT
    weight: float = PRIOR_WEIGHT


class OutputLengths:
    """A decayed mean of answer lengths per model. Models beyond `max_models` push out the least recently used."""

    def __init__(self, max_models: int = MAX_MODELS) -> None:
        self._means: OrderedDict[str, _Mean] = OrderedDict()
        self._max_models = max_models

    def expected_tokens(self, model: str, max_output_tokens: int | None) -> float:
        """Expected length of the next answer, at least 1 and at most what the request allows."""
        mean = self._means.get(model)
        tokens = PRIOR_TOKENS if mean is None else mean.weighted_tokens / mean.weight
        if max_output_tokens is not None:
            tokens = min(tokens, float(max_output_tokens))
        return max(tokens, 1.0)

    def observe(self, model: str, output_tokens: int) -> None:
        """An answer of this model had this many tokens; negative counts are ignored."""
        if output_tokens < 0:
            return
        mean = self._means.setdefault(model, _Mean())
        self._means.move_to_end(model)
        mean.weighted_tokens = mean.weighted_tokens * DECAY + output_tokens
        mean.weight = mean.weight * DECAY + 1.0
        if len(self._means) > self._max_models:
            self._means.popitem(last=False)
