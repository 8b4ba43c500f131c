"""What a decision asks: mean, typical value, 0.9 quantile and spread of every target, for all candidates in one call.

`LearnedModels` is immutable. To swap models is to assign another one to an attribute: a decision that is under way
keeps the one it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.predict.bundle import EMPTY, Bundle, TargetModel
from heliotrope.predict.costs import NO_COSTS, Costs, kinds_of
from heliotrope.predict.features import CATEGORIES, FloatColumn, Matrix
from heliotrope.predict.forest import joined
from heliotrope.predict.regimes import Regime
from heliotrope.predict.targets import ANALYTIC_COLUMN, REQUESTS, STEPS, Table, Target
from heliotrope.predict.walk import warm_up

HardwareKey = int
"""What `hardware_keys` gives: equal for endpoints of equal accelerator, model, role and tensor parallelism."""


class Level(IntEnum):
    """Which model answers, in the order of fall-back."""

    CURRENT = 0
    PREVIOUS = 1
    ANALYTIC = 2
    """None does: NaN, and the caller's analytic estimate holds."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Of n rows, in the unit of each target; NaN where no model answers. Arrays have shape (targets, n)."""

    targets: tuple[Target, ...]
    mean: NDArray[np.float64]
    """What many requests take on average: for what is added up, such as joules."""
    typical: NDArray[np.float64]
    """What errs least in relative terms: near what most take, where a few take very long, as latencies do."""
    q90: NDArray[np.float64]
    relative_error: NDArray[np.float64]
    """One standard deviation over the mean."""

    def mean_of(self, target: Target) -> FloatColumn:
        """The column of a target; so for the next three."""
        column: FloatColumn = self.mean[self.targets.index(target)]
        return column

    def typical_of(self, target: Target) -> FloatColumn:
        """See `mean_of`."""
        column: FloatColumn = self.typical[self.targets.index(target)]
        return column

    def q90_of(self, target: Target) -> FloatColumn:
        """See `mean_of`."""
        column: FloatColumn = self.q90[self.targets.index(target)]
        return column

    def relative_error_of(self, target: Target) -> FloatColumn:
        """See `mean_of`."""
        column: FloatColumn = self.relative_error[self.targets.index(target)]
        return column


class LearnedModels:
    """The promoted models, the ones before them, and where drift made which of them answer.

    Args:
        current: the promoted bundle.
        previous: the one that it replaced.
        levels: (target, hardware) pairs that `current` does not answer for.
    """

    def __init__(
        self,
        current: Bundle = EMPTY,
        previous: Bundle | None = None,
        levels: Mapping[tuple[Target, HardwareKey], Level] | None = None,
    ) -> None:
        self.current = current
        self.previous = previous
        self.levels = {} if levels is None else dict(levels)
        bundles = (current, EMPTY if previous is None else previous)
        self._answers = {table.name: [_Answers(bundle, table) for bundle in bundles] for table in (REQUESTS, STEPS)}

    @property
    def targets(self) -> frozenset[Target]:
        """Targets that a learned model answers for."""
        return frozenset(self.current.models)

    def warm_up(self) -> None:
        """Compile everything that a prediction calls, so that no request waits for it."""
        if self.current.models or (self.previous is not None and self.previous.models):
            warm_up()
            for table in (REQUESTS, STEPS):
                self._predict(table, np.full((1, len(table.features)), np.nan))

    def predict(self, rows: Matrix, asked: Mapping[Target, int] | None = None) -> Predictions:
        """TTFT, TPOT and energy of requests.

        Args:
            rows: as `heliotrope.predict.features.request_rows` builds them.
            asked: targets that are asked about the first so many rows only; NaN beyond.
        """
        return self._predict(REQUESTS, rows, asked)

    def predict_steps(self, rows: Matrix) -> Predictions:
        """Energy of engine steps; rows as `heliotrope.predict.features.step_rows` builds them."""
        return self._predict(STEPS, rows)

    def predict_at(self, level: Level, table: Table, rows: Matrix) -> Predictions:
        """What the models of one level say, whoever answers at present."""
        if level is Level.ANALYTIC:
            return _Answers(EMPTY, table).predict(rows)
        return self._answers[table.name][level].predict(rows)

    def with_levels(self, levels: Mapping[tuple[Target, HardwareKey], Level]) -> "LearnedModels":
        """The same bundles with other fall-backs; shares the compiled forests."""
        copy = LearnedModels.__new__(LearnedModels)
        copy.current, copy.previous, copy.levels, copy._answers = (
            self.current,
            self.previous,
            dict(levels),
            self._answers,
        )
        return copy

    def promoted(self, bundle: Bundle) -> "LearnedModels":
        """This bundle answers from now on; the one before it is kept; all fall-backs are forgotten."""
        return LearnedModels(bundle, self.current)

    def _predict(self, table: Table, rows: Matrix, asked: Mapping[Target, int] | None = None) -> Predictions:
        current, previous = self._answers[table.name]
        answers = current.predict(rows, asked)
        if not self.levels:
            return answers
        degraded = [(key, level) for key, level in self.levels.items() if key[0] in table.targets]
        if not degraded:
            return answers
        keys = hardware_keys(rows, table)
        older = previous.predict(rows, asked)
        for (target, hardware), level in degraded:
            row = table.targets.index(target)
            there = keys == hardware
            for values, instead in (
                (answers.mean, older.mean),
                (answers.typical, older.typical),
                (answers.q90, older.q90),
                (answers.relative_error, older.relative_error),
            ):
                values[row, there] = instead[row, there] if level is Level.PREVIOUS else np.nan
        return answers


