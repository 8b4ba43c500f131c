"""What tracing costs the picker: CPU per request at 0, 1 and 100 % of recorded requests against no tracing, in one run.

    uv run python bench/tracing.py [--quick] [--no-envoy] [--output build/bench/tracing.json]

First the picker's core alone, nine endpoints and a policy, with spans sent over gRPC to a collector in another process:
CPU of the loop's thread, and of the exporting one. Then the whole path: four pickers with a real Envoy each that differ
in tracing alone, CPU of their processes. A picker costs much more there, gRPC foremost.
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
WARM_UP = 200
MAX_WAITING_SPANS = 1_500
"""Requests wait while more do, so that none is dropped."""
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
    """The picker's core: CPU microseconds of the loop's thread per request, and of the exporting thread.

    The modes take turns request by request and medians are compared, as the machine may be busy with other things.
    """
    requests = 1_000 if quick else 6_000
    cores = {mode: Core(_settings(url, ratio)) for mode, ratio in MODES.items()}
    loop: dict[str, list[float]] = {mode: [] for mode in MODES}
    for number in range(requests + WARM_UP):
        for mode, one in cores.items():
            before = time.thread_time()
            one.request(number)
            if number >= WARM_UP:
                loop[mode].append((time.thread_time() - before) * 1e6)
            while one.waiting_spans > MAX_WAITING_SPANS:
                time.sleep(0.001)
    loop_us = {mode: float(np.median(values)) for mode, values in loop.items()}
    exporting_us, spans = _exporting(cores["100 %"], requests)
    for one in cores.values():
        if one.tracing is not None:
            asyncio.run(one.tracing.close())
    added = {mode: us - loop_us["off"] for mode, us in loop_us.items() if mode != "off"}
    ratios = {mode: 0.0 if ratio is None else ratio for mode, ratio in MODES.items()}
    return {
        "loop_us_per_request": loop_us,
        "loop_added_us": added,
        "exporting_us_per_recorded_request": exporting_us,
        "spans_per_recorded_request": spans,
        "ratio_to_off": {mode: (us + exporting_us * ratios[mode]) / loop_us["off"] for mode, us in loop_us.items()},
    }


def _settings(url: str, ratio: float | None) -> TracingSettings | None:
    if ratio is None:
        return None
    return TracingSettings(enabled=True, endpoint=url, sampler=Sampler(ratio), max_queue_spans=100_000)


def _exporting(one: Core, requests: int) -> tuple[float, float]:
    """What the other threads use while requests are recorded, and the spans of one; all of it is exported."""
    assert one.tracing is not None
    while one.waiting_spans > MAX_WAITING_SPANS:
        time.sleep(0.001)
    counts = one.tracing.queue.counts()
    whole, own = time.process_time(), time.thread_time()
    for number in range(requests):
        one.request(number)
        while one.waiting_spans > MAX_WAITING_SPANS:
            time.sleep(0.001)
    others = (time.process_time() - whole) - (time.thread_time() - own)
    exported = one.tracing.queue.counts().exported - counts.exported
    spans = (exported + one.waiting_spans - counts.waiting) / requests
    return others / exported * spans * 1e6, spans


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
            picker, ports = await start_picker(own, folder / "resources", "--no-learn", "--no-ledger", *flags)
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
    print(json.dumps(report, indent=2), flush=True)
    if not arguments.no_envoy:
        with tempfile.TemporaryDirectory() as folder:
            report["whole_path"] = uvloop.run(whole_path(Path(folder), collector.url, quick=arguments.quick))
    collector.close()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    if "whole_path" in report:
        print(json.dumps(report["whole_path"], indent=2))


if __name__ == "__main__":
    main()
