"""`heliotrope hub`: publishes what each of several clusters may use in each region."""

import sys
from pathlib import Path
from typing import Literal

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure


def hub(
    *,
    plan: Path,
    tls_cert: Path,
    tls_key: Path,
    tokens: Path | None = None,
    valid_seconds: float = 600.0,
    host: str = "0.0.0.0",
    port: int = 8443,
    metrics_port: int = 9090,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Share regional budgets out over clusters, and publish to each its ceilings over HTTPS.

    Start operators with --hub-url=https://HOST:PORT --hub-member=NAME. They tell what they need and pull their
    ceilings; while the hub is away the last ones hold until they expire, then each cluster plans on its own. The hub
    needs no cluster and changes none.

    Args:
        plan: YAML file with members and budgets (docs/authority.md); read again when it changes.
        tls_cert: Certificate chain, PEM; read again when it changes.
        tls_key: Its key, PEM.
        tokens: Folder with one file per member, named like it, that holds its bearer token. Without it whoever reaches
            the port may read ceilings and tell needs.
        valid_seconds: How long published ceilings hold, and told needs count.
        host: Address to listen on.
        port: Port of the ceilings; 0 lets the system choose.
        metrics_port: Port of /metrics; 0 lets the system choose.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("operator"):
        from heliotrope_operator.hub.server import run
        from heliotrope_operator.hub.settings import HubSettings
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    settings = HubSettings(
        plan=plan,
        certificate=tls_cert,
        key=tls_key,
        tokens=tokens,
        valid_s=valid_seconds,
        host=host,
        port=port,
        metrics_port=metrics_port,
    )
    try:
        status = run(settings)
    except OSError as error:
        raise InvalidInputError("", f"cannot start: {error}") from error
    if status:
        sys.exit(status)
