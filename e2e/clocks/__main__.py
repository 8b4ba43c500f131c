"""Days on a site of real processes, one after another: joules of the driver's counters, latencies of the clients.

    uv run python -m e2e.clocks [--seeds 3] [--output build/bench/phase_clocks_processes.json]

Engines are emulated and time is compressed; the node agent, its driver calls and the clients are real. It confirms on a
small scale that what `bench.phase_clocks` simulates comes about through the agent. On a machine that is too slow for
its engines clients see lateness that is not the engines'.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

from e2e.clocks.days import ARMS, CUTS, FLEET, HEADROOM, PROMISED, Outcome, Shape, run
from e2e.clocks.site import StartedSite

TIME_SCALE = 6.0
SHAPE = Shape(engine_seconds=180.0, night=0.6, noon=2.4)


async def days(seeds: int) -> list[tuple[int, Outcome]]:
    """All arms by seed, each arm on the same site."""
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="heliotrope-clocks-") as folder:
        async with StartedSite(Path(folder), time_scale=TIME_SCALE) as site:
            for seed in range(seeds):
                for arm in (*ARMS, *CUTS):
                    outcome = await run(site, arm, SHAPE, time_scale=TIME_SCALE, seed=seed)
                    outcomes.append((seed, outcome))
                    sys.stderr.write(f"seed {seed}, {arm.name}: {outcome.total_joules:,.0f} J\n")
    return outcomes


def table(outcomes: list[tuple[int, Outcome]]) -> str:
    """Energy against clocks left alone, and what was late, over seeds."""
    base = {seed: each for seed, each in outcomes if each.arm == ARMS[0].name}
    lines = [f"{'clocks':22} {'energy, % of left alone':>28} {'prefill J':>10} {'decode J':>10} {'late':>10}"]
    for arm in (*ARMS, *CUTS):
        own = [(seed, each) for seed, each in outcomes if each.arm == arm.name]
        shares = [100.0 * each.total_joules / base[seed].total_joules for seed, each in own]
        late = sum(each.late for _, each in own) / sum(each.answered + each.failed for _, each in own)
        spread = f"{mean(shares):.1f} ({min(shares):.1f} to {max(shares):.1f})"
        joules = [mean(each.joules[role] for _, each in own) for role in ("prefill", "decode")]
        lines.append(f"{arm.name:22} {spread:>28} {joules[0]:10,.0f} {joules[1]:10,.0f} {late:10.2%}")
    return "\n".join(lines)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=Path("build/bench/phase_clocks_processes.json"))
    arguments = parser.parse_args()
    outcomes = asyncio.run(days(arguments.seeds))
    document: dict[str, Any] = {
        "model": "labelled DVFS model of the shipped engine profiles; no GPU was measured",
        "fleet": FLEET.name,
        "promise": PROMISED.name,
        "headroom": HEADROOM,
        "time_scale": TIME_SCALE,
        "engine_seconds": SHAPE.engine_seconds,
        "days": [{"seed": seed, **each.as_mapping()} for seed, each in outcomes],
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(table(outcomes))
    print(f"wrote {arguments.output}")


if __name__ == "__main__":
    main()
