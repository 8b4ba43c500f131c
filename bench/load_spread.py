"""How far the next minute's load is from the last two minutes': what a split of watts allows for.

    uv run python bench/load_spread.py [--output build/bench/load_spread.json]

The Azure conversation trace, seen as an operator sees it: requests per second over two minutes, times the mean tokens
of a request over ten. Printed is the spread of what the next minute brings, as a share of that, of requests and of the
tokens of prompts and answers: one standard deviation, and the correlation of the last two. `heliotrope.power.lateness`
has them rounded up. It is arithmetic: every run prints the same figures.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from heliotrope_sim.data import data_file
from heliotrope_sim.fleet.arrivals import AZURE_FILES
from heliotrope_sim.workload.trace import load_azure

RATE_SECONDS = 120.0
WORK_SECONDS = 600.0
NEXT_SECONDS = 60.0
STEP_SECONDS = 30.0


def spread() -> dict[str, float]:
    """Standard deviations by what is counted, and the correlation of prompts and answers."""
    rows = load_azure(data_file(AZURE_FILES["conversation"]))
    at = np.array([row.arrival_seconds for row in rows])
    counted = {
        "requests": np.ones(len(rows)),
        "prompt_tokens": np.array([row.prompt_tokens for row in rows], dtype=np.float64),
        "output_tokens": np.array([row.output_tokens for row in rows], dtype=np.float64),
    }
    shares: dict[str, list[float]] = {name: [] for name in counted}
    for now in np.arange(WORK_SECONDS, at[-1] - NEXT_SECONDS, STEP_SECONDS):
        rate = np.mean((at >= now - RATE_SECONDS) & (at < now)) * len(at) / RATE_SECONDS
        lately, following = (at >= now - WORK_SECONDS) & (at < now), (at >= now) & (at < now + NEXT_SECONDS)
        for name, amounts in counted.items():
            expected = rate * NEXT_SECONDS * amounts[lately].mean()
            shares[name].append(float(amounts[following].sum() / expected))
    found = {name: round(float(np.std(each)), 3) for name, each in shares.items()}
    together = np.corrcoef(shares["prompt_tokens"], shares["output_tokens"])[0, 1]
    return found | {"correlation_of_tokens": round(float(together), 3)}


def main() -> None:
    """Print it and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("build/bench/load_spread.json"))
    arguments = parser.parse_args()
    found = spread()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
