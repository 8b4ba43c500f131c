"""Places and limits of one picker process; its behaviour lives in the configuration file and the resources."""

from dataclasses import dataclass, field
from pathlib import Path

from heliotrope_epp.datalayer.resources import PoolRef
from heliotrope_epp.director.director import DirectorSettings
from heliotrope_epp.learning.settings import LearningSettings
from heliotrope_epp.ledger.settings import LedgerSettings
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.plugins.models.settings import ModelSettings
from heliotrope_epp.plugins.sessions.settings import SessionSettings
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.transport.interface import Limits, Tls


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Resources and endpoints from the Kubernetes API."""

    pool: PoolRef
    kubeconfig: Path | None = None
    """None: in the cluster its service account, else the user's default."""


@dataclass(frozen=True, slots=True)
class EppSettings:
    """Settings of a picker; exactly one of `folder` and `kubernetes` is given."""

    folder: Path | None = None
    """Resources and endpoints from a watched folder of YAML files."""
    secrets_folder: Path | None = None
    """Keys of carbon sources as files, for RegionProfiles in `folder`."""
    kubernetes: KubernetesSettings | None = None
    config_text: str = ""
    """An EndpointPickerConfig; empty for llm-d's default."""
    host: str = "0.0.0.0"
    grpc_port: int = 9002
    health_port: int = 9003
    metrics_port: int = 9090
    tls: Tls | None = None
    refresh_metrics_interval_s: float = 0.2
    director: DirectorSettings = field(default_factory=DirectorSettings)
    limits: Limits = field(default_factory=Limits)
    tracing: TracingSettings = field(default_factory=TracingSettings)
    learning: LearningSettings | None = None
    """None: every estimate is analytic."""
    sessions: SessionSettings | None = field(default_factory=SessionSettings)
    """None: no session is followed."""
    models: ModelSettings = field(default_factory=ModelSettings)
    """How quality is predicted for policies that opt into other models."""
    metering: MeteringSettings = field(default_factory=MeteringSettings)
    ledger: LedgerSettings | None = None
    """None: energy is counted in metrics only."""
    decision_log_size: int = 1_000
    home_region: str | None = None
    """Where this picker runs; network times to other regions count from there."""
    drain_seconds: float = 5.0
    """After SIGTERM: how long to keep serving while gateways look elsewhere."""
    grace_seconds: float = 25.0
    """Then: how long requests in flight may take to end."""
