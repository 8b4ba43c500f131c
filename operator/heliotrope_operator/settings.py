"""What the operator is told at start."""

import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from heliotrope.errors import InvalidInputError
from heliotrope.providers.http import base_url
from heliotrope_operator.hub.settings import MemberSettings


def own_namespace() -> str:
    """The namespace that this process runs in: POD_NAMESPACE (downward API), else `default`."""
    return os.environ.get("POD_NAMESPACE") or "default"


def own_identity() -> str:
    """The name of this replica in the Lease: POD_NAME (downward API), else host and process."""
    return os.environ.get("POD_NAME") or f"{socket.gethostname()}-{os.getpid()}"


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """Times of the leader's Lease. A replica that cannot renew stops writing before another may start."""

    duration_s: float = 15.0
    """A standby takes over when the Lease was not renewed for this long."""
    renew_deadline_s: float = 10.0
    """The leader stops writing when it could not renew for this long."""
    retry_s: float = 2.0
    """Time between attempts to take or renew."""

    def __post_init__(self) -> None:
        """Refuse times with which two replicas could write at once.

        Raises:
            InvalidInputError: if they are not in order.
        """
        if not 0 < self.retry_s < self.renew_deadline_s < self.duration_s:
            raise InvalidInputError("lease", "times must be 0 < retry_s < renew_deadline_s < duration_s")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the operator does beside keeping statuses; each part needs rights of its own."""

    scaling: bool = False
    """Plans replicas and makes them so."""
    activation: bool = False
    """Rests idle engines and wakes them."""
    power: bool = False
    """Chooses clocks and watts, and answers demand response."""
    deferral: bool = False
    """Starts Jobs that may wait."""
    kueue: bool = False
    """Answers Kueue's AdmissionChecks for Workloads that may wait; needs `deferral`."""

    @property
    def engines(self) -> bool:
        """Whether it has to know where engines run."""
        return self.scaling or self.activation or self.power

    @property
    def granted(self) -> bool:
        """Whether it does what an administrator grants per namespace."""
        return self.engines or self.deferral


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """The server that remembers what was asked of pools."""

    url: str
    """Root of its API, without `/api/v1`."""
    secret: str | None = None
    """Name of a Secret in the operator's own namespace with the keys `token` and `ca.crt`, or one of them."""

    def __post_init__(self) -> None:
        """Refuse an address that is none.

        Raises:
            InvalidInputError: if it is none.
        """
        try:
            base_url(self.url, "")
        except InvalidInputError as error:
            raise InvalidInputError("--prometheus-url", error.problem) from None


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Everything that `heliotrope_operator.app.run` needs."""

    kubeconfig: Path | None = None
    """None: the service account in a cluster, else the user's own kubeconfig."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose CarbonPolicies and WorkloadVariants are served; empty: all."""
    namespace: str = field(default_factory=own_namespace)
    """Own namespace: holds the Lease and the ConfigMaps of carbon series."""
    identity: str = field(default_factory=own_identity)
    """Name of this replica, unique among replicas."""
    host: str = "0.0.0.0"
    metrics_port: int = 9090
    """Port of `/metrics`; 0: the system chooses, the log says."""
    health_port: int = 8081
    """Port of `/healthz`; 0: the system chooses, the log says."""
    folder: Path | None = None
    """Where relative paths of RegionProfiles' files start; None: relative paths are refused."""
    workers: int = 4
    """Objects that are reconciled at once."""
    queue_capacity: int = 50_000
    """Objects that may wait; what does not fit is found again by a resync."""
    resync_s: float = 600.0
    """Time between comparisons of everything known with the API server."""
    status_refresh_s: float = 60.0
    """Least time between two writes of a status that say nothing but newer values."""
    scale_poll_s: float = 60.0
    """Time between reads of scale targets of kinds that are not watched."""
    demand_poll_s: float = 5.0
    """Time between questions to the pickers of pools that a policy plans for."""
    prometheus: PrometheusSettings | None = None
    """Asked for the past of demand, and for demand itself while pickers are silent; None: nobody is."""
    stalled_after_s: float = 60.0
    """The liveness probe fails when nothing was reconciled for this long."""
    drain_s: float = 3.0
    """After SIGTERM, time for reconciles in progress to end."""
    lease: LeaseSettings = LeaseSettings()
    parts: Parts = Parts()
    hub: MemberSettings | None = None
    """The hub that publishes ceilings for this cluster; None: it is planned on its own."""
