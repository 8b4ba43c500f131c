"""`heliotrope restore`: puts replicas and ceilings back as they were before Heliotrope changed them."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure
from heliotrope_cli.output import show

DEFAULT_NAMESPACE = "heliotrope-system"

Flag = Annotated[bool, Parameter(negative="")]


def restore(
    *,
    namespaces: Annotated[tuple[str, ...], Parameter(name="--namespace", negative_iterable="")] = (),
    operator_namespace: str | None = None,
    stop: str | None = None,
    resources: Annotated[tuple[str, ...], Parameter(name="--resource", negative_iterable="")] = (),
    dry_run: Flag = False,
    kubeconfig: Path | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "warning",
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Put replicas and ceilings back as they were before Heliotrope changed them, and start the Jobs that wait for it.

    It needs no running operator.

    A field that somebody else has set meanwhile keeps its value. An operator that runs does all this itself when a
    policy goes; this command is for when it is gone, or about to go.

    Args:
        namespaces: Look in this namespace; may be given several times. By default in all.
        operator_namespace: Namespace of the operator that made the changes; by default POD_NAMESPACE, else
            heliotrope-system.
        stop: Name of the operator's Deployment, which is scaled to zero first.
        resources: A further kind with /scale, as plural.version.group, beside Deployments, StatefulSets,
            LeaderWorkerSets, HorizontalPodAutoscalers and ScaledObjects; may be given several times.
        dry_run: Say what would be put back and change nothing.
        kubeconfig: Kubeconfig; by default the service account in a cluster, else the user's own.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("operator"):
        from heliotrope_operator.actuation.restore import RestoreSettings
        from heliotrope_operator.actuation.restore import restore as run
        from heliotrope_operator.deferral.release import release
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    settings = RestoreSettings(
        operator_namespace=operator_namespace or os.environ.get("POD_NAMESPACE") or DEFAULT_NAMESPACE,
        kubeconfig=kubeconfig,
        namespaces=namespaces,
        resources=resources,
        stop=stop,
        dry_run=dry_run,
    )
    done = asyncio.run(run(settings, [release]))
    if not done:
        show([f"the operator of namespace {settings.operator_namespace} holds nothing"], [])
        return
    table = Table("Namespace", "Object", "Field", "Was", "Is" if not dry_run else "Would be", "Result", box=None)
    for each in done:
        table.add_row(
            each.where.namespace,
            f"{each.where.resource.kind}/{each.where.name}",
            each.where.path,
            _shown(each.before),
            _shown(each.after),
            each.result.value,
        )
    failed = [each for each in done if each.problem]
    show([f"{each.where}: {each.problem}" for each in failed], [table])
    if failed:
        sys.exit(1)


def _shown(value: int | None) -> str:
    return "unset" if value is None else str(value)
