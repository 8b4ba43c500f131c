"""What was asked of the pool since this picker started: arrivals and tokens by model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from heliotrope_epp.labels import LabelCap

MAX_CLIENT_NAMES = 100


@dataclass(slots=True)
class ModelDemand:
    """Counts of one model, by the name that clients asked for."""

    requests_total: int = 0
    """Arrivals that could be read, whatever became of them."""
    prompt_tokens_total: int = 0
    """Of these, as the picker counts them on arrival."""
    output_tokens_total: int = 0
    """As engines reported them."""
    in_flight: int = 0


class DemandBook:
    """Owned by the loop's thread.

    Models that the pool's variants serve always have a line of their own; of other names that clients give, the first
    hundred do, and the rest count as `other`.
    """

    def __init__(self, served: Callable[[], frozenset[str]] = frozenset) -> None:
        """`served` gives the models of the pool's variants at this moment."""
        self._served = served
        self._names = LabelCap(MAX_CLIENT_NAMES)
        self._models: dict[str, ModelDemand] = {}

    @property
    def models(self) -> Mapping[str, ModelDemand]:
        """By name; read it, never keep it."""
        return self._models

    def name(self, model: str) -> str:
        """What a model is called here."""
        return model if model in self._served() else self._names.of(model)

    def arrived(self, model: str, prompt_tokens: int) -> None:
        """A request came."""
        row = self._row(model)
        row.requests_total += 1
        row.prompt_tokens_total += max(prompt_tokens, 0)

    def routed(self, model: str) -> None:
        """A request was sent to an engine."""
        self._row(model).in_flight += 1

    def ended(self, model: str, output_tokens: int | None) -> None:
        """A routed request ended; None: nobody counted its answer."""
        row = self._row(model)
        row.in_flight -= 1
        row.output_tokens_total += max(output_tokens or 0, 0)

    def _row(self, model: str) -> ModelDemand:
        return self._models.setdefault(self.name(model), ModelDemand())
