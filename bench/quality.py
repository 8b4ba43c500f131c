"""What predicting quality costs the picker's loop, per request: task class, table, trained predictor, rewritten body.

    uv run python bench/quality.py [--repeats 2000]

Prompts are random words of a fixed seed; the trained predictor has five models with random weights, as its time does
not depend on what it has learned.
"""

import argparse
import json
import random
import time
from collections.abc import Callable

import numpy as np
from machine import describe

from heliotrope.predict.task_class import task_class
from heliotrope.predict.text_quality import BUCKETS, TextQuality
from heliotrope_epp.plugins.models.predictor import DEFAULT_CORE_WATTS
from heliotrope_epp.plugins.models.rewrite import rewritten

SIZES = (512, 4_096, 65_536)
MODELS = 5


def measured(what: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median and 99th percentile of the thread's processor time in microseconds."""
    spent = []
    for _ in range(repeats):
        start = time.thread_time_ns()
        what()
        spent.append((time.thread_time_ns() - start) / 1_000.0)
    return float(np.percentile(spent, 50)), float(np.percentile(spent, 99))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=2_000)
    repeats = parser.parse_args().repeats
    draw, rng = random.Random(1), np.random.default_rng(1)
    weights = {f"m{i}": rng.normal(size=BUCKETS + 1).astype(np.float32) for i in range(MODELS)}
    model = TextQuality(weights, dict.fromkeys(weights, 0.5))
    print(json.dumps(describe()))
    print(f"{'bytes':>7} {'step':<14} {'p50 µs':>9} {'p99 µs':>9} {'p50 J':>10}")
    for size in SIZES:
        words = " ".join("".join(draw.choices("etaoinshrdlu", k=draw.randint(2, 9))) for _ in range(size // 4))
        prompt = words.encode()[:size]
        body = json.dumps({"model": "large", "messages": [{"role": "user", "content": prompt.decode()}]}).encode()
        for step, what in (
            ("task class", lambda prompt=prompt: task_class(prompt)),
            ("trained", lambda prompt=prompt: model.predict(prompt)),
            ("rewritten body", lambda body=body: rewritten(body, "small")),
        ):
            what()
            median, high = measured(what, repeats)
            joules = median * 1e-6 * DEFAULT_CORE_WATTS
            print(f"{size:>7} {step:<14} {median:>9.1f} {high:>9.1f} {joules:>10.2e}")


if __name__ == "__main__":
    main()
