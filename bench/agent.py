"""What the node agent takes of its node: CPU and memory of the whole process beside eight GPUs.

    uv run python bench/agent.py [--quick] [--output build/bench/agent.json]

The real `heliotrope agent` with the stand-in NVIDIA driver and a kubelet's socket that gives each GPU to a pod; an
intent names them all, and every clock is held. A picker reads /metrics/dcgm twice a second, Prometheus /metrics every
15 s. CPU is user and system time of all threads. The real driver's calls take longer than the stand-in's.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from machine import cpu_seconds, describe, rss_megabytes

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.nvml.node import FakeNode  # noqa: E402 - the repository's root is no package
from tests.support.nvml.products import H100_SXM  # noqa: E402
from tests.support.podresources import KubeletSocket  # noqa: E402

GPUS = 8
UID = "6cf9e6c1-1fb6-4bdb-b8b7-8e4cb5a6c8{:02d}"
NODE_POWER = """\
apiVersion: heliotrope.io/v1alpha1
kind: NodePower
metadata: {{name: node-1}}
spec:
  enforcement: Enforce
  intents:
  - {{namespace: prod, variant: llama, role: decode, smClockMhz: 1200, pods: [{pods}]}}
"""


def main() -> None:
    """Measure, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="ten seconds instead of sixty")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "bench" / "agent.json")
    arguments = parser.parse_args()
    seconds = 10.0 if arguments.quick else 60.0
    rows = [measured(sample_s, seconds) for sample_s in (1.0, 0.1)]
    print(f"{GPUS} GPUs, {seconds:.0f} s; CPU in % of one core")
    print("samples/s     CPU %    RSS MB   /metrics CPU ms   /metrics kB   /metrics/dcgm CPU ms   missed")
    for row in rows:
        print(
            f"{1.0 / row['sample_seconds']:9.0f} {row['cpu_percent']:9.2f} {row['rss_megabytes']:9.1f}"
            f" {row['page_cpu_milliseconds']:17.2f} {row['page_kilobytes']:13.1f}"
            f" {row['dcgm_page_cpu_milliseconds']:22.2f} {row['missed_samples']:8.0f}"
        )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps({"machine": describe(), "gpus": GPUS, "rows": rows}, indent=1) + "\n")
    print(f"stored in {arguments.output}")


def measured(sample_s: float, seconds: float) -> dict[str, Any]:
    """One agent, from its start."""
    with tempfile.TemporaryDirectory() as name, running(Path(name), sample_s) as (pid, port):
        page = read(port, "/metrics").decode()
        held = len(re.findall(r"^heliotrope_agent_gpu_info", page, flags=re.MULTILINE))
        assert held == GPUS, page
        stop = threading.Event()
        readers = [
            threading.Thread(target=follow, args=(port, path, period_s, stop))
            for path, period_s in (("/metrics/dcgm", 0.5), ("/metrics", 15.0))
        ]
        for reader in readers:
            reader.start()
        time.sleep(2.0)
        before, started_s = cpu_seconds(pid), time.monotonic()
        time.sleep(seconds)
        cpu_percent = (cpu_seconds(pid) - before) / (time.monotonic() - started_s) * 100.0
        rss = rss_megabytes(pid)
        stop.set()
        for reader in readers:
            reader.join()
        page = read(port, "/metrics").decode()
        missed = re.search(r'missed_samples_total\{source="energy"\} (\d+)', page)
        assert missed is not None
        return {
            "sample_seconds": sample_s,
            "cpu_percent": cpu_percent,
            "rss_megabytes": rss,
            "page_cpu_milliseconds": page_milliseconds(pid, port, "/metrics", cpu_percent),
            "dcgm_page_cpu_milliseconds": page_milliseconds(pid, port, "/metrics/dcgm", cpu_percent),
            "page_kilobytes": len(page) / 1000.0,
            "missed_samples": int(missed[1]),
        }


def page_milliseconds(pid: int, port: int, path: str, idle_percent: float) -> float:
    """CPU of one page, read over a kept connection; what the process takes anyway is taken off."""
    count = 400
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    before, started_s = cpu_seconds(pid), time.monotonic()
    for _ in range(count):
        connection.request("GET", path)
        connection.getresponse().read()
    passed_s = time.monotonic() - started_s
    connection.close()
    return (cpu_seconds(pid) - before - passed_s * idle_percent / 100.0) / count * 1000.0


def follow(port: int, path: str, period_s: float, stop: threading.Event) -> None:
    """Read a page now and then."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    while not stop.wait(period_s):
        connection.request("GET", path)
        connection.getresponse().read()
    connection.close()


@contextmanager
def running(folder: Path, sample_s: float) -> Iterator[tuple[int, int]]:
    """An agent that holds every clock: process id and port."""
    with (
        FakeNode.create(folder / "gpus", *[H100_SXM] * GPUS) as node,
        KubeletSocket(folder / "kubelet.sock") as kubelet,
    ):
        pods = []
        for gpu in range(GPUS):
            uid, pid = UID.format(gpu), 1_000 + gpu
            kubelet.give(("prod", f"llm-{gpu}"), [node.uuid(gpu)])
            (folder / "proc" / str(pid)).mkdir(parents=True)
            (folder / "proc" / str(pid) / "cgroup").write_text(f"0::/kubepods/pod{uid}/c\n")
            node.processes([pid], gpu)
            node.load(700, gpu)
            pods.append(f"{{name: llm-{gpu}, uid: {uid}}}")
        (folder / "cluster").mkdir()
        (folder / "cluster" / "node.yaml").write_text(NODE_POWER.format(pods=", ".join(pods)))
        arguments = {
            "--node": "node-1",
            "--folder": folder / "cluster",
            "--state-folder": folder / "state",
            "--pod-resources": folder / "kubelet.sock",
            "--proc": folder / "proc",
            "--host": "127.0.0.1",
            "--metrics-port": 0,
            "--sample-seconds": sample_s,
            "--lower-dwell-seconds": 0,
            "--raise-dwell-seconds": 0,
        }
        command = [Path(sys.executable).parent / "heliotrope", "agent"]
        variables = os.environ | node.environment | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        # As in the image, whose modules are compiled; compiling them costs memory that is never given back.
        variables.pop("PYTHONDONTWRITEBYTECODE", None)
        modules = "import heliotrope_cli.main, heliotrope_cli.commands.agent, heliotrope_agent.app, pynvml"
        subprocess.run([sys.executable, "-c", modules], env=variables, check=True)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*command, *(str(word) for pair in arguments.items() for word in pair)],
                stderr=log,
                env=variables,
            )
        try:
            yield process.pid, port_of(folder / "log", process)
            assert all(each.sm_lock_mhz == (1200, 1200) for each in node.states()), (folder / "log").read_text()
        finally:
            process.terminate()
            process.wait(30)
        assert all(each.sm_lock_mhz is None for each in node.states()), "clocks were not put back"


def port_of(log: Path, process: subprocess.Popen[bytes]) -> int:
    """The port that the agent says it listens on, once it shows every GPU."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline and process.poll() is None:
        found = re.search(r"metrics are served on port (\d+)", log.read_text())
        if found and read(int(found[1]), "/metrics").count(b"\nheliotrope_agent_gpu_info{") == GPUS:
            return int(found[1])
        time.sleep(0.1)
    raise RuntimeError(log.read_text())


def read(port: int, path: str) -> bytes:
    """One page, over a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


if __name__ == "__main__":
    main()
