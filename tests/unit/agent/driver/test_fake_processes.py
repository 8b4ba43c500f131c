"""The stand-in's state among processes: what outlives them, what they cannot break, who may change what."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.nvml.node import FakeNode, Privilege
from tests.support.nvml.products import A100_80GB, H100_SXM

ROOT = Path(__file__).parents[4]
CAP_SYS_ADMIN = 1 << 21
SECONDS = 30.0

START = """
import os, sys, time
import pynvml
pynvml.nvmlInit()
gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
"""


@contextmanager
def child(node: FakeNode, program: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that sees the node through LD_LIBRARY_PATH; killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | node.environment | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(node: FakeNode, program: str, *arguments: str) -> str:
    """Run a program to its end and return what it printed."""
    with child(node, program, *arguments) as process:
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0
        return said.strip()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FakeNode]:
    with FakeNode.create(tmp_path / "gpus", A100_80GB, H100_SXM) as made:
        yield made


def test_settings_and_counters_outlive_processes_until_a_reboot(node: FakeNode) -> None:
    program = START + (
        "pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 810, 810)\n"
        "pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 250000)\n"
        "print(os.getpid())\n"
    )
    pid = int(run(node, program))
    assert [write.pid for write in node.writes()] == [pid, pid]
    held = node.read()
    assert (held.sm_lock_mhz, held.power_limit_milliwatts) == ((810, 810), 250_000)
    said = run(node, START + "print(pynvml.nvmlDeviceGetPowerManagementLimit(gpu))\n")
    assert said == "250000"

    reopened = FakeNode(node.path)
    assert reopened.read().sm_lock_mhz == (810, 810)
    reopened.close()

    node.processes([1])
    time.sleep(0.01)
    counted = node.read().energy_picojoules + node.read().energy_millijoules
    node.reboot()
    held = node.read()
    assert (held.sm_lock_mhz, held.power_limit_milliwatts) == (None, 400_000)
    assert held.energy_millijoules < counted
    assert node.read().sm_mhz == 210, "the processes are gone too"


def test_a_client_from_before_a_reboot_must_initialise_anew(node: FakeNode) -> None:
    program = START + (
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    pynvml.nvmlDeviceGetPowerUsage(gpu)\n"
        "except pynvml.NVMLError as error:\n"
        "    print(error.value, flush=True)\n"
        "pynvml.nvmlInit()\n"
        "print(pynvml.nvmlDeviceGetPowerUsage(gpu), flush=True)\n"
    )
    with child(node, program) as process:
        assert line(process) == "ready"
        node.reboot()
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert (line(process), line(process)) == ("1", "45700")


def test_energy_is_counted_across_processes(node: FakeNode) -> None:
    with node.time_stands_still():
        node.load(1000)
        expected = 0
        before = node.read().energy_millijoules
        for mhz in (810, 1410, 600):
            run(node, START + f"pynvml.nvmlDeviceSetGpuLockedClocks(gpu, {mhz}, {mhz})\n")
            expected += node.read().power_milliwatts * 60
            node.advance(60_000_000_000)
        said = run(node, START + "print(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu))\n")
        assert int(said) - before == pytest.approx(expected, abs=1)


def test_a_process_killed_with_the_lock_in_hand_blocks_nobody(node: FakeNode) -> None:
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from tests.support.nvml.node import FakeNode\n"
        "node = FakeNode(Path(sys.argv[1]))\n"
        "assert node.library.heliotropeFakeLock(node.store)\n"
        "print('locked', flush=True)\n"
        "time.sleep(60)\n"
    )
    with child(node, program, str(node.path)) as holder:
        assert line(holder) == "locked"
        with child(node, START + "pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)\nprint('set')\n") as writer:
            with pytest.raises(subprocess.TimeoutExpired):
                writer.wait(0.5)  # it waits for the lock: the test would mean nothing otherwise
            assert node.read().sm_lock_mhz is None, "readers wait for nobody"
            holder.send_signal(signal.SIGKILL)
            assert writer.wait(SECONDS) == 0
    assert node.read().sm_lock_mhz == (900, 900)


def test_a_process_killed_while_it_hangs_leaves_nothing_behind(node: FakeNode) -> None:
    program = START + "pynvml.nvmlDeviceResetGpuLockedClocks(gpu)\n"
    with node.hang("nvmlDeviceResetGpuLockedClocks") as rule, child(node, program) as hung:
        end = time.monotonic() + SECONDS
        while rule.waiting == 0:
            assert time.monotonic() < end
            time.sleep(0.005)
        hung.kill()
        hung.wait()
        assert rule.waiting == 1
    assert node.write_count == 0, "it hung before it changed anything"
    for _ in range(200):  # places of rules are used again
        with node.hang("nvmlDeviceResetGpuLockedClocks") as rule:
            assert rule.waiting == 0


@pytest.mark.slow
def test_processes_killed_at_any_moment_leave_whole_states(node: FakeNode) -> None:
    """Writers that are killed again and again: bounds of a lock always belong together, counters never fall."""
    chance = random.Random(8)
    program = START + (
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for mhz in range(210, 1411, 15):\n"
        "        pynvml.nvmlDeviceSetGpuLockedClocks(gpu, mhz, mhz)\n"
        "        pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 100000 + 100 * mhz)\n"
    )
    energy, writes = 0, 0
    for _ in range(6):
        with child(node, program) as first, child(node, program) as second:
            assert (line(first), line(second)) == ("ready", "ready")
            time.sleep(chance.uniform(0.0, 0.05))
            first.kill()
            second.kill()
            first.wait()
            second.wait()
        state = node.read()
        assert state.sm_lock_mhz is not None
        low, high = state.sm_lock_mhz
        assert low == high == state.sm_mhz
        assert state.energy_millijoules >= energy
        energy = state.energy_millijoules
        assert node.write_count > writes
        writes = node.write_count
        assert all(write.code == 0 for write in node.writes())


def test_without_persistence_mode_settings_go_with_the_last_client(node: FakeNode) -> None:
    node.persistence(False, 0)
    wait = "print('set', flush=True)\nsys.stdin.readline()\n"
    for index in (0, 1):
        lock = START.replace("ByIndex(0)", f"ByIndex({index})") + (
            "pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)\n" + wait
        )
        with child(node, START + wait) as other, child(node, lock) as locker:
            assert (line(other), line(locker)) == ("set", "set")
            locker.kill()
            locker.wait()
            assert node.read(index).sm_lock_mhz == (900, 900), "there is another client"
            other.kill()
            other.wait()
            assert node.read(index).sm_lock_mhz == (None if index == 0 else (900, 900))


def test_a_process_on_the_gpu_keeps_the_driver_up(node: FakeNode) -> None:
    node.persistence(False, 0)
    node.processes([1], 0)
    run(node, START + "pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)\npynvml.nvmlShutdown()\n")
    assert node.read().sm_lock_mhz == (900, 900)
    node.processes([], 0)
    assert node.read().sm_lock_mhz is None


def test_who_may_change_settings(node: FakeNode) -> None:
    program = START + (
        "try:\n"
        "    pynvml.nvmlDeviceSetGpuLockedClocks(gpu, 900, 900)\n"
        "    print('set')\n"
        "except pynvml.NVMLError_NoPermission:\n"
        "    print('denied')\n"
    )
    drop = (
        "import ctypes, struct\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "header = struct.pack('Ii', 0x20080522, 0)\n"
        "assert libc.capset(header, bytes(24)) == 0\n"
    )
    assert run(node, program) == "set"
    node.privilege(Privilege.CAP_SYS_ADMIN)
    assert run(node, drop + program) == "denied"
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    assert run(node, program) == ("set" if capabilities & CAP_SYS_ADMIN else "denied")
    node.privilege(Privilege.NOBODY)
    assert run(node, program) == "denied"


def test_a_file_of_another_version_is_refused(node: FakeNode, tmp_path: Path) -> None:
    program = "import pynvml\ntry:\n    pynvml.nvmlInit()\nexcept pynvml.NVMLError as error:\n    print(error.value)\n"
    cut = tmp_path / "cut"
    cut.write_bytes(b"HELIOTROPE")
    other = tmp_path / "other"
    other.write_bytes(b"\0" * node.path.stat().st_size)
    for path, code in ((cut, "18"), (other, "18"), (tmp_path / "none", "9")):
        environment = os.environ | node.environment | {"HELIOTROPE_FAKE_NVML": str(path)}
        said = subprocess.run(
            [sys.executable, "-c", program],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
        ).stdout.strip()
        assert said == code
        with pytest.raises(FileNotFoundError):
            FakeNode(path)
    with pytest.raises(FileExistsError):
        FakeNode.create(node.path)
