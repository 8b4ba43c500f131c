"""What it costs the node agent to ask NVML: memory of the binding, CPU of the frequent sample and of a whole reading.

    python bench/agent_driver.py

Runs against the stand-in for NVIDIA's driver (`tests/support/nvml`), so it measures the agent's own part: Python,
ctypes and the library's entry. What the real driver takes on top is not in it.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
GPUS = 8
SAMPLES_PER_SECOND = 10
SECONDS = 5


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from tests.support.nvml.node import FakeNode
    from tests.support.nvml.products import A100_80GB

    with tempfile.TemporaryDirectory() as folder:
        node = FakeNode.create(Path(folder) / "gpus", *[A100_80GB] * GPUS)
        # With bytecode, as in the image: to compile nvidia-ml-py anew takes 12 MiB that stay with the process.
        environment = os.environ | node.environment | {"PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        subprocess.run([sys.executable, "-c", "import heliotrope_agent.driver.nvml"], env=environment, check=True)
        subprocess.run([sys.executable, __file__, "measure"], env=environment, check=True)


def measure() -> None:
    before = _resident_bytes()
    from heliotrope_agent.driver.interface import Driver
    from heliotrope_agent.driver.nvml import Nvml

    driver: Driver = Nvml()
    uuids = [device.uuid for device in driver.devices()]
    print(f"nvidia-ml-py and the driver take {(_resident_bytes() - before) / 2**20:.1f} MiB of memory")

    rounds = 2_000
    cpu = time.process_time()
    for _ in range(rounds):
        for uuid in uuids:
            driver.energy_millijoules(uuid)
    per_call = (time.process_time() - cpu) / rounds / GPUS
    print(
        f"energy_millijoules: {per_call * 1e6:.1f} µs; of {GPUS} GPUs at {SAMPLES_PER_SECOND} Hz: "
        f"{per_call * GPUS * SAMPLES_PER_SECOND:.4%} of a core"
    )

    usage = resource.getrusage(resource.RUSAGE_SELF)
    started = usage.ru_utime + usage.ru_stime
    for _ in range(SECONDS * SAMPLES_PER_SECOND):
        for uuid in uuids:
            driver.energy_millijoules(uuid)
        time.sleep(1 / SAMPLES_PER_SECOND)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    print(f"the same, slept in between, sleeping included: {(usage.ru_utime + usage.ru_stime - started) / SECONDS:.4%}")

    rounds = 200
    cpu = time.process_time()
    for _ in range(rounds):
        for uuid in uuids:
            driver.read(uuid)
    print(f"read: {(time.process_time() - cpu) / rounds / GPUS * 1e6:.0f} µs per GPU")
    cpu = time.process_time()
    for _ in range(rounds):
        driver.devices()
    print(f"devices: {(time.process_time() - cpu) / rounds * 1e6:.0f} µs for {GPUS} GPUs")


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    measure() if "measure" in sys.argv else main()
