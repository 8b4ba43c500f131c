"""The watchdog that a calibration starts for itself, so that it is protected where no agent's watchdog runs.

A calibration takes the node's agent off it, and its watchdog with it.
"""

import contextlib
import logging
import os
import select
import subprocess
import sys
from pathlib import Path

from heliotrope_agent.calibrate.errors import CalibrationError
from heliotrope_agent.state.boot import ProcessId

PROGRAM = "heliotrope_agent.watchdog.guard"
READY_SECONDS = 30.0
END_SECONDS = 10.0

_logger = logging.getLogger(__name__)


class Guard:
    """The other process. Nothing may be set before `ensure` has returned.

    Args:
        folder: the state folder.
        silent_s: without a sign of life for so long the calibration counts as dead or hung.
        original_mhz: SM clock that GPUs of this node are locked to at rest; None: not locked.
    """

    def __init__(self, folder: Path, silent_s: float, original_mhz: int | None) -> None:
        own = ProcessId.own()
        # -P: a folder that somebody else may write to, and that we were started in, names no modules of root's.
        self._command = [sys.executable, "-P", "-m", PROGRAM, str(folder)]
        self._command += [str(own.pid), str(own.start_ticks), str(silent_s)]
        if original_mhz is not None:
            self._command += ["--original-mhz", str(original_mhz)]
        self._process: subprocess.Popen[bytes] | None = None

    def ensure(self) -> None:
        """Have it watch; returns once it does.

        Raises:
            CalibrationError: if it does not start.
        """
        if self._process is not None and self._process.poll() is None:
            return
        if self._process is not None:
            _logger.warning("the calibration's watchdog has ended; it is started again")
            self._close(self._process)
        try:
            # A session of its own: Ctrl-C and Ctrl-Z are for the calibration.
            self._process = process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, start_new_session=True
            )
        except OSError as error:
            raise CalibrationError(f"the calibration's watchdog cannot be started: {error}") from error
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], READY_SECONDS)
        if not ready or not os.read(process.stdout.fileno(), 1):
            self.end()
            raise CalibrationError("the calibration's watchdog does not start, and nobody else would put clocks back")

    def end(self) -> None:
        """End it: everything is put back."""
        if self._process is not None:
            self._process.kill()
            self._close(self._process)
            self._process = None

    @staticmethod
    def _close(process: "subprocess.Popen[bytes]") -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        assert process.stdout is not None
        process.stdout.close()

    def leave(self) -> None:
        """Let it go on when this process has ended: something is left to be put back."""
        if self._process is not None:
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process.returncode = 0  # nobody waits for it any more, and no warning is to say so
            self._process = None
