"""What tests start ends with them, however they end."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import H100_SXM

PROGRAM = """
import sys, time
from pathlib import Path
from tests.support.zygote import Zygote

folder = Path(sys.argv[1])
zygote = Zygote({})
started = zygote.start(["agent", "--watchdog", f"--state-folder={folder / 'state'}"], {}, folder / "log")
print(started.pid, flush=True)
time.sleep(600)
"""


def test_a_killed_test_leaves_no_agent_behind(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    node = FakeNode.create(tmp_path / "gpus", H100_SXM)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | node.environment) as test:
        assert test.stdout is not None
        agent = Path("/proc") / test.stdout.readline().strip()
        assert agent.is_dir()
        test.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 30.0
    while agent.is_dir():
        assert time.monotonic() < deadline, (tmp_path / "log").read_text()
        time.sleep(0.05)
