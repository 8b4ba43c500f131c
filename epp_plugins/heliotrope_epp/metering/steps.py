"""The steps of an engine in some time: how many there were, and what the mean one was like."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np

from heliotrope.engine.model import EngineModel
from heliotrope.engine.work_weights import profile_prior
from heliotrope.predict.features import FloatColumn, StepInputs, step_rows
from heliotrope_epp.datalayer.endpoint import EngineMetrics, Traits
from heliotrope_epp.outcomes.energy import MeteredSteps, NoSteps

NAN = float("nan")


@dataclass(slots=True, eq=False)
class Steps:
    """What an engine's pages say of the steps in some time; NaN: they do not say."""

    count: float = 0.0
    seconds: float = 0.0
    power: float = 0.0
    """∫ watts over the time; so for the next one."""
    clock: float = 0.0

    def add(self, other: "Steps", share: float) -> None:
        """Add a share of another time."""
        self.count += share * other.count
        self.seconds += share * other.seconds
        self.power += share * other.power
        self.clock += share * other.clock


def unknown_steps(seconds: float) -> Steps:
    """A time of which nothing is known."""
    return Steps(NAN, seconds, NAN, NAN)


def steps_between(before: EngineMetrics, page: EngineMetrics) -> Steps:
    """What happened between two pages of one engine; watts and clock are the mean over both."""
    seconds = page.scraped_s - before.scraped_s
    return Steps(
        _difference(before.iterations_total, page.iterations_total),
        seconds,
        seconds * _mean(before.power_watts, page.power_watts),
        seconds * _mean(before.sm_clock_mhz, page.sm_clock_mhz),
    )


def metered_steps(
    traits: Traits, units: Sequence[float], steps: Steps, *, joules: float, busy_share: float
) -> MeteredSteps | NoSteps:
    """The steps of an engine that had its accelerators to itself, or why nothing can be said of them.

    Args:
        traits: of its endpoint.
        units: its work, in the order of `heliotrope.engine.work_weights.WorkWeights`.
        steps: what its pages say of the same time.
        joules: what it drew, without idle energy.
        busy_share: share of the time, in [0, 1], with work.
    """
    if isnan(steps.count):
        return NoSteps.UNCOUNTED
    if steps.count <= 0.0 or not any(units):
        return NoSteps.IDLE
    return MeteredSteps(steps.count, joules, busy_share, mean_step_row(traits, units, steps))


def mean_step_row(traits: Traits, units: Sequence[float], steps: Steps) -> FloatColumn:
    """The row (`heliotrope.predict.features.step_rows`) of the mean of these steps.

    Step energies are linear in everything that a row says of a step's work (`heliotrope.engine.model.StepEnergy`), so
    that the mean of their energies is the energy of their mean. Prefill and decode steps have bases of their own: the
    analytic estimate weighs them by how many of each there were.
    """
    prompts, prompt_tokens, squares, _, tokens, cached_tokens = (value / steps.count for value in units)
    rows = step_rows(
        StepInputs(
            hardware=traits.hardware_row[np.newaxis, :],
            batch=tokens,
            kv_tokens=cached_tokens,
            prefill_tokens=prompt_tokens,
            prefill_requests=prompts,
            prefill_squared_tokens=squares,
            sm_clock_mhz=steps.clock / steps.seconds if steps.seconds > 0.0 else NAN,
            power_watts=steps.power / steps.seconds if steps.seconds > 0.0 else NAN,
            analytic_step_joules=NAN if traits.engine is None else _analytic_joules(traits.engine, units, steps.count),
        )
    )
    row: FloatColumn = rows[0]
    return row


def _analytic_joules(engine: EngineModel, units: Sequence[float], count: float) -> float:
    """Of the mean step. Steps that do not decode prefill: at most one prompt each, at least what they have room for."""
    prompts, prompt_tokens, squares, decode_steps, tokens, cached_tokens = units
    fewest = min(prompt_tokens / max(engine.max_num_batched_tokens, 1), prompts)
    prefill_steps = min(max(count - decode_steps, fewest), prompts, count)
    work = np.array([prefill_steps, prompt_tokens, squares, count - prefill_steps, tokens, cached_tokens])
    return float(profile_prior(engine).weights.mean @ work) / count


def _difference(before: float | None, now: float | None) -> float:
    """NaN where it is unknown, or fell because the engine started again."""
    return NAN if before is None or now is None or now < before else now - before


def _mean(before: float | None, now: float | None) -> float:
    return NAN if before is None or now is None else (before + now) / 2.0