class _Answers:
    """One bundle's models of one table, their forests joined."""

    def __init__(self, bundle: Bundle, table: Table) -> None:
        self._table = table
        models = [bundle.models[target] for target in table.targets if target in bundle.models]
        self._targets = tuple(model.target for model in models)
        self._of_models = _arrays(models, table) if models else ()

    def predict(self, rows: Matrix, asked: Mapping[Target, int] | None = None) -> Predictions:
        targets, n = self._table.targets, len(rows)
        out = np.empty((4, len(targets), n))
        out.fill(np.nan)
        if self._of_models and n:
            from heliotrope.predict.answers import write_answers

            ends = [n if asked is None else min(asked.get(target, n), n) for target in self._targets]
            rows = np.ascontiguousarray(rows, dtype=np.float64)
            write_answers()(rows, np.array(ends, dtype=np.int64), *self._of_models, out)
        return Predictions(targets, *out)


def _arrays(models: Sequence[TargetModel], table: Table) -> tuple[Any, ...]:
    """What `heliotrope.predict.answers.write_answers` takes of some models, at least one."""
    forest, begins = joined([model.forest for model in models])
    columns = [ANALYTIC_COLUMN[model.target] if model.analytic_base else -1 for model in models]
    return (
        table is REQUESTS,
        begins,
        *forest.arrays,
        *Bases([(model.target, model.costs) for model in models]).arrays,
        np.array(columns, dtype=np.int64),
        np.array([model.scale for model in models], dtype=np.float64),
        _factors(models),
        np.array([table.targets.index(model.target) for model in models], dtype=np.int64),
    )


class Bases:
    """The refitted bases of some models (`heliotrope.predict.base`), as one table."""

    def __init__(self, models: Sequence[tuple[Target, Costs]]) -> None:
        # numba is imported with the first model, not before.
        from heliotrope.predict.base import LAW_OF, Law, write_bases

        self._write = write_bases
        sizes = [len(costs.kinds) for _, costs in models]
        all_costs = [costs for _, costs in models] or [NO_COSTS]
        self.arrays = (
            np.array([int(LAW_OF.get(target, Law.NONE)) for target, _ in models], dtype=np.int64),
            np.array([0, *np.cumsum(sizes)], dtype=np.int64),
            np.ascontiguousarray(np.concatenate([costs.kinds for costs in all_costs])),
            np.ascontiguousarray(np.concatenate([costs.coefficients for costs in all_costs])),
        )
        """As `heliotrope.predict.base.write_bases` takes them: laws, begins, kinds and coefficients."""

    def of(self, rows: Matrix) -> Matrix:
        """Of these models, shape (models, n); NaN where a model has none."""
        laws = self.arrays[0]
        bases = np.empty((len(laws), len(rows)))
        if (laws < 0).all():
            bases.fill(np.nan)
        else:
            self._write(rows, kinds_of(rows), *self.arrays, bases)
        return bases


def _factors(models: Sequence[TargetModel]) -> NDArray[np.float64]:
    """(mean | typical | q90 | spread, models, regimes): what e^log is multiplied by, and the spread itself."""
    calibrations = [model.calibration for model in models]
    with np.errstate(over="ignore"):
        tables = [[np.exp(c.mean), np.exp(c.typical), np.exp(c.q90), c.spread] for c in calibrations]
    return np.ascontiguousarray(np.array(tables, dtype=np.float64).reshape(len(models), 4, len(Regime)).swapaxes(0, 1))


def hardware_keys(rows: Matrix, table: Table = REQUESTS) -> NDArray[np.int64]:
    """One number per row that names its hardware; rows without any description share one."""
    first = table.feature_names.index("accelerator")
    codes = np.nan_to_num(rows[:, first : first + 4] + 1.0, nan=0.0, posinf=0.0, neginf=0.0).astype(np.int64)
    accelerator, model, role, tensor_parallel = codes.T
    base = CATEGORIES + 1
    keys: NDArray[np.int64] = ((accelerator * base + model) * base + role) * base + tensor_parallel
    return keys
