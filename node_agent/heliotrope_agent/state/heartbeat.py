"""Signs of life that the agent and its watchdog leave for each other in the state folder.

They are written over each other in place: that needs no new block, so a full disk does not look like a dead process. A
checksum tells a reader that came in the middle.
"""

import contextlib
import json
import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heliotrope_agent.state.boot import ProcessId
from heliotrope_agent.state.files import read_text

AGENT = "heartbeat"
WATCHDOG = "watchdog"
_BYTES = 512


@dataclass(frozen=True, slots=True)
class Beat:
    """The last sign of life of a process."""

    process: ProcessId
    at_s: float
    """On the clock of `heliotrope_agent.clock`."""
    boot_id: str
    restores: int = 0
    """GPUs that this process has put back in another's place, ever."""

    def age_s(self, now_s: float, boot_id: str) -> float:
        """How long ago; infinite if it is of another boot."""
        return now_s - self.at_s if boot_id == self.boot_id else float("inf")


class Heartbeat:
    """Writes one process's signs of life, at most every `every_s`."""

    def __init__(
        self, path: Path | None, process: ProcessId, boot_id: str, clock: Callable[[], float], every_s: float
    ) -> None:
        """A process that nobody has to watch has no `path`."""
        self._path = path
        self._process = process
        self._boot_id = boot_id
        self._clock = clock
        self._every_s = every_s
        self._last_s = float("-inf")
        self.restores = 0

    def beat(self) -> None:
        """Leave a sign if it is time. A disk that refuses leaves none: the watchdog then restores, as it should."""
        now_s = self._clock()
        if self._path is None or now_s - self._last_s < self._every_s:
            return
        self._last_s = now_s
        process = self._process
        text = json.dumps(
            {
                "pid": process.pid,
                "start_ticks": process.start_ticks,
                "namespace": process.namespace,
                "at_s": now_s,
                "boot_id": self._boot_id,
                "restores": self.restores,
            }
        )
        line = f"{zlib.crc32(text.encode()):08x} {text}".ljust(_BYTES - 1) + "\n"
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(descriptor, line.encode(), 0)
                os.ftruncate(descriptor, _BYTES)  # whatever was there before: a longer file would be read by nobody
            finally:
                os.close(descriptor)

    def remove(self) -> None:
        """Say good-bye: what there was to put back is put back."""
        self._last_s = float("-inf")
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)


def read(path: Path) -> Beat | None:
    """The last sign in a file; None: there is none, or none that can be read."""
    try:
        checksum, _, text = (read_text(path, _BYTES) or "").strip().partition(" ")
        if int(checksum, 16) != zlib.crc32(text.encode()):
            return None
        found = json.loads(text)
        process = ProcessId(int(found["pid"]), int(found["start_ticks"]), str(found["namespace"]))
        return Beat(process, float(found["at_s"]), str(found["boot_id"]), int(found["restores"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
