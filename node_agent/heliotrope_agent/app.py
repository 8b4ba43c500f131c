"""The agent's processes put together: the agent, its watchdog, and restoring by hand.

Exit codes: 0 everything was put back; 1 something unforeseen; 3 another agent has the node; 4 somebody took over; 5 a
GPU could not be put back; 6 the file of originals cannot be read, is of a newer version, or was removed; 7 no driver.
"""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, generate_latest

from heliotrope.api.v1alpha1.nodepower import PowerIntent
from heliotrope.errors import InvalidInputError
from heliotrope_agent import memory
from heliotrope_agent.clock import boottime_s
from heliotrope_agent.control.loop import Bounds, Loop, Node
from heliotrope_agent.control.metrics import ControlMetrics
from heliotrope_agent.control.restore import Restored, devices_in_time
from heliotrope_agent.control.rules import Rules
from heliotrope_agent.driver.find import close_in_time, find_driver
from heliotrope_agent.driver.interface import Driver
from heliotrope_agent.errors import (
    AgentError,
    AnotherAgentError,
    DriverError,
    DriverMissingError,
    FencedError,
    StateError,
)
from heliotrope_agent.kube.cluster import KubeCluster
from heliotrope_agent.kube.folder import FolderCluster
from heliotrope_agent.kube.wishes import Cluster
from heliotrope_agent.manual import ManualSettings, Row, restore
from heliotrope_agent.pods.folder import GPUS, FolderOwners
from heliotrope_agent.pods.kubelet import PodResources
from heliotrope_agent.pods.owners import KubeletOwners
from heliotrope_agent.pods.processes import ProcessPods
from heliotrope_agent.settings import AgentSettings, Paths, Timing
from heliotrope_agent.state import heartbeat
from heliotrope_agent.state.boot import ProcessId, boot_id
from heliotrope_agent.state.fence import Fence
from heliotrope_agent.state.heartbeat import Heartbeat
from heliotrope_agent.state.lock import Lock, LockHolder, Role
from heliotrope_agent.state.records import Levels
from heliotrope_agent.state.store import Store
from heliotrope_agent.stopping import Stop
from heliotrope_agent.telemetry.server import MetricsServer
from heliotrope_agent.telemetry.telemetry import Telemetry
from heliotrope_agent.watchdog.watch import Watch, Watchdog

_logger = logging.getLogger(__name__)

FAREWELL_S = 2.0
"""How long the API server may take to hear that the agent has ended; everything is put back by then."""
WATCHDOG_DRAIN_S = 20.0
"""How long a watchdog that was asked to end watches an agent that has yet to put everything back."""


class Exit(IntEnum):
    """What the process says when it ends."""

    DONE = 0
    UNFORESEEN = 1
    ANOTHER_AGENT = 3
    FENCED = 4
    NOT_RESTORED = 5
    STATE = 6
    NO_DRIVER = 7


class _Followed(Cluster, Protocol):
    def start(self) -> None: ...

    def stop(self, timeout_s: float = ...) -> None: ...


