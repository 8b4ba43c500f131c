"""`heliotrope operator`: reconciles RegionProfiles, CarbonPolicies and WorkloadVariants."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure

Flag = Annotated[bool, Parameter(negative="")]


def operator(
    *,
    namespaces: Annotated[tuple[str, ...], Parameter(name="--namespace", negative_iterable="")] = (),
    all_namespaces: Flag = False,
    kubeconfig: Path | None = None,
    folder: Path | None = None,
    host: str = "0.0.0.0",
    metrics_port: int = 9090,
    health_port: int = 8081,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Keep carbon signals, policies and variants of a cluster resolved, and say in their status what became of them.

    Args:
        namespaces: Serve CarbonPolicies and WorkloadVariants of this namespace; may be given several times.
        all_namespaces: Serve those of every namespace (the default).
        kubeconfig: Kubeconfig; by default the service account in a cluster, else the user's own.
        folder: Where relative paths in RegionProfiles' file sources start; without it they are refused.
        host: Address to listen on.
        metrics_port: Port of /metrics; 0 lets the system choose.
        health_port: Port of /healthz; 0 lets the system choose.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("operator"):
        from heliotrope_operator.app import run
        from heliotrope_operator.settings import OperatorSettings
    if namespaces and all_namespaces:
        raise InvalidInputError("--namespace", "give --namespace or --all-namespaces, not both")
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    settings = OperatorSettings(
        kubeconfig=kubeconfig,
        namespaces=namespaces,
        folder=folder,
        host=host,
        metrics_port=metrics_port,
        health_port=health_port,
    )
    try:
        status = run(settings)
    except OSError as error:
        raise InvalidInputError("", f"cannot start: {error}") from error
    if status:
        sys.exit(status)
