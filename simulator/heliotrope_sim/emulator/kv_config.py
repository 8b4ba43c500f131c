"""How an engine tells of its KV cache, and what is below its accelerators' memory."""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heliotrope.cache.links import DEFAULT_TIERS, Link, Tier
from heliotrope.engine.model import EngineModel
from heliotrope.units import BITS_PER_BYTE
from heliotrope_sim.engine import KvSource, Medium, TierSpec
from heliotrope_sim.engine.fixed_point import nanoseconds, picojoules


class KvEventsConfig(BaseModel):
    """vLLM's `--kv-events-config`: events about cached blocks on a ZeroMQ PUB socket."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    endpoint: str = Field(default="tcp://*:5557", min_length=1)
    """Where to publish: bound with `*`, `::`, `ipc://`, `inproc://` or port 0, else connected to, as in vLLM."""
    replay_endpoint: str | None = Field(default=None, min_length=1)
    """Where others ask for batches that they have missed; None: nowhere."""
    topic: str = ""
    """First frame of every message; llm-d expects `kv@<pod>@<model>`."""
    buffer_steps: int = Field(default=10_000, ge=1)
    """Batches kept for replay."""
    buffer_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    """Bytes kept for replay."""
    hwm: int = Field(default=100_000, ge=1)
    """Batches queued for a subscriber that does not keep up; it loses what comes after."""
    data_parallel_rank: int = Field(default=0, ge=0)
    """What every batch says of the rank that it comes from."""
    event_format: Literal["map", "array"] = "map"
    """Events as maps, as in vLLM 0.32, or as arrays, as in earlier versions."""


class TierConfig(BaseModel):
    """A tier below the accelerators' memory; by default its transfers cost what `heliotrope.cache.links` says."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    capacity_bytes: int = Field(gt=0)
    """What it holds; a block that does not fit as a whole is not stored."""
    bytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """What one transfer gets, in either direction."""
    latency_seconds: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Before the first byte moves."""
    joules_per_byte: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of reading, moving and writing, in either direction."""

    def spec(self, source: KvSource, medium: Medium, default: Link, block_bytes: int) -> TierSpec:
        """As the engine has it."""
        rate = self.bytes_per_second or default.bytes_per_second
        latency = default.latency_seconds if self.latency_seconds is None else self.latency_seconds
        per_byte = self.joules_per_byte
        if per_byte is None:
            per_byte = BITS_PER_BYTE * (
                default.network_joules_per_bit + default.sender_joules_per_bit + default.receiver_joules_per_bit
            )
        return TierSpec(
            source=source,
            medium=medium,
            capacity_blocks=self.capacity_bytes // block_bytes,
            latency_ns=nanoseconds(latency),
            ns_per_block=nanoseconds(block_bytes / rate),
            picojoules_per_block=picojoules(block_bytes * per_byte),
        )


class OffloadConfig(BaseModel):
    """Where evicted blocks go: host memory, then disk."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    cpu: TierConfig | None = None
    """Host memory."""
    disk: TierConfig | None = None
    """Local storage, behind host memory if there is both."""

    @model_validator(mode="after")
    def _somewhere(self) -> Self:
        if self.cpu is None and self.disk is None:
            raise ValueError("offload needs cpu, disk or both")
        return self

    def specs(self, model: EngineModel) -> tuple[TierSpec, ...]:
        """The tiers of an engine of this model, fastest first."""
        block_bytes = model.kv_bytes_per_token * model.block_size
        tiers = []
        if self.cpu is not None:
            tiers.append(self.cpu.spec(KvSource.HOST, Medium.CPU, DEFAULT_TIERS[Tier.CPU], block_bytes))
        if self.disk is not None:
            tiers.append(self.disk.spec(KvSource.DISK, Medium.STORAGE, DEFAULT_TIERS[Tier.DISK], block_bytes))
        return tuple(tiers)
