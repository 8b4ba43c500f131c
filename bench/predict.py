"""The learned models' cost: microseconds for 64 candidates, all targets together, and the memory that they add.

    uv run python bench/predict.py [--quick] [--output build/bench/predict.json]

A decision's whole way is timed: rows from columns, the walk through the trees of TTFT, TPOT and request energy, base,
quantiles and spread; and the same for 64 steps' energy. Inputs change from call to call, so that no cache or branch
predictor learns them by heart. Models are trained on a synthetic pool of three kinds of hardware, with the trees,
leaves and depth that the picker's have. Memory is measured in fresh processes.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe, spin_milliseconds

from heliotrope.predict.bundle import Bundle, parse_bundle
from heliotrope.predict.features import (
    EndpointInputs,
    HardwareDescription,
    RequestInputs,
    StepInputs,
    hardware_matrix,
    request_rows,
    step_rows,
)
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.output_length import LengthContext, OutputLengths
from heliotrope.predict.targets import REQUESTS, STEPS
from heliotrope.predict.training import train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope.predict.walk import warm_up

CANDIDATES = 64
KINDS = [
    HardwareDescription(
        "H100", "llama-8b", "both", 1.0, 256.0, 8192.0, 400e3, 2e-3, 2.2e-5, 6e-3, 4e-5, 0.03, 2.0, 0.2, 90.0
    ),
    HardwareDescription(
        "A100", "llama-8b", "both", 1.0, 128.0, 4096.0, 150e3, 4e-3, 6e-5, 1.1e-2, 9e-5, 0.05, 3.0, 0.3, 60.0
    ),
    HardwareDescription(
        "L4", "llama-8b", "decode", 2.0, 64.0, 2048.0, 60e3, 8e-3, 2e-4, 3e-2, 3e-4, 0.06, 1.5, 0.3, 30.0
    ),
]
"""The third has no engine profile: no analytic estimates."""
RSS_CODE = """
import sys
sys.path.insert(0, {bench!r})
import os
from machine import rss_megabytes
import numpy as np
from heliotrope.predict import features, bundle, models
before = rss_megabytes(os.getpid())
learned = models.LearnedModels(bundle.parse_bundle(open({path!r}).read()))
parsed = rss_megabytes(os.getpid())
learned.warm_up()
learned.predict(np.zeros((64, features.FEATURE_COUNT)))
print(before, parsed, rss_megabytes(os.getpid()))
"""


def endpoints(rng: np.random.Generator, n: int) -> EndpointInputs:
    """Random states of n endpoints."""
    kinds = rng.integers(0, len(KINDS), n)
    rows = [kind.row() for kind in KINDS]
    hardware = hardware_matrix([rows[kind] for kind in kinds])
    running = np.floor(hardware[:, 4] * rng.random(n))
    waiting = np.where(rng.random(n) < 0.2, rng.integers(0, 20, n), 0.0)
    duty = rng.random(n) * 0.6
    known = np.where(kinds == 2, np.nan, 1.0)
    tokens = 300.0 * rng.random(n) + 50.0
    return EndpointInputs(
        hardware=hardware,
        running=running,
        waiting=waiting,
        waiting_tokens=waiting * 700.0,
        oldest_waiting_seconds=waiting * 0.05,
        kv_tokens=running * 600.0,
        prefill_duty=duty,
        cached_tokens=np.floor(rng.random(n) * 300.0),
        sm_clock_mhz=np.full(n, 1410.0),
        power_watts=60.0 + 240.0 * rng.random(n),
        analytic_ttft_seconds=known * (0.02 + hardware[:, 8] * (700.0 + waiting * 700.0)),
        analytic_tpot_seconds=known * (hardware[:, 9] + hardware[:, 10] * running),
        analytic_request_joules=known * (hardware[:, 11] * 700.0 + tokens),
        analytic_prefill_joules=known * hardware[:, 11] * 700.0,
    )


def request(rng: np.random.Generator) -> RequestInputs:
    """A random request."""
    return RequestInputs(float(rng.integers(300, 4000)), float(rng.integers(20, 800)))


def steps(rng: np.random.Generator, n: int) -> StepInputs:
    """Random decode steps."""
    hardware = hardware_matrix([KINDS[kind].row() for kind in rng.integers(0, 2, n)])
    batch = np.floor(hardware[:, 4] * rng.random(n)) + 1.0
    joules = hardware[:, 12] + hardware[:, 13] * batch
    return StepInputs(hardware, batch, batch * 600.0, sm_clock_mhz=1410.0, analytic_step_joules=joules)


def trained(seed: int, samples: int) -> Bundle:
    """Models of all targets, as large as the picker's."""
    rng = np.random.default_rng(seed)
    splits = (np.arange(samples) % 20 >= 14).astype(np.uint8) + (np.arange(samples) % 20 >= 17)
    times = np.arange(samples, dtype=np.float64)
    rows = np.concatenate([request_rows(request(rng), endpoints(rng, 1)) for _ in range(samples)])
    column = {name: rows[:, i] for i, name in enumerate(REQUESTS.feature_names)}
    noise = np.exp(rng.normal(0.0, 0.05, (3, samples)))
    duty = 1.0 - column["prefill_duty"]
    ttft = (0.03 + column["prefill_seconds_per_token"] * (column["uncached_tokens"] + column["waiting_tokens"])) / duty
    tpot = (column["decode_base_seconds"] + column["decode_seconds_per_request"] * column["running"]) / duty
    joules = column["prefill_joules_per_token"] * column["uncached_tokens"] + column["expected_output_tokens"] * (
        column["decode_base_joules"] / column["batch"] + column["decode_joules_per_request"]
    )
    labels = np.stack([ttft * noise[0], tpot * noise[1], joules * noise[2]], axis=1)
    step = step_rows(steps(rng, samples))
    step_labels = step[:, [7]] * np.exp(0.1 * np.sin(step[:, [0]] / 20.0) + rng.normal(0.0, 0.03, (samples, 1)))
    sets = [TrainingSet(REQUESTS, rows, labels, times, splits), TrainingSet(STEPS, step, step_labels, times, splits)]
    return train(sets, seed, 0.0)


