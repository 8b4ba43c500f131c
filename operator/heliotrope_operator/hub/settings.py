"""What hub and members are told at start."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from heliotrope.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """How a member reaches its hub."""

    url: str
    """Address of the hub, `https://host:port`."""
    name: str
    """Its own name in the hub's plan."""
    ca: Path | None = None
    """File with the authorities to trust, PEM; None: the system's."""
    token: Path | None = None
    """File with its bearer token; read anew for each request."""
    poll_s: float = 60.0
    timeout_s: float = 10.0

    def __post_init__(self) -> None:
        """Refuse an address that would send the token in the clear.

        Raises:
            InvalidInputError: naming the flag.
        """
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme == "https" and bool(parts.hostname) and not parts.query and parts.username is None
        except ValueError:
            usable = False
        if not usable:
            raise InvalidInputError("--hub-url", "must be an address such as https://hub.example.com:8443")
        if not self.name:
            raise InvalidInputError("--hub-member", "is needed: the name that this cluster has in the hub's plan")


@dataclass(frozen=True, slots=True)
class HubSettings:
    """Everything that `heliotrope_operator.hub.server.run` needs."""

    plan: Path
    """YAML with members and budgets; read again when it changes."""
    certificate: Path
    key: Path
    """TLS files, PEM; read again when they change."""
    tokens: Path | None
    """Folder with one file per member, named like it, that holds its bearer token. None: whoever reaches the port may
    read ceilings and tell needs."""
    host: str = "0.0.0.0"
    port: int = 8443
    """0: the system chooses, the log says."""
    metrics_port: int = 9090
    valid_s: float = 600.0
    """How long published ceilings hold, and told needs count."""
    refresh_s: float = 5.0
    """Time between looks at the files."""

    def __post_init__(self) -> None:
        """Refuse times that make no sense.

        Raises:
            InvalidInputError: naming the flag.
        """
        if not 30.0 <= self.valid_s <= 86_400.0:
            raise InvalidInputError("--valid-seconds", "must be from 30 to 86400")
