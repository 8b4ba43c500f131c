"""An emulated vLLM: the OpenAI API, metrics and energy of an engine without its weights."""

from heliotrope_sim.emulator.config import EmulatorConfig, EngineConfig, OutputLength
from heliotrope_sim.emulator.faults import Fault, FaultKind
from heliotrope_sim.emulator.server import Emulator, ServedEngine

__all__ = ["Emulator", "EmulatorConfig", "EngineConfig", "Fault", "FaultKind", "OutputLength", "ServedEngine"]
