"""What a sidecar is told at its start."""

from enum import StrEnum
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from heliotrope_sim.sidecar.endpoint import host_of, is_host_port


class ECConnector(StrEnum):
    """How embeddings come from an encoder to the engine that needs them."""

    NIXL = "ec-nixl"
    """The encoder's `ec_transfer_params` travel with the request; the engine pulls."""
    EXAMPLE = "ec-example"
    """The encoder is only asked; engine and encoder share storage."""


class SidecarConfig(BaseModel):
    """One sidecar. Names and defaults are llm-d's (`pd-sidecar`) where it has the setting."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decoder_url: str = Field(pattern=r"^http://[^/]+$")
    """The engine behind it."""
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65_535)
    """0: any free port."""
    ec_connector: ECConnector | None = None
    """None: headers that name encoders are ignored."""
    enable_p2p_pull: bool = False
    """Whether the header that names a KV cache source is honoured."""
    p2p_connector_port: int | None = Field(default=None, ge=1, le=65_535)
    """The port at which KV cache sources serve their blocks; None: the one that the header names."""
    allowed_targets: frozenset[str] | None = None
    """Hosts, or hosts with port, that headers may name; None: any."""
    prefill_max_retries: int = Field(default=0, ge=0, le=10)
    """Further attempts after 502, 503 or 504."""
    prefill_retry_backoff_seconds: float = Field(default=0.1, ge=0, le=60)
    prefill_fallback: bool = False
    """Serve a request locally when its prefiller fails; llm-d's sidecar passes the prefiller's error on."""
    connect_timeout_seconds: float = Field(default=5.0, gt=0)
    prefill_timeout_seconds: float = Field(default=600.0, gt=0)
    """Longest wait for a prefiller's or an encoder's whole answer."""

    @field_validator("allowed_targets")
    @classmethod
    def _targets(cls, targets: frozenset[str] | None) -> frozenset[str] | None:
        if targets is not None and "" in targets:
            raise ValueError("an allowed target must be a host or a host with port")
        return targets

    @classmethod
    def named(cls, targets: str | None) -> frozenset[str] | None:
        """The targets of a comma-separated list; None stays None."""
        return None if targets is None else frozenset(t.strip() for t in targets.split(",") if t.strip())

    def allows(self, target: str) -> bool:
        """Whether a header may name this host and port."""
        allowed = self.allowed_targets
        return allowed is None or (is_host_port(target) and (target in allowed or host_of(target) in allowed))

    def with_port(self, port: int) -> Self:
        """The same sidecar on another port."""
        return self.model_copy(update={"port": port})
