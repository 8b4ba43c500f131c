"""A pool whose laws are known, so that what is learned of it can be judged."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from heliotrope.predict.features import (
    EndpointInputs,
    HardwareDescription,
    RequestInputs,
    StepInputs,
    hardware_matrix,
    request_rows,
    step_rows,
)
from heliotrope.predict.targets import REQUESTS, STEPS
from heliotrope.predict.trainingset import Split, TrainingSet

FAST = HardwareDescription(
    "H100", "llama", "both", 1.0, 128.0, 8192.0, 200e3, 2e-3, 2e-5, 6e-3, 4e-5, 0.03, 2.0, 0.2, 90.0
)
SLOW = HardwareDescription(
    "A100", "llama", "both", 1.0, 64.0, 4096.0, 100e3, 4e-3, 6e-5, 1e-2, 9e-5, 0.05, 3.0, 0.3, 60.0
)
KINDS = (FAST, SLOW)
BIAS = {"A100": 1.4, "H100": 0.8}
"""By which the analytic model is wrong there."""


def split_column(n: int) -> np.ndarray:
    """14 : 3 : 3, as keys decide it."""
    order = np.arange(n) % 20
    return np.where(order < 14, Split.TRAIN, np.where(order < 17, Split.CALIBRATE, Split.TEST)).astype(np.uint8)


def pool(n: int, seed: int, bias: float = 1.0, noise: float = 0.03, kinds: tuple[int, ...] = (0, 1)) -> TrainingSet:
    """n requests; `bias` is a change of everything that no feature shows."""
    rng = np.random.default_rng(seed)
    rows, truths = [], []
    for _ in range(n):
        kind = KINDS[int(rng.choice(kinds))]
        running = float(rng.integers(0, int(kind.max_num_seqs)))
        waiting = float(rng.integers(0, 10)) if rng.random() < 0.2 else 0.0
        prompt, output = float(rng.integers(50, 4000)), float(rng.integers(10, 600))
        cached = float(rng.integers(0, int(prompt)))
        ttft = 0.01 + kind.prefill_base_seconds + kind.prefill_seconds_per_token * (prompt - cached + 500.0 * waiting)
        tpot = kind.decode_base_seconds + kind.decode_seconds_per_request * running
        prefill = kind.prefill_joules_per_token * (prompt - cached) + 1.0
        joules = prefill + output * (kind.decode_base_joules / (running + 1.0) + kind.decode_joules_per_request)
        endpoint = EndpointInputs(
            hardware=hardware_matrix([kind.row()]),
            running=running,
            waiting=waiting,
            waiting_tokens=500.0 * waiting,
            oldest_waiting_seconds=0.0,
            kv_tokens=running * 500.0,
            prefill_duty=0.1,
            cached_tokens=cached,
            sm_clock_mhz=1400.0,
            power_watts=300.0,
            analytic_ttft_seconds=ttft,
            analytic_tpot_seconds=tpot,
            analytic_request_joules=joules,
            analytic_prefill_joules=prefill,
        )
        rows.append(request_rows(RequestInputs(prompt, output), endpoint))
        wrong = BIAS[str(kind.accelerator)] * bias
        crowding = 1.0 + 0.3 * (running / kind.max_num_seqs > 0.5)
        truths.append([ttft * wrong, tpot * wrong * crowding, joules * wrong * crowding])
    labels = np.array(truths) * np.exp(rng.normal(0.0, noise, (n, 3)))
    return TrainingSet(REQUESTS, np.concatenate(rows), labels, np.arange(n, dtype=np.float64), split_column(n))


def steps(n: int, seed: int) -> TrainingSet:
    """n decode steps that draw a tenth more than the analytic model says."""
    rng = np.random.default_rng(seed)
    hardware = hardware_matrix([KINDS[int(k)].row() for k in rng.integers(0, 2, n)])
    batch = rng.integers(1, 64, n).astype(np.float64)
    analytic = 3.0 + 0.25 * batch
    rows = step_rows(StepInputs(hardware, batch, batch * 500.0, sm_clock_mhz=1400.0, analytic_step_joules=analytic))
    labels = (1.1 * analytic * np.exp(rng.normal(0.0, 0.02, n)))[:, np.newaxis]
    return TrainingSet(STEPS, rows, labels, np.arange(n, dtype=np.float64), split_column(n))


@pytest.fixture
def make_pool() -> Callable[..., TrainingSet]:
    return pool


@pytest.fixture
def make_steps() -> Callable[..., TrainingSet]:
    return steps


@cache
def _standard() -> tuple[TrainingSet, TrainingSet]:
    return pool(2_000, seed=1), steps(1_000, seed=2)


@pytest.fixture
def sets() -> tuple[TrainingSet, TrainingSet]:
    """Enough to learn the pool's laws from; made once per process."""
    return _standard()
