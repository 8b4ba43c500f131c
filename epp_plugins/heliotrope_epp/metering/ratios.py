"""How far our counts of tokens are from engines', learned from usage."""

from collections import OrderedDict
from dataclasses import dataclass

_RATE = 0.05
_MAX_MODELS = 1_000
_LEAST, _MOST = 0.05, 20.0


@dataclass(slots=True)
class _Ratio:
    value: float = 1.0
    seen: int = 0

    def learn(self, sample: float) -> None:
        if not _LEAST <= sample <= _MOST:
            return
        self.seen += 1
        self.value += (sample - self.value) * max(_RATE, 1.0 / self.seen)


@dataclass(slots=True)
class _Model:
    prompt: _Ratio
    chunk: _Ratio


class TokenRatios:
    """Per model: prompt tokens per token believed, and output tokens per piece of a streamed answer.

    Of the models that clients name the last `_MAX_MODELS` are remembered.
    """

    def __init__(self) -> None:
        self._models: OrderedDict[str, _Model] = OrderedDict()

    def prompt(self, model: str) -> float:
        """The engine's prompt tokens per token that we believe."""
        known = self._models.get(model)
        return 1.0 if known is None else known.prompt.value

    def tokens_per_chunk(self, model: str) -> float:
        """Output tokens per piece of the body."""
        known = self._models.get(model)
        return 1.0 if known is None else known.chunk.value

    def learn_prompt(self, model: str, believed: float, actual: float) -> None:
        """A prompt was counted by its engine."""
        if believed > 0.0:
            self._model(model).prompt.learn(actual / believed)

    def learn_chunks(self, model: str, chunks: float, tokens: float) -> None:
        """A streamed answer was counted by its engine."""
        if chunks > 0.0:
            self._model(model).chunk.learn(tokens / chunks)

    def _model(self, name: str) -> _Model:
        known = self._models.get(name)
        if known is None:
            known = self._models[name] = _Model(_Ratio(), _Ratio())
            if len(self._models) > _MAX_MODELS:
                self._models.popitem(last=False)
        else:
            self._models.move_to_end(name)
        return known
