"""What tracing costs the picker: CPU per request at 0, 1 and 100 % of recorded requests against no tracing, in one run.

    uv run python bench/tracing.py [--quick] [--no-envoy] [--output build/bench/tracing.json]

First the picker's core alone, nine endpoints and a policy, with spans sent over gRPC to a collector in another process:
CPU of the whole process per request, the exporting thread included, in short turns of all modes. Then the whole path:
four pickers with a real Envoy each that differ in tracing alone. A picker costs much more there, gRPC foremost.
"""

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from contextlib import AsyncExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from machine import cpu_seconds, describe
from picker import JSON, SCENARIO, window
from tracing_collector import serve
from tracing_picker import Core, Gateway

from heliotrope_epp.tracing.sampling import Sampler
from heliotrope_epp.tracing.settings import TracingSettings
from heliotrope_epp.tracing.tracer import Tracer
from heliotrope_sim.demo.fleet import start_engines, start_picker, write_resources
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

MODES = {"off": None, "0 %": 0.0, "1 %": 0.01, "100 %": 1.0}
RATE = 100.0
EXPORT_DELAY_SECONDS = 0.5
"""Shorter than usual, so that a window's spans leave within its measurement."""


class Collector:
    """A collector in a process of its own."""

    def __init__(self) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self.url: str = self._pipe.recv()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        self._process.join(10.0)


def core(url: str, *, quick: bool) -> dict[str, Any]:
    """The picker's core: CPU microseconds of the process per request, by mode."""
    rounds, requests = (10, 100) if quick else (40, 200)
    cores = {}
    for mode, ratio in MODES.items():
        settings = None
        if ratio is not None:
            settings = TracingSettings(
                enabled=True, endpoint=url, sampler=Sampler(ratio), delay_s=0.05, max_queue_spans=100_000
            )
        cores[mode] = Core(settings)
    cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
    number = 0
    for turn in range(rounds + 2):
        for mode in list(MODES) if turn % 2 == 0 else list(MODES)[::-1]:
            one = cores[mode]
            before = time.process_time()
            for _ in range(requests):
                one.request(number)
                number += 1
            while one.waiting_spans:
                time.sleep(0.005)
            if turn >= 2:  # the first two warm up
                cpu[mode].append((time.process_time() - before) / requests * 1e6)
    for one in cores.values():
        if one.tracing is not None:
            asyncio.run(one.tracing.close())
    exported = {mode: one.tracing.queue.counts().exported for mode, one in cores.items() if one.tracing is not None}
    return {**_summary(cpu), "spans_exported": exported}


def begin(url: str) -> dict[str, float]:
    """Microseconds on the loop to tell that a request is not recorded, and to begin to record one; best of several."""
    request: Any = Gateway(1, 0.0)
    result = {}
    for mode in ("0 %", "100 %"):
        one = Core(TracingSettings(enabled=True, endpoint=url))
        assert one.tracing is not None
        tracer = Tracer(one.tracing.queue, Sampler(MODES[mode] or 0.0), one.clock, random.Random(1))
        best = float("inf")
        for _ in range(7):
            started = time.thread_time()
            for _ in range(20_000):
                tracer.begin(request)
            best = min(best, (time.thread_time() - started) / 20_000 * 1e6)
        result[mode] = best
        asyncio.run(one.tracing.close())
    return result


async def whole_path(folder: Path, url: str, *, quick: bool) -> dict[str, Any]:
    """Pickers behind a real Envoy: CPU microseconds of each process per request, by mode."""
    seconds, rounds = (5.0, 2) if quick else (15.0, 8)
    async with AsyncExitStack() as stack:
        fleet, engines = await start_engines(SCENARIO, folder, time_scale=1000.0)
        stack.push_async_callback(fleet.stop)
        write_resources(SCENARIO, engines, folder / "resources", time.time())
        pickers: dict[str, tuple[int, str]] = {}
        for number, (mode, ratio) in enumerate(MODES.items()):
            own = folder / str(number)
            own.mkdir()
            flags = ["--no-tracing"] if ratio is None else [f"--otlp-endpoint={url}", f"--trace-ratio={ratio}"]
            picker, ports = await start_picker(own, folder / "resources", *flags)
            stack.push_async_callback(picker.stop)
            config = GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",))
            gateway = await stack.enter_async_context(running_gateway(config, directory=own / "envoy"))
            await gateway.wait_for_pickers()
            await window(gateway.url, RATE, 3.0, [JSON])
            pickers[mode] = (picker.pid, gateway.url)
        cpu: dict[str, list[float]] = {mode: [] for mode in MODES}
        for turn in range(rounds):
            for mode in list(MODES) if turn % 2 == 0 else list(MODES)[::-1]:
                pid, gateway_url = pickers[mode]
                before = cpu_seconds(pid)
                done = await window(gateway_url, RATE, seconds, [JSON])
                await asyncio.sleep(2.0 * EXPORT_DELAY_SECONDS)
                cpu[mode].append((cpu_seconds(pid) - before) / len(done) * 1e6)
        return _summary(cpu)


def _summary(cpu: dict[str, list[float]]) -> dict[str, Any]:
    off = np.array(cpu["off"])
    added = {mode: np.array(values) - off for mode, values in cpu.items() if mode != "off"}
    return {
        "cpu_us_per_request": {mode: float(np.median(values)) for mode, values in cpu.items()},
        "added_us_per_request": {mode: float(np.median(values)) for mode, values in added.items()},
        "standard_error_us": {
            mode: float(np.std(values, ddof=1) / np.sqrt(len(values))) for mode, values in added.items()
        },
        "ratio_to_off": {mode: float(np.median(np.array(values) / off)) for mode, values in cpu.items()},
        "rounds": cpu,
    }


def main() -> None:
    """Run, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter turns")
    parser.add_argument("--no-envoy", action="store_true", help="the picker's core alone")
    parser.add_argument("--output", type=Path, default=Path("build/bench/tracing.json"))
    arguments = parser.parse_args()
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = f"{EXPORT_DELAY_SECONDS * 1000:.0f}"
    collector = Collector()
    report = {"machine": describe(), "endpoints": 9, "begin_us": begin(collector.url)}
    report["core"] = core(collector.url, quick=arguments.quick)
    if not arguments.no_envoy:
        with tempfile.TemporaryDirectory() as folder:
            report["whole_path"] = uvloop.run(whole_path(Path(folder), collector.url, quick=arguments.quick))
    collector.close()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
