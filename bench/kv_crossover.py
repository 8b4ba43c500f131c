"""From which prefix length on moving KV blocks beats recomputing them, and what finding such plans costs a decision.

    uv run python bench/kv_crossover.py [--plot docs/kv-crossover.png] [--output build/bench/kv_crossover.json]

The curves are arithmetic on the shipped engine profiles and the default links, so every run prints the same ones; only
`decision_cpu_microseconds` is measured.
"""

import argparse
import json
import time
from math import isfinite
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from machine import describe
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heliotrope.cache.crossover import Situation, break_even_tokens, compare
from heliotrope.cache.links import DEFAULT_LINKS, DEFAULT_TIERS, Link, Links, Place, Tier
from heliotrope.cache.plans import CacheView, KvPool, kv_pool, plans_of
from heliotrope.cache.rules import KvRules
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import available, load

LENGTHS = (256, 1_024, 4_096, 16_384, 65_536)
WAYS: dict[str, Link] = {
    **{kind.value: link for kind, link in DEFAULT_LINKS.items()},
    **{tier.value: link for tier, link in DEFAULT_TIERS.items()},
}
SITUATIONS: dict[str, Situation] = {
    "idle": Situation(),
    "receiver_half_in_prefill": Situation(prefill_duty=0.5),
    "four_transfers_on_the_link": Situation(transfers=4),
    "full_memory_at_100_joules": Situation(memory_pressure=1.0, pressure_weight_joules=100.0),
    "sender_grid_ten_times_as_dirty": Situation(sender_dirt=10.0),
}
PLOTTED = ("llama-3.1-8b-h100", "llama-3.1-70b-a100-80gb-tp4")
COLORS = dict(zip(WAYS, ("#0072b2", "#009e73", "#e69f00", "#d55e00", "#56b4e9", "#cc79a7"), strict=True))
ENDPOINTS = 64


def curves(engine: EngineModel) -> dict[str, Any]:
    """Break-even lengths by way and situation, and both costs at some lengths on an idle pair."""
    return {
        "kv_bytes_per_token": engine.kv_bytes_per_token,
        "break_even_tokens": {
            way: {name: _or_none(break_even_tokens(engine, link, s)) for name, s in SITUATIONS.items()}
            for way, link in WAYS.items()
        },
        "recompute": {
            str(n): {"seconds": c.computed.seconds, "joules": c.computed.joules}
            for n in LENGTHS
            for c in [compare(engine, next(iter(WAYS.values())), n, Situation())]
        },
        "move": {
            way: {
                str(n): {"seconds": c.moved.seconds, "joules": c.moved.joules, "moves": c.moves}
                for n in LENGTHS
                for c in [compare(engine, link, n, Situation())]
            }
            for way, link in WAYS.items()
        },
    }


def decision_cost(rounds: int = 2_000) -> dict[str, Any]:
    """CPU of `plans_of` for 64 endpoints that all take part, and where nobody caches anything."""
    engine = load(PLOTTED[1])
    places = [Place(f"node-{i // 8}", None, f"region-{i % 3}") for i in range(ENDPOINTS)]
    pool = kv_pool([engine] * ENDPOINTS, places, [True] * ENDPOINTS, Links(), [Tier.CPU] * ENDPOINTS)
    cached = np.where(np.arange(ENDPOINTS) < 6, 8_000.0, 0.0)
    offloaded = np.where(np.arange(ENDPOINTS) % 4 == 3, 4_000.0, cached)
    cold = np.zeros(ENDPOINTS)
    return {
        "endpoints": ENDPOINTS,
        "pulls_and_reloads": _timed(_view(cached, offloaded), pool, rounds),
        "nothing_cached": _timed(_view(cold, cold), pool, rounds),
    }


def _view(cached: np.ndarray[Any, Any], offloaded: np.ndarray[Any, Any]) -> CacheView:
    load_column = np.arange(ENDPOINTS, dtype=np.float64)[::-1].copy()
    capacity = np.full(ENDPOINTS, 400_000.0)
    return CacheView(cached, offloaded, load_column, load_column * 0.0, load_column * 0.0, load_column * 1e3, capacity)


def _timed(view: CacheView, pool: KvPool, rounds: int) -> dict[str, Any]:
    rules = KvRules(memory_pressure_joules=10.0)
    plans = plans_of(view, pool, 9_000.0, rules)
    spent = []
    for _ in range(rounds):
        started = time.thread_time_ns()
        plans_of(view, pool, 9_000.0, rules)
        spent.append((time.thread_time_ns() - started) / 1_000.0)
    return {"plans": len(plans), "p50": float(np.percentile(spent, 50)), "p99": float(np.percentile(spent, 99))}


def plot(path: Path) -> None:
    """Seconds and joules by prefix length, and the break-even length by bandwidth and load."""
    lengths = np.geomspace(64, 131_072, 200)
    with mpl.rc_context({"font.size": 8, "axes.grid": True, "grid.alpha": 0.3}):
        figure = Figure(figsize=(11, 6.4), layout="constrained")
        axes = figure.subplots(len(PLOTTED), 3)
        for row, name in zip(axes, PLOTTED, strict=True):
            engine = load(name)
            _by_length(row[0], engine, lengths, "seconds")
            _by_length(row[1], engine, lengths, "joules")
            _by_load(row[2], engine)
            row[0].set_title(name, loc="left")
        axes[0][0].legend(fontsize=7)
        axes[0][2].legend(fontsize=7)
        figure.savefig(path, format="png", dpi=100)


def _by_length(axis: Axes, engine: EngineModel, lengths: np.ndarray[Any, Any], quantity: str) -> None:
    computed = [getattr(compare(engine, WAYS["node"], n, Situation()).computed, quantity) for n in lengths]
    axis.plot(lengths, computed, color="#222", linewidth=2, label="recompute")
    for way, link in WAYS.items():
        moved = [getattr(compare(engine, link, n, Situation()).moved, quantity) for n in lengths]
        axis.plot(lengths, moved, color=COLORS[way], label=way)
    axis.set(xscale="log", yscale="log", xlabel="prefix, tokens", ylabel=quantity)


def _by_load(axis: Axes, engine: EngineModel) -> None:
    """The region link at other rates."""
    rates = np.geomspace(1e8, 1e11, 200)
    base = DEFAULT_LINKS[next(kind for kind in DEFAULT_LINKS if kind.value == "region")]
    for (name, situation), style in zip(SITUATIONS.items(), ("-", "--", "-.", ":", (0, (1, 3))), strict=True):
        links = [
            Link(r, base.latency_seconds, base.network_joules_per_bit, *[base.sender_joules_per_bit] * 2) for r in rates
        ]
        lengths = np.array([break_even_tokens(engine, link, situation) for link in links])
        axis.plot(rates / 1e9, np.where(lengths < 1e6, lengths, np.nan), color="#0072b2", linestyle=style, label=name)
    axis.set(xscale="log", yscale="log", xlabel="bandwidth, GB/s", ylabel="break-even, tokens")


def _or_none(tokens: float) -> float | None:
    return tokens if isfinite(tokens) else None


def main() -> None:
    """Compute, print, store, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("build/bench/kv_crossover.json"))
    parser.add_argument("--plot", type=Path, help="write the figure of docs/kv-actions.md there")
    arguments = parser.parse_args()
    report = {
        "machine": describe(),
        "engines": {name: curves(load(name)) for name in available()},
        "decision_cpu_microseconds": decision_cost(),
    }
    text = json.dumps(report, indent=2)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(text + "\n")
    if arguments.plot is not None:
        plot(arguments.plot)
    print(text)


if __name__ == "__main__":
    main()
