"""The continuous-batching engine as a deterministic state machine: no clock, no I/O, no asyncio."""

from heliotrope_sim.engine.encoder import Encoder, EncoderCosts
from heliotrope_sim.engine.images import ImageInput
from heliotrope_sim.engine.kv_events import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent, Medium
from heliotrope_sim.engine.loop import Engine
from heliotrope_sim.engine.results import BlockTransfers, Counters, ExternalCounters, Phase, SleepLevel, StepResult
from heliotrope_sim.engine.sequence import ExternalKv, KvSource, Request, Sequence, Status
from heliotrope_sim.engine.tiers import TierSpec

__all__ = [
    "AllBlocksCleared",
    "BlockTransfers",
    "BlocksRemoved",
    "BlocksStored",
    "Counters",
    "Encoder",
    "EncoderCosts",
    "Engine",
    "ExternalCounters",
    "ExternalKv",
    "ImageInput",
    "KvEvent",
    "KvSource",
    "Medium",
    "Phase",
    "Request",
    "Sequence",
    "SleepLevel",
    "Status",
    "StepResult",
    "TierSpec",
]
