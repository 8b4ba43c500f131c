"""What the region tier costs on its loop: reading a request, a window of 300 over 16 regions, and the end of a request.

uv run python bench/region_tier.py; results in build/bench/region_tier.json. CPU seconds of this process, so that other
work on the machine counts little.
"""

import asyncio
import json
import statistics
import time
from pathlib import Path

from tests.unit.epp.region.bench import Bench, chat, policy, report
from tests.unit.epp.region.builders import Client

from heliotrope_epp.region.director import SENT_PER_TURN

REGIONS = 16
REQUESTS = 300
ROUNDS = 40
WARM_UP_ROUNDS = 3
RESULT = Path("build/bench/region_tier.json")


async def measure(sessions: bool) -> dict[str, float]:
    """Medians over windows: CPU microseconds per request, CPU milliseconds per window."""
    names = {f"r{i}": 20.0 + 10.0 * i for i in range(REGIONS)}
    bench = Bench(names, carbon_policy=policy(windowRequests=10_000))
    rows: list[tuple[float, float, float]] = []
    for number in range(WARM_UP_ROUNDS + ROUNDS):
        clients = [
            Client(chat(f"{i} {number} " + "green " * 300), {"x-session-id": f"s-{i}"} if sessions else {})
            for i in range(REQUESTS)
        ]
        started = time.process_time()
        for client in clients:
            bench.director.decide(client)
        read = time.process_time()
        bench.collector.close()
        for _ in range(REQUESTS // SENT_PER_TURN + 1):
            await asyncio.sleep(0)
        placed = time.process_time()
        for client in clients:
            bench.director.done(client.ctx, report())
        ended = time.process_time()
        rows.append((read - started, placed - read, ended - placed))
        bench.later(1.0, *names)
    reading, window, ending = (statistics.median(column) for column in zip(*rows[WARM_UP_ROUNDS:], strict=True))
    return {
        "read_us_per_request": reading / REQUESTS * 1e6,
        "window_ms": window * 1e3,
        "end_us_per_request": ending / REQUESTS * 1e6,
    }


def main() -> None:
    """Measure and print."""
    result = {
        "regions": REGIONS,
        "requests": REQUESTS,
        "without_sessions": asyncio.run(measure(sessions=False)),
        "with_sessions": asyncio.run(measure(sessions=True)),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
