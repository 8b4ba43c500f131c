"""`heliotrope agent`: puts a NodePower's clocks and watts into effect on the GPUs of one node, and always restores."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from heliotrope.errors import InvalidInputError
from heliotrope_cli.commands.extras import needs
from heliotrope_cli.logs import configure
from heliotrope_cli.output import show

if TYPE_CHECKING:
    from heliotrope_agent.manual import Row
    from heliotrope_agent.state.records import Levels

Flag = Annotated[bool, Parameter(negative="")]


def agent(
    *,
    node: str | None = None,
    watchdog: Flag = False,
    restore: Flag = False,
    force: Flag = False,
    defaults: Flag = False,
    dry_run: Flag = False,
    require_watchdog: Flag = False,
    state_folder: Path = Path("/var/lib/heliotrope"),
    folder: Path | None = None,
    folder_lease_seconds: float = 0.0,
    kubeconfig: Path | None = None,
    namespace: str | None = None,
    pod_resources: Path = Path("/var/lib/kubelet/pod-resources/kubelet.sock"),
    proc: Path = Path("/proc"),
    boot_id: Path = Path("/proc/sys/kernel/random/boot_id"),
    original_sm_clock_mhz: int | None = None,
    original_memory_clock_mhz: int | None = None,
    look_seconds: float = 1.0,
    watchdog_seconds: float = 15.0,
    restore_seconds: float = 10.0,
    defaults_seconds: float = 60.0,
    lower_dwell_seconds: float = 60.0,
    raise_dwell_seconds: float = 1.0,
    gpu_changes_per_hour: int = 60,
    node_changes_per_minute: int = 256,
    unknown_owner_seconds: float = 600.0,
    foreign_hold_seconds: float = 600.0,
    retry_seconds: float = 5.0,
    host: str = "0.0.0.0",
    metrics_port: int = 9410,
    sample_seconds: float = 1.0,
    max_watts: float = 2_000.0,
    dcgm_names: bool = True,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] = "text",
) -> None:
    """Set the clocks and power limits of this node's GPUs as its NodePower says, and put them back whenever in doubt.

    Run as root, or with CAP_SYS_ADMIN: the driver lets nobody else set clocks. --watchdog and --restore run in its
    place: the watchdog beside it, restoring when nothing runs.

    Exit codes: 0 everything was put back; 1 something unforeseen; 3 another agent has the node; 4 the watchdog or a
    human took over; 5 a GPU could not be put back; 6 the file of originals cannot be read, or was removed
    under a running agent; 7 there is no driver.

    Args:
        node: Name of this node, and of its NodePower; by default NODE_NAME.
        watchdog: Watch the agent of this node, and put everything back when it hangs or has died.
        restore: Put back what an agent has left, print what became of it, and end.
        force: With --restore, take over from an agent that runs; it ends.
        defaults: With --restore, put every GPU to its driver's defaults, whatever the file of originals says.
        dry_run: Change nothing: say what would be set, or put back. Needs no other rights than reading.
        require_watchdog: Set nothing new while the watchdog gives no sign of life.
        state_folder: Folder of originals and signs of life, on the node's disk; agent and watchdog share it.
        folder: Folder with the NodePower as a YAML file, in place of a cluster; with a file gpus.yaml it also says
            which pod has which GPU (docs/agent.md).
        folder_lease_seconds: With --folder, how long a change of its file `lease` keeps wishes alive; 0: they need no
            lease.
        kubeconfig: Kubeconfig; by default the service account in a cluster, else the user's own.
        namespace: The operator's namespace, where its Lease is; by default POD_NAMESPACE, else heliotrope-system.
        pod_resources: The kubelet's socket that tells which pods have which GPUs.
        proc: The node's own /proc.
        boot_id: File with the id of this boot.
        original_sm_clock_mhz: Lock of SM clocks that this node's GPUs have at rest; by default none.
        original_memory_clock_mhz: The same of memory clocks.
        look_seconds: Time between two looks; a new wish is seen at once.
        watchdog_seconds: Without a sign of life for so long the agent counts as dead or hung, and so does the watchdog.
        restore_seconds: How long the driver may take to put everything back.
        defaults_seconds: How long to find out whose GPUs are when the file of originals is lost; then all but
            partitioned ones go to their driver's defaults.
        lower_dwell_seconds: A GPU is slowed down or capped no sooner after its last change.
        raise_dwell_seconds: It is made faster no sooner than this. Putting back never waits.
        gpu_changes_per_hour: Times that a GPU is slowed down or capped in an hour.
        node_changes_per_minute: The same of all GPUs together in a minute.
        unknown_owner_seconds: What is set stays so long while nobody tells whose a GPU is.
        foreign_hold_seconds: A GPU that somebody else sets too is left alone for so long.
        retry_seconds: After a failure a pod's GPUs are tried again; each further failure doubles the wait, up to 5 min.
        host: Address to listen on.
        metrics_port: Port of /metrics and /healthz; 0 lets the system choose.
        sample_seconds: Time between two samples of energy, 0.1 to 1.
        max_watts: A counter of energy that rises faster is not believed.
        dcgm_names: Show DCGM's names on /metrics beside our own; /metrics/dcgm always has them.
        log_level: Least severe level to log.
        log_format: One JSON object a line, or text for people.
    """
    with needs("agent"):
        from heliotrope_agent import app, settings
        from heliotrope_agent.control.rules import Rules
        from heliotrope_agent.errors import AgentError
        from heliotrope_agent.manual import ManualSettings
        from heliotrope_agent.state.records import Levels
    if watchdog and restore:
        raise InvalidInputError("--watchdog", "give --watchdog or --restore, not both")
    for name, given in (("--force", force), ("--defaults", defaults)):
        if given and not restore:
            raise InvalidInputError(name, "is for --restore")
    if dry_run and watchdog:
        raise InvalidInputError("--dry-run", "is for the agent and for --restore")
    configure(log_level, as_json=log_format == "json", stream=sys.stderr)
    paths = settings.Paths(state_folder, pod_resources, proc, boot_id)
    timing = settings.Timing(look_seconds, watchdog_seconds, restore_seconds, defaults_seconds)
    resting = Levels(original_sm_clock_mhz, original_memory_clock_mhz)
    if restore:
        manual = ManualSettings(state_folder, force, dry_run, defaults, restore_seconds, resting)
        try:
            rows = app.run_restore(manual, paths)
        except AgentError as error:
            show([f"heliotrope: {error}"], [])
            sys.exit(app.exit_code(error))
        _show(rows, dry_run=dry_run)
        sys.exit(app.Exit.NOT_RESTORED if any(_failed(each) for each in rows) else app.Exit.DONE)
    if watchdog:
        sys.exit(app.run_watchdog(paths, timing, resting))
    own = settings.AgentSettings(
        node=settings.own_node() if node is None else node,
        namespace=settings.own_namespace() if namespace is None else namespace,
        kubeconfig=kubeconfig,
        folder=folder,
        folder_lease_s=folder_lease_seconds,
        paths=paths,
        timing=timing,
        server=settings.Server(host, metrics_port, dcgm_names, sample_seconds, max_watts),
    )
    rules = Rules(
        lower_dwell_s=lower_dwell_seconds,
        raise_dwell_s=raise_dwell_seconds,
        gpu_changes_per_hour=gpu_changes_per_hour,
        node_changes_per_minute=node_changes_per_minute,
        unknown_owner_s=unknown_owner_seconds,
        foreign_hold_s=foreign_hold_seconds,
        retry_first_s=retry_seconds,
        original_sm_clock_mhz=original_sm_clock_mhz,
        original_memory_clock_mhz=original_memory_clock_mhz,
        require_watchdog=require_watchdog,
        dry_run=dry_run,
    )
    sys.exit(app.run_agent(own, rules))


def _failed(row: "Row") -> bool:
    return row.restored is not None and not row.restored.done


def _show(rows: "tuple[Row, ...]", *, dry_run: bool) -> None:
    if not rows:
        show(["no GPU of this node is set by Heliotrope"], [])
        return
    table = Table("GPU", "Pod", "Set to", "Put back to" if not dry_run else "Would be put back to", "Result", box=None)
    for each in rows:
        result = "dry run" if each.restored is None else each.restored.result.value
        table.add_row(each.uuid, each.pod or "-", _levels(each.was, each), _levels(each.back, each), result)
    problems = [
        f"{each.uuid}: {each.restored.problem}" for each in rows if each.restored is not None and each.restored.problem
    ]
    show(problems, [table])


def _levels(levels: "Levels", row: "Row") -> str:
    """The knobs that were touched, each with its unit."""
    words = {"smClock": "SM", "memoryClock": "memory", "powerLimit": "limit"}
    parts = []
    for knob in sorted(row.touched):
        level = levels.of(knob)
        if knob.value == "powerLimit":
            parts.append("" if level is None else f"{words[knob]} {level / 1000:g} W")
        else:
            parts.append(f"{words[knob]} " + ("unlocked" if level is None else f"{level} MHz"))
    return ", ".join(each for each in parts if each) or "-"
