"""How an engine takes KV from other engines and holds it for them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from heliotrope.cache.links import DEFAULT_LINKS, Link, LinkClass, Place, link_class


class KvRole(StrEnum):
    """vLLM's `kv_role`."""

    PRODUCER = "kv_producer"
    CONSUMER = "kv_consumer"
    BOTH = "kv_both"


class LoadFailurePolicy(StrEnum):
    """vLLM's `kv_load_failure_policy`: what becomes of a request whose KV does not come."""

    FAIL = "fail"
    RECOMPUTE = "recompute"


class LinkConfig(BaseModel):
    """A link in place of the default one of its class."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes_per_second: float = Field(gt=0, allow_inf_nan=False)
    latency_seconds: float = Field(ge=0, allow_inf_nan=False)
    network_joules_per_bit: float = Field(ge=0, allow_inf_nan=False)
    sender_joules_per_bit: float = Field(ge=0, allow_inf_nan=False)
    receiver_joules_per_bit: float = Field(ge=0, allow_inf_nan=False)

    def link(self) -> Link:
        """As the library has it."""
        return Link(**self.model_dump())


class KvTransferConfig(BaseModel):
    """vLLM's `--kv-transfer-config`, as far as an emulated engine has use for it, and where the engine is."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kv_role: KvRole = KvRole.BOTH
    engine_id: str | None = Field(default=None, min_length=1, max_length=253)
    """None: a new one at each start, as in vLLM."""
    kv_load_failure_policy: LoadFailurePolicy = LoadFailurePolicy.FAIL
    kv_lease_duration: float = Field(default=30.0, gt=0, le=86_400)
    """Seconds of engine time for which blocks are held, or held on after the reader last gave a sign."""
    kv_recompute_threshold: int = Field(default=0, ge=0)
    """Fewer tokens than this are computed rather than pulled."""
    handshake_timeout_seconds: float = Field(default=5.0, gt=0, le=600)
    """Wall-clock seconds that another engine has for an answer."""
    advertised_host: str | None = Field(default=None, min_length=1, max_length=253)
    """Where others reach it; None: the address that it listens on."""
    node: str | None = Field(default=None, min_length=1)
    rack: str | None = Field(default=None, min_length=1)
    links: Mapping[LinkClass, LinkConfig] = Field(default_factory=dict)
    """In place of the defaults of `heliotrope.cache.links`."""
    unknown_link: LinkClass = LinkClass.REGION
    """The class where nobody says where one of the engines is."""

    @model_validator(mode="after")
    def _produces_or_consumes(self) -> Self:
        if self.kv_role is KvRole.PRODUCER and self.kv_recompute_threshold:
            raise ValueError("kv_recompute_threshold is for engines that pull; kv_producer does not")
        return self

    @property
    def produces(self) -> bool:
        """Whether it holds blocks for others."""
        return self.kv_role is not KvRole.CONSUMER

    @property
    def consumes(self) -> bool:
        """Whether it pulls."""
        return self.kv_role is not KvRole.PRODUCER

    def link_between(self, here: Place, there: Place) -> tuple[LinkClass, Link]:
        """The link to an engine."""
        known = link_class(here, there) or self.unknown_link
        configured = self.links.get(known)
        return known, DEFAULT_LINKS[known] if configured is None else configured.link()
