"""A routing sidecar as llm-d puts in front of a decode engine: encoders and a prefiller first, then the engine."""

from heliotrope_sim.sidecar.config import ECConnector, SidecarConfig
from heliotrope_sim.sidecar.server import Sidecar

__all__ = ["ECConnector", "Sidecar", "SidecarConfig"]
