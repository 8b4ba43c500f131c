"""Waiting, and what ends it."""

import subprocess
import sys
import threading
import time

from heliotrope_agent.stopping import Stop

SIGNALS = """
import os, signal
from heliotrope_agent.stopping import Stop

signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
os.kill(os.getpid(), signal.SIGTERM)
stop = Stop()
stop.install()
stop.wait(30.0)
assert stop.requested
another = Stop()
another.install()
os.kill(os.getpid(), signal.SIGHUP)
assert not another.requested
os.kill(os.getpid(), signal.SIGINT)
os.kill(os.getpid(), signal.SIGINT)
another.wait(30.0)
assert another.requested
print("all")
"""


def test_a_wait_ends_with_a_wake_or_its_time() -> None:
    stop = Stop()
    began = time.monotonic()
    threading.Timer(0.05, stop.wake).start()
    stop.wait(30.0)
    assert time.monotonic() - began < 20.0
    for _ in range(100_000):
        stop.wake()  # never blocks
    stop.wait(30.0)
    began = time.monotonic()
    stop.wait(0.05)
    assert time.monotonic() - began >= 0.04


def test_signals_set_a_flag_and_blocked_ones_come_late() -> None:
    """In a process of its own: a signal goes to any thread that does not block it, and test runners have some."""
    done = subprocess.run([sys.executable, "-c", SIGNALS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "all\n"), done.stderr
