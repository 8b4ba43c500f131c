"""The watchdog of one process: `python -m heliotrope_agent.watchdog.guard`, which a calibration starts for itself.

It lives as long as that process holds the node, and until everything is put back. Signals that end a session do not end
it, since they come to both; whoever has put everything back kills it.
"""

import argparse
import logging
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from heliotrope_agent.clock import boottime_s
from heliotrope_agent.driver.find import find_driver
from heliotrope_agent.errors import AgentError
from heliotrope_agent.state import heartbeat
from heliotrope_agent.state.boot import ProcessId, boot_id, lives, pid_namespace
from heliotrope_agent.state.heartbeat import Heartbeat
from heliotrope_agent.state.records import Levels
from heliotrope_agent.watchdog.watch import Watch, Watchdog

READY = b"ready\n"
"""Said on standard output once it watches."""
DONE, LEFT = 0, 5
LOOK_S = 0.5
TRIES_S = 600.0
"""How long it goes on after that process is gone; what cannot be put back by then takes a person."""
RESTORE_S = 10.0
DEFAULTS_S = 60.0

_logger = logging.getLogger(__name__)


def guard(
    watchdog: Watchdog,
    process: ProcessId,
    folder: Path,
    *,
    look_s: float,
    tries_s: float = TRIES_S,
    clock: Callable[[], float] = boottime_s,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Watch until that process has ended and everything is put back, or somebody else has the node.

    Args:
        watchdog: of the folder.
        process: which is guarded.
        folder: the state folder.
        look_s: between two looks.
        tries_s: how long to go on once the process is gone.
        clock: monotonic seconds.
        sleep: waits.

    Returns:
        DONE, or LEFT if something is left that could not be put back.
    """
    gone_s: float | None = None
    while True:
        try:
            watchdog.look()
        except AgentError as error:  # of a fence that another watchdog has raised, or a disk
            _logger.warning("%s", error)
        beat = heartbeat.read(folder / heartbeat.AGENT)
        if beat is not None and beat.process != process:
            return DONE  # whoever has the node now has put back what it found
        if not lives(process):
            gone_s = clock() if gone_s is None else gone_s
            if watchdog.released():
                return DONE
            if clock() - gone_s > tries_s:
                _logger.error("GPUs are left changed: run heliotrope agent --restore")
                return LEFT
        sleep(look_s)


def main(arguments: list[str]) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="heliotrope_agent.watchdog.guard")
    parser.add_argument("folder", type=Path)
    parser.add_argument("pid", type=int)
    parser.add_argument("start_ticks", type=int)
    parser.add_argument("silent_s", type=float)
    parser.add_argument("--original-mhz", type=int)
    given = parser.parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)-7s %(message)s")
    this_boot = boot_id()
    look_s = min(LOOK_S, given.silent_s / 4.0)
    watchdog = Watchdog(
        Watch(
            folder=given.folder,
            driver=find_driver,
            boot_id=this_boot,
            clock=boottime_s,
            wall_clock=time.time,
            silent_s=given.silent_s,
            restore_s=RESTORE_S,
            defaults_s=DEFAULTS_S,
            resting=Levels(sm_clock_mhz=given.original_mhz),
        ),
        Heartbeat(None, ProcessId.own(), this_boot, boottime_s, 1.0),
    )
    sys.stdout.buffer.write(READY)
    sys.stdout.buffer.flush()
    process = ProcessId(given.pid, given.start_ticks, pid_namespace())
    return guard(watchdog, process, given.folder, look_s=look_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
