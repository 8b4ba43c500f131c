"""A GPU node that was given up: the stand-in for the driver, an emulated engine on its GPU, and the command."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import A100_40GB
from tests.support.zygote import Started, Zygote

from heliotrope.engine import profiles

PROFILE = "llama-3.1-8b-a100-40gb"
ENGINE = profiles.load(PROFILE)
QUICK = (
    "--phase=decode",
    "--clocks=1410,900",
    "--refinements=0",
    "--repeats=1",
    "--max-repeats=1",
    "--window-seconds=5",
    "--idle-seconds=1",
    "--settle-seconds=0",
    "--batches=4",
)
"""Two clocks, one window each."""
PATIENCE_S = 60.0


def until(what: str, holds: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Wait until something holds."""
    ends_s = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_s, f"not within {timeout_s} s: {what}"
        time.sleep(0.01)


class Bench:
    """The node."""

    def __init__(self, folder: Path, zygote: Zygote, time_scale: float) -> None:
        self.folder, self.zygote, self.time_scale = folder, zygote, time_scale
        self.node = FakeNode.create(folder / "gpus", A100_40GB)
        self.environment = self.node.environment
        self.state = folder / "state"
        self.output = folder / "out"
        self.raw = self.output / "raw.json"
        config = folder / "emulator.yaml"
        uuid = self.node.uuid()
        engine = {"name": "a", "profile": PROFILE, "time_scale": time_scale, "gpu": {"uuids": [uuid]}}
        config.write_text(yaml.safe_dump({"engines": [engine]}))
        command = [sys.executable, "-m", "heliotrope_sim.emulator", "--config", str(config), "--die-with-parent"]
        self.engine = subprocess.Popen(command, env=os.environ | self.environment, stdout=subprocess.PIPE, text=True)
        assert self.engine.stdout is not None
        self.url = json.loads(self.engine.stdout.readline())["engines"][0]["url"]
        self._starts: list[Started] = []

    def close(self) -> None:
        """End what runs on it."""
        for each in self._starts:
            each.signal(signal.SIGKILL)
        self.engine.terminate()
        self.engine.wait(10)
        assert self.engine.stdout is not None
        self.engine.stdout.close()
        self.node.close()

    def heliotrope(self, *arguments: str) -> Started:
        """Start a command."""
        log = self.folder / f"log-{len(self._starts)}"
        started = self.zygote.start(arguments, self.environment, log)
        self._starts.append(started)
        return started

    def calibrate(self, *arguments: str, url: str | None = None) -> Started:
        """Start a calibration; of a flag that is given twice the last counts."""
        flags = (
            f"--output={self.output}",
            f"--state-folder={self.state}",
            f"--time-scale={self.time_scale:g}",
            "--yes",
            *arguments,
        )
        last = {each.partition("=")[0]: each for each in flags}
        return self.heliotrope("calibrate", url or self.url, *last.values())

    def refused(self, *arguments: str, url: str | None = None) -> str:
        """What a calibration says that does not begin, in one line; it has changed nothing."""
        before = self.node.write_count
        started = self.calibrate(*arguments, url=url)
        assert started.wait(PATIENCE_S) == 1, started.text()
        assert self.node.write_count == before
        text = " ".join(started.text().split())
        assert "Traceback" not in text
        return text

    @property
    def sm_lock_mhz(self) -> int | None:
        """The lock that the driver holds."""
        lock = self.node.read().sm_lock_mhz
        return None if lock is None else lock[1]

    @property
    def windows(self) -> list[dict[str, Any]]:
        """What is in the raw file."""
        with contextlib.suppress(FileNotFoundError):
            found: list[dict[str, Any]] = json.loads(self.raw.read_text())["record"]["windows"]
            return found
        return []

    @property
    def profile(self) -> dict[str, Any]:
        """What was written."""
        found: dict[str, Any] = yaml.safe_load((self.output / "energy-profile.yaml").read_text())
        return found
