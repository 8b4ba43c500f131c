"""Sources of carbon intensity: the one folder of the library that reads files and asks over the network."""

from heliotrope.providers.build import NetworkSources, build
from heliotrope.providers.interface import Fetched, HistoryProvider, Provider
from heliotrope.providers.timing import Timing, replay_speed, timing

__all__ = ["Fetched", "HistoryProvider", "NetworkSources", "Provider", "Timing", "build", "replay_speed", "timing"]
