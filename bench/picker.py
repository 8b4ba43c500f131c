"""The picker's cost: CPU per request, latency that it adds to Envoy, idle CPU, and memory after many requests.

    uv run python bench/picker.py [--quick] [--output build/bench/picker.json]

Nine emulated engines that answer at once, a real Envoy, one picker with an enforced CarbonPolicy. Client, Envoy,
engines and picker share the machine's cores, so CPU per request is the figure to trust; latencies are compared within
one run, in alternating windows with and without the picker.
"""

import argparse
import asyncio
import contextlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import uvloop
from machine import cpu_seconds, describe, rss_megabytes, spin_milliseconds

from heliotrope_sim.demo.fleet import RunningEngine, start_engines, start_picker, write_resources
from heliotrope_sim.demo.scenario import Region, Scenario
from heliotrope_sim.gateway.config import DESTINATION_HEADER, GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

RATE = 100.0
PROMPT_BYTES = 3_000
PROMPTS = 20
REGIONS = tuple(Region(name, "ES", "constant") for name in ("north", "middle", "south"))
SCENARIO = Scenario(
    regions=REGIONS,
    profile="llama-3.1-8b-h100",
    max_num_seqs=64,
    ttft_slo_seconds=5.0,
    tpot_slo_seconds=0.5,
    constant_intensities={"north": 20.0, "middle": 150.0, "south": 300.0},
    model="bench",
)


async def window(url: str, rate: float, seconds: float, headers: list[dict[str, str]]) -> list[float]:
    """Latencies in seconds of an open-loop window, measured from the scheduled time of sending."""
    loop = asyncio.get_running_loop()
    bodies = [_body(i) for i in range(PROMPTS)]
    latencies: list[float] = []

    async def send(session: aiohttp.ClientSession, number: int, due_s: float) -> None:
        async with session.post(
            f"{url}/v1/chat/completions", data=bodies[number % PROMPTS], headers=headers[number % len(headers)]
        ) as response:
            await response.read()
            if response.status != 200:
                raise RuntimeError(f"HTTP {response.status}")
        latencies.append(loop.time() - due_s)

    start_s = loop.time() + 0.1
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, trust_env=False) as session, asyncio.TaskGroup() as group:
        for number in range(round(rate * seconds)):
            due_s = start_s + number / rate
            await asyncio.sleep(max(due_s - loop.time(), 0.0))
            group.create_task(send(session, number, due_s))
    return latencies


def _body(number: int) -> bytes:
    text = f"{number} " + "word " * (PROMPT_BYTES // 5)
    message = {"role": "user", "content": text[:PROMPT_BYTES]}
    return json.dumps({"model": "bench", "messages": [message], "max_tokens": 1}).encode()


def percentiles_ms(latencies: list[float]) -> dict[str, float]:
    """p50, p95 and p99."""
    return {f"p{q}": float(np.percentile(latencies, q)) * 1000.0 for q in (50, 95, 99)}


async def measure(folder: Path, *, quick: bool) -> dict[str, Any]:
    """All figures; `quick` shortens every window and leaves the long memory run out."""
    seconds = 5.0 if quick else 20.0
    fleet, engines = await start_engines(SCENARIO, folder, time_scale=1000.0)
    resources = folder / "resources"
    write_resources(SCENARIO, engines, resources, time.time())
    picker, ports = await start_picker(folder, resources)
    try:
        config = GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",), baseline=True)
        async with running_gateway(config, directory=folder / "envoy") as gateway:
            await gateway.wait_for_pickers()
            assert gateway.baseline_url is not None
            direct = [{DESTINATION_HEADER: e.address, **JSON} for e in _spread(engines)]
            await window(gateway.url, RATE, 3.0, [JSON])  # connections, caches, first decisions
            idle = await _idle(picker.pid, seconds)
            rounds = [await _round(gateway, picker.pid, seconds, direct) for _ in range(1 if quick else 3)]
            memory = None if quick else await _memory(gateway.url, picker.pid, served=round(RATE * (3 + seconds * 3)))
        return {"idle_cpu_cores": idle, "at_100_per_second": _joined(rounds, idle), "memory": memory}
    finally:
        await picker.stop()
        await fleet.stop()


JSON = {"content-type": "application/json"}


async def _round(gateway: Any, pid: int, seconds: float, direct: list[dict[str, str]]) -> dict[str, Any]:
    spin = spin_milliseconds()
    without = await window(gateway.baseline_url, RATE, seconds, direct)
    before, started = cpu_seconds(pid), time.monotonic()
    through = await window(gateway.url, RATE, seconds, [JSON])
    cpu, wall = cpu_seconds(pid) - before, time.monotonic() - started
    return {
        "spin_milliseconds": spin,
        "picker_cpu_seconds": cpu,
        "wall_seconds": wall,
        "requests": len(through),
        "envoy_alone_ms": percentiles_ms(without),
        "with_picker_ms": percentiles_ms(through),
    }


def _joined(rounds: list[dict[str, Any]], idle_cores: float) -> dict[str, Any]:
    gross = [r["picker_cpu_seconds"] / r["requests"] * 1e6 for r in rounds]
    net = [(r["picker_cpu_seconds"] - idle_cores * r["wall_seconds"]) / r["requests"] * 1e6 for r in rounds]
    added = {
        q: float(np.median([r["with_picker_ms"][q] - r["envoy_alone_ms"][q] for r in rounds]))
        for q in rounds[0]["with_picker_ms"]
    }
    return {
        "cpu_us_per_request_gross": float(np.median(gross)),
        "cpu_us_per_request_net_of_idle": float(np.median(net)),
        "added_latency_ms": added,
        "rounds": rounds,
    }


async def _idle(pid: int, seconds: float) -> float:
    """Cores that the picker uses while only scraping."""
    await asyncio.sleep(1.0)
    before, started = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - before) / (time.monotonic() - started)


async def _memory(url: str, pid: int, served: int) -> dict[str, float]:
    """Resident megabytes after 5,000 and after 50,000 requests."""
    rate = 180.0
    marks = {}
    for target in (5_000, 50_000):
        while served < target:
            count = min(target - served, 5_000)
            await window(url, rate, count / rate, [JSON])
            served += count
        marks[target] = rss_megabytes(pid)
    growth = (marks[50_000] - marks[5_000]) * 1e6 / 45_000
    return {
        "rss_mb_after_5000": marks[5_000],
        "rss_mb_after_50000": marks[50_000],
        "ratio": marks[50_000] / marks[5_000],
        "bytes_per_request": growth,
    }


def _spread(engines: list[RunningEngine]) -> list[RunningEngine]:
    return sorted(engines, key=lambda e: e.name.rpartition("-")[2])


def main() -> None:
    """Run, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="short windows, no memory run")
    parser.add_argument("--output", type=Path, default=Path("build/bench/picker.json"))
    arguments = parser.parse_args()
    machine = describe()
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        result = uvloop.run(measure(Path(folder), quick=arguments.quick))
        report = {"machine": machine, "endpoints": 9, "scrape_interval_s": 0.2, **result}
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(report, indent=2) + "\n")
        print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