def run_agent(settings: AgentSettings, rules: Rules) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code.

    Raises:
        InvalidInputError: if the settings cannot work here.
    """
    stop = Stop()
    stop.install()
    try:
        with ExitStack() as stack:
            return _run_agent(settings, rules, stop, stack)
    except AgentError as error:
        return _told(error)


def _run_agent(settings: AgentSettings, rules: Rules, stop: Stop, stack: ExitStack) -> int:
    paths, timing = settings.paths, settings.timing
    folder = paths.state
    this_boot = boot_id(paths.boot_id)
    lock = Lock(folder, Role.AGENT, time.time)
    if not rules.dry_run:
        _made(folder)
        _take(lock, stop, timing.watchdog_s, stack)
    fence = Fence(folder)

    def may_write() -> None:
        fence.check()
        lock.check()  # else it may be another agent's file

    store = Store(folder, may_write)
    path = None if rules.dry_run else folder / heartbeat.AGENT
    beats = Heartbeat(path, ProcessId.own(), this_boot, boottime_s, min(1.0, timing.look_s))
    stack.callback(lambda: None if store.records else beats.remove())
    died = heartbeat.read(folder / heartbeat.AGENT) is not None
    beats.beat()
    registry = CollectorRegistry()
    cluster = _cluster(settings, registry, stop.wake)
    driver = _driver_or_told(cluster)
    stack.callback(close_in_time, driver)
    owners = _owners(settings, driver)
    node = Node(
        driver=driver,
        owners=owners,
        cluster=cluster,
        store=store,
        heartbeat=beats,
        check=fence.check,
        watchdog=lambda: heartbeat.read(folder / heartbeat.WATCHDOG),
        boot_id=this_boot,
        clock=boottime_s,
        wall_clock=time.time,
    )
    bounds = Bounds(timing.restore_s, timing.watchdog_s, timing.defaults_s)
    loop = Loop(node, rules, ControlMetrics(registry), bounds, predecessor_died=died)
    loop.recover()
    cluster.start()
    stack.callback(cluster.stop, FAREWELL_S)
    _serve(settings, driver, owners, cluster, registry, loop, stack)
    return _follow(loop, stop, timing, lock.check)


def _follow(loop: Loop, stop: Stop, timing: Timing, check: Callable[[], None]) -> int:
    """Look until asked to end, or until `check` says that the lock is lost; then put everything back."""
    code = Exit.DONE
    while not stop.requested:
        try:
            check()
            loop.look()
        except FencedError:
            raise
        except StateError as error:
            _logger.error("%s", error)  # noqa: TRY400 - it says what happened
            code = Exit.STATE
            break
        except Exception:
            _logger.exception("the control loop failed; everything is put back")
            code = Exit.UNFORESEEN
            break
        stop.wait(timing.look_s)
    left = [each for each in loop.end() if not each.done]
    loop.farewell()
    if left:
        return Exit.NOT_RESTORED
    _logger.info("every GPU is as it was found")
    return code


def _made(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StateError(f"the state folder {folder} cannot be made: {error.strerror}") from error


def _take(lock: Lock, stop: Stop, patience_s: float, stack: ExitStack) -> None:
    """Take the lock. A watchdog or a human that restores is soon done; agents and calibrations are not waited for."""
    ends_s = boottime_s() + patience_s
    while True:
        try:
            lock.take()
        except AnotherAgentError as error:
            passing = isinstance(error.holder, LockHolder) and error.holder.role not in {Role.AGENT, Role.CALIBRATE}
            if not passing or stop.requested or boottime_s() >= ends_s:
                raise
            stop.wait(0.1)
        else:
            stack.callback(lock.release)
            return


def _cluster(settings: AgentSettings, registry: CollectorRegistry, changed: Callable[[], None]) -> _Followed:
    if settings.folder is not None:
        return FolderCluster(
            settings.folder,
            settings.node,
            lease_s=settings.folder_lease_s,
            clock=boottime_s,
            wall_clock=time.time,
            changed=changed,
        )
    return KubeCluster(
        settings.node,
        namespace=settings.namespace,
        kubeconfig=settings.kubeconfig,
        clock=boottime_s,
        unix_clock=time.time,
        changed=changed,
        registry=registry,
        instance=settings.instance,
    )


def _driver_or_told(cluster: _Followed) -> Driver:
    """The driver; where there is none the cluster hears it, not only who looks at a pod that starts again and again."""
    try:
        return find_driver()
    except DriverMissingError as error:
        cluster.start()
        cluster.event("DriverMissing", str(error), warning=True)
        cluster.stop(FAREWELL_S)
        raise


def _owners(settings: AgentSettings, driver: Driver) -> KubeletOwners | FolderOwners:
    """Who tells whose GPUs are: the kubelet, unless a folder does."""
    if settings.folder is not None and (settings.folder / GPUS).exists():
        return FolderOwners(settings.folder, driver)
    paths = settings.paths
    return KubeletOwners(driver, PodResources(paths.pod_resources), ProcessPods(paths.proc), clock=boottime_s)


def _serve(
    settings: AgentSettings,
    driver: Driver,
    owners: KubeletOwners | FolderOwners,
    cluster: Cluster,
    registry: CollectorRegistry,
    loop: Loop,
    stack: ExitStack,
) -> None:
    server = settings.server

    def intents() -> tuple[PowerIntent, ...]:
        power = cluster.wishes().node_power
        return () if power is None else power.spec.intents

    telemetry = Telemetry(
        driver,
        owners.recent_claims,
        intents,
        node_name=settings.node,
        period_s=server.sample_s,
        dcgm_names=server.dcgm_names,
        max_watts=server.max_watts,
    )
    pages = {
        "/metrics": lambda: telemetry.page() + generate_latest(registry),
        "/metrics/dcgm": telemetry.dcgm_page,
    }
    metrics = MetricsServer(server.host, server.port, pages, lambda: loop.problem() or telemetry.problem())
    try:
        metrics.start()
    except OSError as error:
        problem = f"cannot listen on {server.host}:{server.port}: {error.strerror}"
        raise InvalidInputError("--metrics-port", problem) from error
    stack.callback(metrics.stop)
    telemetry.start()
    stack.callback(telemetry.stop)
    memory.give_back()
    _logger.info("metrics are served on port %d", metrics.port)


def run_watchdog(paths: Paths, timing: Timing, resting: Levels) -> int:
    """Watch the agent until SIGTERM or SIGINT, and until it has put everything back; returns the exit code."""
    stop = Stop()
    stop.install()
    try:
        this_boot = boot_id(paths.boot_id)
        _made(paths.state)
    except AgentError as error:
        return _told(error)
    path = paths.state / heartbeat.WATCHDOG
    before = heartbeat.read(path)
    own = Heartbeat(path, ProcessId.own(), this_boot, boottime_s, min(1.0, timing.look_s))
    own.restores = 0 if before is None else before.restores
    watchdog = Watchdog(
        Watch(
            folder=paths.state,
            driver=find_driver,
            boot_id=this_boot,
            clock=boottime_s,
            wall_clock=time.time,
            silent_s=timing.watchdog_s,
            restore_s=timing.restore_s,
            defaults_s=timing.defaults_s,
            resting=resting,
        ),
        own,
    )
    _logger.info("watching the agent whose state is in %s", paths.state)
    ends_s = float("inf")
    while boottime_s() < ends_s:
        try:
            watchdog.look()
        except AgentError as error:  # of a fence that another watchdog has raised, or a disk
            _logger.warning("%s", error)
        if stop.requested and ends_s == float("inf"):
            ends_s = boottime_s() + WATCHDOG_DRAIN_S
        if stop.requested and watchdog.released():
            break
        stop.wait(timing.look_s) if not stop.requested else time.sleep(min(timing.look_s, 0.2))
    return Exit.DONE


def run_restore(settings: ManualSettings, paths: Paths) -> tuple[Row, ...]:
    """Put back by hand.

    Raises:
        AgentError: if it cannot be tried; `exit_code` says with which code to end.
    """
    if not settings.folder.is_dir() and not settings.defaults:
        raise StateError(f"{settings.folder} is not there: no agent has set anything here, or --state-folder is wrong")
    driver = find_driver()
    try:
        if devices_in_time(driver, settings.restore_s) is None and settings.defaults:
            raise DriverError("the driver does not tell which GPUs there are, so none can be put to its defaults")
        return restore(settings, driver, boot_id(paths.boot_id), time.time)
    finally:
        close_in_time(driver)


def exit_code(error: AgentError) -> Exit:
    """With which code to end for want of something."""
    match error:
        case AnotherAgentError():
            return Exit.ANOTHER_AGENT
        case FencedError():
            return Exit.FENCED
        case StateError():
            return Exit.STATE
        case DriverMissingError():
            return Exit.NO_DRIVER
        case _:
            return Exit.UNFORESEEN


def _told(error: AgentError) -> int:
    _logger.error("%s", error)
    return exit_code(error)


__all__ = ["Exit", "Restored", "Row", "exit_code", "run_agent", "run_restore", "run_watchdog"]
