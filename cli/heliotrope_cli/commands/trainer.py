"""`heliotrope trainer`: one place where several pickers learn together."""

import dataclasses
import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure

Flag = Annotated[bool, Parameter(negative="")]


def trainer(
    *,
    host: str = "0.0.0.0",
    port: int = 8000,
    metrics_port: int = 9090,
    state_dir: Path | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
    announce: Flag = False,
) -> None:
    """Learn latency and energy from the requests of several pickers, and give all of them the same models.

    Start pickers with --trainer-url=http://HOST:PORT. They send what they measured about once a second and fetch a
    model when there is a better one; while the trainer is away they keep serving with the model they have. It speaks
    plain HTTP and trusts who reaches it: let only pickers reach --port, and leave TLS to the mesh.

    Args:
        host: Address to listen on.
        port: Port of the samples and models; 0 lets the system choose.
        metrics_port: Port of /metrics, /healthz and /readyz alone; 0 lets the system choose.
        state_dir: Folder for samples and models, so that they survive a restart; without it they live in memory.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
        announce: Print one JSON line with the ports on standard output once samples are taken.
    """
    with needs("epp"):
        from heliotrope_epp.learning.service import TrainerPorts, run
        from heliotrope_epp.learning.settings import TrainerSettings
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    settings = TrainerSettings(host=host, port=port, metrics_port=metrics_port, state_dir=state_dir)

    def print_ports(ports: TrainerPorts) -> None:
        print(json.dumps(dataclasses.asdict(ports)), flush=True)

    try:
        run(settings, print_ports if announce else None)
    except OSError as error:
        raise InvalidInputError("", f"cannot start: {error}") from error
