"""Sources of carbon intensity: the one folder of the library that reads files and, later, the network."""

from heliotrope.providers.build import build
from heliotrope.providers.interface import Fetched, Provider
from heliotrope.providers.timing import Timing, timing

__all__ = ["Fetched", "Provider", "Timing", "build", "timing"]
