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
    scaling: bool = True,
    activation: bool = True,
    power: bool = True,
    deferral: bool = True,
    kueue: bool = False,
    hub_url: str | None = None,
    hub_member: str = "",
    hub_ca: Path | None = None,
    hub_token: Path | None = None,
    prometheus_url: str | None = None,
    prometheus_secret: str | None = None,
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
        scaling: Plan replicas, and set them where a policy says so and its namespace is granted it.
        activation: Rest idle engines and wake them, in the same way.
        power: Choose clocks and watts and answer demand response, in the same way.
        deferral: Start opted-in Jobs in clean hours.
        kueue: Answer Kueue's AdmissionChecks of the controller heliotrope.io/deferral, too.
        hub_url: Address of a hub that publishes ceilings for this cluster, `https://host:port`; without it the cluster
            is planned on its own.
        hub_member: Name of this cluster in the hub's plan.
        hub_ca: File with the authorities to trust for the hub, PEM; by default the system's.
        hub_token: File with the bearer token of this cluster; read anew for each request.
        prometheus_url: Root of a Prometheus API that scrapes the pickers. It is asked for the past of demand, and for
            demand itself while pickers do not answer; without it a new operator knows no past.
        prometheus_secret: Secret in the operator's own namespace with the keys `token` (bearer token) and `ca.crt`
            (authorities to trust), or one of them.
        host: Address to listen on.
        metrics_port: Port of /metrics; 0 lets the system choose.
        health_port: Port of /healthz; 0 lets the system choose.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("operator"):
        from heliotrope_operator.app import run
        from heliotrope_operator.hub.settings import MemberSettings
        from heliotrope_operator.settings import OperatorSettings, Parts, PrometheusSettings
    if namespaces and all_namespaces:
        raise InvalidInputError("--namespace", "give --namespace or --all-namespaces, not both")
    if prometheus_secret is not None and prometheus_url is None:
        raise InvalidInputError("--prometheus-secret", "is of use with --prometheus-url only")
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    settings = OperatorSettings(
        kubeconfig=kubeconfig,
        namespaces=namespaces,
        folder=folder,
        host=host,
        metrics_port=metrics_port,
        health_port=health_port,
        parts=Parts(scaling=scaling, activation=activation, power=power, deferral=deferral, kueue=kueue),
        prometheus=None if prometheus_url is None else PrometheusSettings(prometheus_url, prometheus_secret),
        hub=None if hub_url is None else MemberSettings(hub_url, hub_member, ca=hub_ca, token=hub_token),
    )
    try:
        status = run(settings)
    except OSError as error:
        raise InvalidInputError("", f"cannot start: {error}") from error
    if status:
        sys.exit(status)
