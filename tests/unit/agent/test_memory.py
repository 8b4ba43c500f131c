import subprocess
import sys

import pytest

PROGRAM = """
from pathlib import Path
from heliotrope_agent.memory import give_back

def rss_megabytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6

# Smaller than what malloc maps by itself, larger than what Python keeps for itself; every second one stays.
blocks = [bytes(100_000) for _ in range(500)]
kept = blocks[::25]
del blocks
held = rss_megabytes()
print(give_back(), held - rss_megabytes())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone")
def test_what_was_freed_goes_back_to_the_system() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    assert answer[0] == "True"
    assert float(answer[1]) > 20
