"""The feature rows and labels of observed runs, in the columns of `heliotrope.predict.features`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from heliotrope.decide.rows import describe
from heliotrope.predict.features import Matrix, StepInputs, step_rows
from heliotrope_sim.engine import Phase
from heliotrope_sim.evaluation.scores import Floats
from heliotrope_sim.evaluation.sweep import Observed, ObservedStep, RunResult

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests of several runs; row i of everything is one request."""

    rows: Matrix
    """As the picker would have built them when it decided."""
    ttft_seconds: Floats
    tpot_seconds: Floats
    joules: Floats
    output_tokens: Floats
    met_step_seconds: Floats
    utilisation: Floats
    run: Ints
    hardware: NDArray[np.str_]
    model: NDArray[np.str_]
    profiled: Bools
    alone: Bools
    """No other picker sends requests there."""
    application: NDArray[np.str_]
    ended_s: Floats

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, chosen: Bools) -> "Requests":
        """The chosen ones, in their order."""
        return Requests(
            self.rows[chosen],
            self.ttft_seconds[chosen],
            self.tpot_seconds[chosen],
            self.joules[chosen],
            self.output_tokens[chosen],
            self.met_step_seconds[chosen],
            self.utilisation[chosen],
            self.run[chosen],
            self.hardware[chosen],
            self.model[chosen],
            self.profiled[chosen],
            self.alone[chosen],
            self.application[chosen],
            self.ended_s[chosen],
        )


@dataclass(frozen=True, slots=True)
class Steps:
    """Engine steps of several runs."""

    rows: Matrix
    joules: Floats
    run: Ints
    hardware: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, chosen: Bools) -> "Steps":
        """The chosen ones, in their order."""
        return Steps(self.rows[chosen], self.joules[chosen], self.run[chosen], self.hardware[chosen])


def requests_of(runs: Sequence[RunResult]) -> Requests:
    """Every counted request of the runs, in order."""
    observed = [(i, run, o) for i, run in enumerate(runs) for o in run.requests]

    def column(value: Callable[[RunResult, Observed], float]) -> Floats:
        return np.array([value(run, o) for _, run, o in observed], dtype=np.float64)

    return Requests(
        rows=np.array([o.row for _, _, o in observed]),
        ttft_seconds=column(lambda _, o: o.ttft_seconds),
        tpot_seconds=column(lambda _, o: o.tpot_seconds),
        joules=column(lambda _, o: o.energy_joules),
        output_tokens=column(lambda _, o: float(o.output_tokens)),
        met_step_seconds=column(lambda _, o: o.met_step_seconds),
        utilisation=column(lambda run, _: run.utilisation),
        run=np.array([i for i, _, _ in observed], dtype=np.int64),
        hardware=np.array([run.endpoint.hardware.accelerator for _, run, _ in observed]),
        model=np.array([run.endpoint.hardware.model for _, run, _ in observed]),
        profiled=np.array([run.endpoint.believed is not None for _, run, _ in observed], dtype=np.bool_),
        alone=np.array([run.own_share == 1.0 for _, run, _ in observed], dtype=np.bool_),
        application=np.array([o.application for _, _, o in observed]),
        ended_s=column(lambda _, o: o.ended_s),
    )


def steps_of(runs: Sequence[RunResult]) -> Steps:
    """Every kept step of the runs, in order."""
    rows = [_step_rows(run, run.steps) for run in runs if run.steps]
    return Steps(
        rows=np.concatenate(rows),
        joules=np.array([s.joules for run in runs for s in run.steps]),
        run=np.array([i for i, run in enumerate(runs) for _ in run.steps], dtype=np.int64),
        hardware=np.array([run.endpoint.hardware.accelerator for run in runs for _ in run.steps]),
    )


def _step_rows(run: RunResult, steps: Sequence[ObservedStep]) -> Matrix:
    endpoint = run.endpoint
    prefill = np.array([s.phase is Phase.PREFILL for s in steps])
    tokens = np.array([float(s.tokens) for s in steps])
    participants = np.array([float(s.participants) for s in steps])
    prefill_tokens, prefill_requests = np.where(prefill, tokens, 0.0), np.where(prefill, participants, 0.0)
    batch = np.where(prefill, 0.0, participants)
    kv_tokens = np.array([float(s.kv_tokens) for s in steps])
    # Nobody outside knows the lengths apart: as if all prompts of a step were equally long.
    squares = prefill_tokens**2 / np.maximum(prefill_requests, 1.0)
    believed = endpoint.believed
    analytic = np.full(len(steps), np.nan)
    if believed is not None:
        analytic = believed.prefill_joules(prefill_tokens, squares) + believed.decode_joules(batch, kv_tokens)
    hardware = describe(endpoint.hardware, believed).row()
    return step_rows(
        StepInputs(
            hardware=np.tile(hardware, (len(steps), 1)),
            batch=batch,
            kv_tokens=kv_tokens,
            prefill_tokens=prefill_tokens,
            prefill_requests=prefill_requests,
            prefill_squared_tokens=squares,
            sm_clock_mhz=float(endpoint.engine.clock_mhz),
            power_watts=np.array([s.power_watts for s in steps]),
            analytic_step_joules=analytic,
        )
    )