def microseconds(call: Any, inputs: list[Any], rounds: int) -> dict[str, float]:
    """Percentiles of single calls over changing inputs."""
    times = []
    for _ in range(rounds):
        for each in inputs:
            started = time.perf_counter()
            call(*each)
            times.append((time.perf_counter() - started) * 1e6)
    return {f"p{q}": float(np.percentile(times, q)) for q in (5, 50, 95, 99)}


def measure(bundle: Bundle, seed: int, rounds: int) -> dict[str, Any]:
    """Times of the parts and of the whole."""
    rng = np.random.default_rng(seed)
    models = LearnedModels(parse_bundle(bundle.to_text()))
    inputs = [(request(rng), endpoints(rng, CANDIDATES)) for _ in range(50)]
    step_inputs = [(steps(rng, CANDIDATES),) for _ in range(50)]
    rows = [(request_rows(*each),) for each in inputs]

    def whole(asked: RequestInputs, there: EndpointInputs) -> None:
        models.predict(request_rows(asked, there))

    def whole_steps(there: StepInputs) -> None:
        models.predict_steps(step_rows(there))

    def everything(asked: RequestInputs, there: EndpointInputs, step: StepInputs) -> None:
        whole(asked, there)
        whole_steps(step)

    both = [(*a, *b) for a, b in zip(inputs, step_inputs, strict=True)]
    lengths, contexts = learned_lengths(rng)
    return {
        "features_us": microseconds(request_rows, inputs, rounds),
        "predict_us": microseconds(models.predict, rows, rounds),
        "request_targets_us": microseconds(whole, inputs, rounds),
        "step_energy_us": microseconds(whole_steps, step_inputs, rounds),
        "all_targets_us": microseconds(everything, both, rounds),
        "one_candidate_us": microseconds(models.predict, [(each[0][:1],) for each in rows], rounds),
        "output_length_us": microseconds(lengths.predict, contexts, rounds),
    }


def learned_lengths(rng: np.random.Generator) -> tuple[OutputLengths, list[tuple[LengthContext, float]]]:
    """Output lengths after 5,000 answers of 100 applications."""
    lengths = OutputLengths()
    contexts = [
        LengthContext(f"model-{i % 3}", f"tenant-{i % 20}", int(rng.integers(10, 5000)), 1024, streaming=i % 2 == 0)
        for i in range(100)
    ]
    for i in range(5_000):
        context = contexts[i % len(contexts)]
        lengths.started(context.model, float(i))
        lengths.ended(context.model, float(i), i + 0.5, int(rng.integers(1, 1000)), context)
    return lengths, [(context, 5_000.0) for context in contexts]


def memory(bundle: Bundle, folder: Path) -> dict[str, float]:
    """Resident megabytes that models add to a process which has imported numpy."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "predict-bundle.txt"
    path.write_text(bundle.to_text())
    code = RSS_CODE.format(bench=str(Path(__file__).parent), path=str(path))
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    before, parsed, after = (float(each) for each in answer.split())
    return {"before_mb": before, "bundle_mb": parsed - before, "walker_mb": after - parsed}


def main() -> None:
    """Run, print, store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer samples and rounds")
    parser.add_argument("--output", type=Path, default=Path("build/bench/predict.json"))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    warm_up()
    warm_up_seconds = time.perf_counter() - started
    started = time.perf_counter()
    bundle = trained(arguments.seed, 2_000 if arguments.quick else 10_000)
    seconds = time.perf_counter() - started
    report = {
        "machine": describe(),
        "candidates": CANDIDATES,
        "seed": arguments.seed,
        "compile_or_load_seconds": warm_up_seconds,
        "training_seconds": seconds,
        "bundle_bytes": len(bundle.to_text()),
        "trees": {str(target): model.forest.trees for target, model in bundle.models.items()},
        "scores": {
            str(target): {"mape": m.scores.mape, "coverage": m.scores.coverage} for target, m in bundle.models.items()
        },
        "microseconds": measure(bundle, arguments.seed, 20 if arguments.quick else 100),
        "memory": memory(bundle, arguments.output.parent),
        "spin_milliseconds_after": spin_milliseconds(),
    }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
