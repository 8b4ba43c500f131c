"""A configuration, checked and built."""

from dataclasses import dataclass

from heliotrope_epp.plugins.datalayer import FileDiscoveryParameters, MetricsSourceParameters
from heliotrope_epp.plugins.profile import Scheduling


@dataclass(frozen=True, slots=True)
class LoadedConfig:
    """What the process starts with."""

    scheduling: Scheduling
    discovery: FileDiscoveryParameters | None
    """None: endpoints do not come from a file that the configuration names."""
    metrics: MetricsSourceParameters | None
    """How engines are asked; None: not at all, so that every load is unknown."""
    parsers: tuple[str, ...]
    """Parser types, in order."""
    warnings: tuple[str, ...]
    """What is deprecated, experimental or ignored; for the log at start."""
