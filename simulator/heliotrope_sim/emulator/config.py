"""The emulator's configuration: which engines one process serves."""

import json
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.blocks import DEFAULT_HASH_SEED
from heliotrope_sim.emulator.kv_config import KvEventsConfig, OffloadConfig
from heliotrope_sim.emulator.multimodal.config import EncoderConfig
from heliotrope_sim.emulator.transfer.config import KvTransferConfig

MAX_CONTEXT_TOKENS = 131_072


class OutputLength(BaseModel):
    """How long answers get that end by themselves: log-normal, drawn from the seed and the prompt."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    median_tokens: float = Field(default=128.0, ge=1)
    sigma: float = Field(default=0.7, ge=0, le=3)
    """Standard deviation of the logarithm; 0: always the median."""


class Role(StrEnum):
    """What an engine is there for."""

    GENERATE = "generate"
    """Prompts and answers; with `kv_transfer`, either may be another engine's part."""
    ENCODE = "encode"
    """Embeddings of images, for others."""


class GpuConfig(BaseModel):
    """The GPUs that an engine runs on, in the fake driver that NVIDIA's library is replaced with."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    uuids: tuple[str, ...] = Field(min_length=1)
    """One per accelerator of the tensor-parallel group, as the driver calls them."""

    @model_validator(mode="after")
    def _different(self) -> Self:
        if len(set(self.uuids)) < len(self.uuids):
            raise ValueError("uuids must be different GPUs")
        return self


class EngineConfig(BaseModel):
    """One emulated engine."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    name: str = Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$")
    profile: str = Field(min_length=1)
    """Name of a shipped engine profile, or the path of a profile file (*.json)."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0: any free port."""
    model: str | None = Field(default=None, min_length=1)
    """The model's name on the API; by default the profile's."""
    region: str | None = Field(default=None, min_length=1)
    """Where it is, for the reader of its state; changes nothing."""
    sm_clock_mhz: int | None = Field(default=None, gt=0)
    """SM clock at the start; by default the profile's."""
    gpu: GpuConfig | None = None
    """GPUs of a driver, whose clocks it follows and whose energy counters it moves; None: its clock is its own."""
    time_scale: float = Field(default=1.0, gt=0, le=1_000)
    """Engine seconds per wall-clock second."""
    sleep_mode: bool = True
    """Whether it has vLLM's routes for sleep; false: they are not found, as without its development mode."""
    wake_seconds: float = Field(default=0.0, ge=0, le=3_600)
    """What `/wake_up` takes, in engine seconds; until it answers the engine sleeps on."""
    max_num_seqs: int | None = Field(default=None, ge=1)
    max_num_batched_tokens: int | None = Field(default=None, ge=1)
    max_num_queued_reqs: int = Field(default=4096, ge=1)
    """Unfinished requests beyond which new ones are refused with 503."""
    max_model_len: int | None = Field(default=None, ge=2)
    """Longest prompt and answer together, in tokens; by default 131072 or what the KV memory holds."""
    output_length: OutputLength = OutputLength()
    role: Role = Role.GENERATE
    encoder: EncoderConfig | None = None
    """How it sees images; None: not at all."""
    kv_transfer: KvTransferConfig | None = None
    """How KV and embeddings come from and go to other engines; None: not at all."""
    kv_events: KvEventsConfig | None = None
    """How it tells of its KV cache; None: not at all."""
    offload: OffloadConfig | None = None
    """Where evicted KV blocks go; None: they are lost."""
    hash_seed: str = DEFAULT_HASH_SEED
    """Of the hashes of KV blocks, like PYTHONHASHSEED of vLLM; engines of one seed hash alike."""
    seed: int = 0

    @model_validator(mode="after")
    def _encodes(self) -> Self:
        if self.role is Role.ENCODE and (self.encoder is None or self.kv_transfer is None):
            raise ValueError("an engine of the role encode needs encoder and kv_transfer")
        return self

    @model_validator(mode="after")
    def _one_clock(self) -> Self:
        if self.gpu is not None and self.sm_clock_mhz is not None:
            raise ValueError("sm_clock_mhz and gpu exclude each other: the driver has the clock of its GPUs")
        return self


class EmulatorConfig(BaseModel):
    """All engines of one process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engines: tuple[EngineConfig, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [e.name for e in self.engines]
        if doubled := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(f"engine names must be unique; {', '.join(doubled)} occurs more than once")
        bound = [(e.host, e.port) for e in self.engines if e.port]
        if clashing := sorted({f"{h}:{p}" for h, p in bound if bound.count((h, p)) > 1}):
            raise ValueError(f"two engines cannot share an address; {', '.join(clashing)} occurs more than once")
        gpus = [uuid for e in self.engines if e.gpu is not None for uuid in e.gpu.uuids]
        if shared := sorted({uuid for uuid in gpus if gpus.count(uuid) > 1}):
            raise ValueError(f"two engines cannot share a GPU; {', '.join(shared)} occurs more than once")
        return self

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any]) -> Self:
        """Check a mapping as read from a file.

        Raises:
            InvalidInputError: with the path of the first wrong field.
        """
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False)[0]
            path = ".".join(str(part) for part in first["loc"])
            raise InvalidInputError(path, first["msg"].removeprefix("Value error, ")) from None

    @classmethod
    def from_file(cls, path: Path) -> Self:
        """Read a YAML or JSON file.

        Raises:
            InvalidInputError: if it cannot be read or a field is wrong.
        """
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise InvalidInputError(str(path), f"cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise InvalidInputError(str(path), f"is neither YAML nor JSON: {error}") from None
        if not isinstance(data, Mapping):
            raise InvalidInputError(str(path), "must hold a mapping with the key 'engines'")
        return cls.from_mapping(data)


def load_model(config: EngineConfig) -> EngineModel:
    """The engine model that a configuration names.

    Raises:
        InvalidInputError: if there is no such profile, or the file is not one.
    """
    if not config.profile.endswith(".json"):
        return profiles.load(config.profile)
    try:
        data = json.loads(Path(config.profile).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInputError("profile", f"{config.profile} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInputError("profile", f"{config.profile} is not JSON: {error}") from None
    if not isinstance(data, Mapping) or "model" not in data:
        raise InvalidInputError("profile", f"{config.profile} must hold a mapping with the key 'model'")
    return EngineModel.from_mapping(data["model"])


def max_model_len(config: EngineConfig, model: EngineModel) -> int:
    """The longest prompt and answer together that an engine serves.

    Raises:
        InvalidInputError: if the configured length exceeds the KV memory.
    """
    capacity = model.kv_capacity_tokens // model.block_size * model.block_size
    if config.max_model_len is None:
        return min(MAX_CONTEXT_TOKENS, capacity)
    if config.max_model_len > capacity:
        raise InvalidInputError(
            "max_model_len", f"{config.max_model_len} exceeds the KV memory of {capacity} tokens; lower it"
        )
    return config.max_model_len
