"""A configuration's scheduling part, built: what the pipeline runs."""

from dataclasses import dataclass

from heliotrope_epp.plugins.interface import Filter, Picker, Producer, ProfileHandler, Scorer
from heliotrope_epp.plugins.pickers.carbon import CarbonPicker


@dataclass(frozen=True, slots=True)
class NamedFilter:
    """A filter with its name in the configuration."""

    name: str
    filter: Filter


@dataclass(frozen=True, slots=True)
class WeightedScorer:
    """A scorer with its name and weight in a profile."""

    scorer: Scorer
    weight: float
    name: str
    type_name: str
    """The plugin type, as the registry knows it."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One scheduling profile; filters and scorers run in this order."""

    name: str
    filters: tuple[NamedFilter, ...]
    scorers: tuple[WeightedScorer, ...]
    picker: Picker
    picker_name: str
    carbon_picker: CarbonPicker
    """What decides under an enforced policy. The picker itself where the configuration lists it."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """Everything that decides about a request."""

    profiles: tuple[Profile, ...]
    handler: ProfileHandler
    producers: tuple[Producer, ...]
    producers_always: bool
    """False: nothing in the configuration uses the producers, so that they only run while a policy is attached."""
