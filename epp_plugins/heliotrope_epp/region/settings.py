"""Places and limits of one process of the region tier."""

from dataclasses import dataclass, field
from pathlib import Path

from heliotrope_epp.plugins.sessions.settings import SessionSettings
from heliotrope_epp.region.config import RegionTier
from heliotrope_epp.settings import KubernetesSettings
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.transport.interface import Limits, Tls


@dataclass(frozen=True, slots=True)
class RegionSettings:
    """Settings of a region scheduler; exactly one of `folder` and `kubernetes` is given, for policy and regions."""

    tier: RegionTier
    folder: Path | None = None
    secrets_folder: Path | None = None
    """Keys of carbon sources as files, for RegionProfiles in `folder`."""
    kubernetes: KubernetesSettings | None = None
    host: str = "0.0.0.0"
    grpc_port: int = 9002
    health_port: int = 9003
    metrics_port: int = 9090
    tls: Tls | None = None
    max_inflight: int = 8_000
    """Requests that wait or are routed, at once; more get a 429."""
    limits: Limits = field(default_factory=Limits)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    sessions: SessionSettings | None = field(default_factory=SessionSettings)
    """None: no session is followed."""
    drain_seconds: float = 5.0
    grace_seconds: float = 25.0
