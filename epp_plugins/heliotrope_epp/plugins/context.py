"""What a plugin is given when it is built: clocks, randomness, settings and what it may ask at run time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from heliotrope.cache.gate import OFF, Gate
from heliotrope.decide.candidates import RegionView
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.errors import InvalidInputError
from heliotrope.predict.models import LearnedModels
from heliotrope_epp.clock import Clock
from heliotrope_epp.plugins.embeddings import EmbeddingIndex
from heliotrope_epp.plugins.interface import EncodeDecider, PrefillDecider, Producer


class CarbonContext(Protocol):
    """What the resources say now; it changes while the picker runs, so it is asked at every decision."""

    def policy(self) -> DecisionPolicy | None:
        """The policy attached to this pool; None: there is none."""
        ...

    def regions(self) -> Mapping[str, RegionView]:
        """The regions by name."""
        ...


class NoCarbon:
    """A `CarbonContext` without a policy."""

    def policy(self) -> DecisionPolicy | None:
        """None."""
        return None

    def regions(self) -> Mapping[str, RegionView]:
        """Empty."""
        return {}


@dataclass(frozen=True, slots=True)
class PluginContext:
    """Given to every plugin factory. `producers` is filled before the plugins that may need them are built."""

    carbon: CarbonContext = field(default_factory=NoCarbon)
    models: Callable[[], LearnedModels | None] = field(default=lambda: None)
    """The learned models of the moment; None: there are none."""
    gate: Gate = OFF
    """Of sessions."""
    clock: Clock = field(default_factory=Clock)
    random: Random = field(default_factory=Random)
    """Seed it to make draws reproducible."""
    metrics_stale_after_s: float = 2.0
    """Engine metrics older than this are unknown."""
    instance: str = ""
    """Names this picker among those that serve the same pool."""
    producers: Mapping[str, Producer] = field(default_factory=dict)
    """By plugin type."""
    deciders: Mapping[str, PrefillDecider] = field(default_factory=dict)
    """By their names in the configuration; filled before profile handlers are built."""
    encode_deciders: Mapping[str, EncodeDecider] = field(default_factory=dict)
    """The same of those that decide about encoders."""
    embeddings: EmbeddingIndex = field(default_factory=EmbeddingIndex)
    """Which images endpoints are believed to remember."""

    def producer(self, type_name: str) -> Producer:
        """The producer of this type.

        Raises:
            InvalidInputError: if there is none; a plugin that needs one names it in `requires`.
        """
        producer = self.producers.get(type_name)
        if producer is None:
            raise InvalidInputError(type_name, "no such producer was built; name it in `requires` when registering")
        return producer
