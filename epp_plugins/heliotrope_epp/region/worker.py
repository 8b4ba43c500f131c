"""The solver's process: takes windows from standard input one by one and writes assignments to standard output.

It is started as `python -m heliotrope_epp.region.worker PARENT_PID` by `heliotrope_epp.region.solver`. What a scheduler
remembers from window to window lives here, and is gone with the process.
"""

import os
import sys
import time
from collections.abc import Mapping
from typing import Any, BinaryIO

from heliotrope.place.assignment import Scheduler
from heliotrope_epp.learning.child import die_with_parent
from heliotrope_epp.region.wire import LENGTH_BYTES, READY, Job, Solved, job_from_bytes, solved_to_bytes


def main() -> None:
    """Serve until the other end closes."""
    die_with_parent(int(sys.argv[1]))
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # A library that prints would spoil the frames.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Here, so that a process whose parent is gone never loads the libraries.
    from heliotrope_epp.region.schedulers import schedulers
    from heliotrope_epp.region.warm_up import warm_up_solvers

    known = schedulers()
    warm_up_solvers(known)
    output.write(solved_to_bytes(Solved(READY, 0.0, None)))
    output.flush()
    serve(sys.stdin.buffer, output, known)


def serve(source: BinaryIO, sink: BinaryIO, schedulers: Mapping[str, Scheduler]) -> None:
    """Answer every job in turn."""
    memory: dict[str, tuple[tuple[str, ...], Any]] = {}
    while True:
        head = source.read(LENGTH_BYTES)
        if len(head) < LENGTH_BYTES:
            return
        body = source.read(int.from_bytes(head, "big"))
        sink.write(solved_to_bytes(_solved(job_from_bytes(body), schedulers, memory)))
        sink.flush()


def _solved(job: Job, schedulers: Mapping[str, Scheduler], memory: dict[str, tuple[tuple[str, ...], Any]]) -> Solved:
    """The scheduler's memory holds for the regions that it was made with."""
    started_s = time.perf_counter()
    names, before = memory.get(job.scheduler, ((), None))
    remembered = before if names == job.regions.names else None
    try:
        assignment = schedulers[job.scheduler](job.window, job.regions, job.policy, job.now_unix_s, remembered)
    except Exception as error:  # noqa: BLE001 - whatever a solver raises, the window is decided without it
        memory.pop(job.scheduler, None)
        return Solved(job.number, time.perf_counter() - started_s, None, f"{type(error).__name__}: {error}"[:500])
    memory[job.scheduler] = (job.regions.names, assignment.memory)
    return Solved(job.number, time.perf_counter() - started_s, assignment)


if __name__ == "__main__":
    main()
