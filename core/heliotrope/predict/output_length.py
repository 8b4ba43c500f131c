"""How many tokens an answer will have, from the answers before it and from those that are still being written.

Averaging finished answers alone is biased: under load the short ones finish first, and whoever trusts them believes
that batch slots free up several times sooner than they do. Little's law has no such bias: the mean residence time is
the time that all requests together have spent here, unfinished ones included, over the number that finished.

That mean holds per model. What is known of the request beyond its model changes the distribution around it
(`heliotrope.predict.length_distribution`), whose histograms know finished answers only; so all their lengths are
multiplied by what Little's law says of the model over what its finished answers say, as far as unfinished ones matter.
"""

from collections import OrderedDict
from dataclasses import dataclass

from heliotrope.predict.length_distribution import LengthContext, LengthDistributions, LengthPrediction, summary

PRIOR_TOKENS = 200.0
"""Until a model has answered: near the mean of public traces (Azure 2023 conversations: 211)."""
PRIOR_TOKENS_PER_SECOND = 40.0
PRIOR_WEIGHT = 8.0
"""Finished answers that the prior counts as."""
DECAY = 0.99
"""Weight of a finished answer relative to the next one: a window of about 100 answers."""
MAX_MODELS = 1_000
MAX_CORRECTION = 4.0
"""Factor that Little's law changes a distribution's lengths by at most, up or down."""
FEW = 0.25
"""Unfinished answers over finished ones, below which they matter less and less."""


@dataclass(slots=True)
class _Model:
    finished: float = PRIOR_WEIGHT
    exposure_seconds: float = PRIOR_WEIGHT * PRIOR_TOKENS / PRIOR_TOKENS_PER_SECOND
    """Time spent by all requests together, decayed with `finished`."""
    tokens: float = PRIOR_WEIGHT * PRIOR_TOKENS
    token_seconds: float = PRIOR_WEIGHT * PRIOR_TOKENS / PRIOR_TOKENS_PER_SECOND
    """Tokens of finished answers and the time they took: their ratio is the speed of one request."""
    answers: int = 0
    in_flight: int = 0
    as_of_s: float = 0.0

    def advance(self, now_s: float) -> None:
        """Add the time that those in flight have spent since the last change."""
        if self.in_flight:
            self.exposure_seconds += self.in_flight * max(now_s - self.as_of_s, 0.0)
        self.as_of_s = now_s

    @property
    def mean_tokens(self) -> float:
        """Residence time by Little's law × speed."""
        return self.exposure_seconds / self.finished * self.tokens / self.token_seconds


class OutputLengths:
    """Per model. Models beyond `max_models` push out the least recently used. Times are monotonic seconds."""

    def __init__(self, max_models: int = MAX_MODELS) -> None:
        self._models: OrderedDict[str, _Model] = OrderedDict()
        self._max_models = max_models
        self._distributions = LengthDistributions(PRIOR_TOKENS)

    def expected_tokens(
        self, model: str, max_output_tokens: int | None, now_s: float, context: LengthContext | None = None
    ) -> float:
        """Expected length of the next answer, at least 1 and at most what the request allows.

        With a context it is the mean of `predict`; without one it is the model's.
        """
        if context is not None:
            return self.predict(context, now_s).mean
        entry = self._models.get(model)
        tokens = PRIOR_TOKENS
        if entry is not None:
            entry.advance(now_s)
            tokens = entry.mean_tokens
        if max_output_tokens is not None:
            tokens = min(tokens, float(max_output_tokens))
        return max(tokens, 1.0)

    def predict(self, context: LengthContext, now_s: float) -> LengthPrediction:
        """Mean, quantiles and bucket of the next answer in this context."""
        shares = self._distributions.probabilities(context)
        return summary(shares, self._correction(context.model, now_s), context.max_output_tokens)

    def predict_bucket(self, context: LengthContext, now_s: float) -> int:
        """The likeliest of the six buckets, `heliotrope.predict.length_distribution.bucket_of`."""
        return self.predict(context, now_s).bucket

    def knows(self, model: str) -> bool:
        """Whether the model has answered anything."""
        entry = self._models.get(model)
        return entry is not None and entry.answers > 0

    def started(self, model: str, now_s: float) -> None:
        """A request of this model was sent to an engine."""
        entry = self._models.setdefault(model, _Model(as_of_s=now_s))
        self._models.move_to_end(model)
        entry.advance(now_s)
        entry.in_flight += 1
        if len(self._models) > self._max_models:
            self._models.popitem(last=False)

    def ended(
        self,
        model: str,
        started_s: float,
        now_s: float,
        output_tokens: int | None,
        context: LengthContext | None = None,
    ) -> None:
        """A started request ended.

        Args:
            model: its model.
            started_s: the time given to `started`.
            now_s: now.
            output_tokens: its answer's length; None if it failed or nobody counted: then only its time counts.
            context: what was known of it; None: the answer counts for its model's mean only.
        """
        entry = self._models.get(model)
        if entry is None:
            return
        entry.advance(now_s)
        entry.in_flight = max(entry.in_flight - 1, 0)
        if output_tokens is None or output_tokens < 0:
            return
        if context is not None:
            self._distributions.add(context, output_tokens)
        entry.answers += 1
        entry.finished = entry.finished * DECAY + 1.0
        entry.exposure_seconds *= DECAY
        entry.tokens = entry.tokens * DECAY + output_tokens
        entry.token_seconds = entry.token_seconds * DECAY + max(now_s - started_s, 1e-6)

    def _correction(self, model: str, now_s: float) -> float:
        """What lengths of finished answers are to be multiplied by, because long ones are still being written."""
        entry = self._models.get(model)
        if entry is None or not entry.in_flight:
            return 1.0
        entry.advance(now_s)
        ratio = entry.mean_tokens / self._distributions.model_mean(model)
        unfinished = min(entry.in_flight / (FEW * entry.finished), 1.0)
        return float(min(max(ratio, 1.0 / MAX_CORRECTION), MAX_CORRECTION) ** unfinished)
