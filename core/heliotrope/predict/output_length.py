"""How many tokens an answer will have, from the answers before it and from those that are still being written.

Averaging finished answers alone is biased: under load the short ones finish first, and whoever trusts them believes
that batch slots free up several times sooner than they do. Little's law has no such bias: the mean residence time is
the time that all requests together have spent here, unfinished ones included, over the number that finished.
"""

from collections import OrderedDict
from dataclasses import dataclass

PRIOR_TOKENS = 200.0
"""Until a model has answered: near the mean of public traces (Azure 2023 conversations: 211)."""
PRIOR_TOKENS_PER_SECOND = 40.0
PRIOR_WEIGHT = 8.0
"""Finished answers that the prior counts as."""
DECAY = 0.99
"""Weight of a finished answer relative to the next one: a window of about 100 answers."""
MAX_MODELS = 1_000


@dataclass(slots=True)
class _Model:
    finished: float = PRIOR_WEIGHT
    exposure_seconds: float = PRIOR_WEIGHT * PRIOR_TOKENS / PRIOR_TOKENS_PER_SECOND
    """Time spent by all requests together, decayed with `finished`."""
    tokens: float = PRIOR_WEIGHT * PRIOR_TOKENS
    token_seconds: float = PRIOR_WEIGHT * PRIOR_TOKENS / PRIOR_TOKENS_PER_SECOND
    """Tokens of finished answers and the time they took: their ratio is the speed of one request."""
    in_flight: int = 0
    as_of_s: float = 0.0

    def advance(self, now_s: float) -> None:
        """Add the time that those in flight have spent since the last change."""
        if self.in_flight:
            self.exposure_seconds += self.in_flight * max(now_s - self.as_of_s, 0.0)
        self.as_of_s = now_s


class OutputLengths:
    """Per model. Models beyond `max_models` push out the least recently used. Times are monotonic seconds."""

    def __init__(self, max_models: int = MAX_MODELS) -> None:
        self._models: OrderedDict[str, _Model] = OrderedDict()
        self._max_models = max_models

    def expected_tokens(self, model: str, max_output_tokens: int | None, now_s: float) -> float:
        """Expected length of the next answer, at least 1 and at most what the request allows."""
        entry = self._models.get(model)
        tokens = PRIOR_TOKENS
        if entry is not None:
            entry.advance(now_s)
            tokens = entry.exposure_seconds / entry.finished * entry.tokens / entry.token_seconds
        if max_output_tokens is not None:
            tokens = min(tokens, float(max_output_tokens))
        return max(tokens, 1.0)

    def started(self, model: str, now_s: float) -> None:
        """A request of this model was sent to an engine."""
        entry = self._models.setdefault(model, _Model(as_of_s=now_s))
        self._models.move_to_end(model)
        entry.advance(now_s)
        entry.in_flight += 1
        if len(self._models) > self._max_models:
            self._models.popitem(last=False)

    def ended(self, model: str, started_s: float, now_s: float, output_tokens: int | None) -> None:
        """A started request ended.

        Args:
            model: its model.
            started_s: the time given to `started`.
            now_s: now.
            output_tokens: its answer's length; None if it failed or nobody counted: then only its time counts.
        """
        entry = self._models.get(model)
        if entry is None:
            return
        entry.advance(now_s)
        entry.in_flight = max(entry.in_flight - 1, 0)
        if output_tokens is None or output_tokens < 0:
            return
        entry.finished = entry.finished * DECAY + 1.0
        entry.exposure_seconds *= DECAY
        entry.tokens = entry.tokens * DECAY + output_tokens
        entry.token_seconds = entry.token_seconds * DECAY + max(now_s - started_s, 1e-6)
