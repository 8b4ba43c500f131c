"""Notices when a model no longer holds for a kind of hardware, and who answers instead.

Per target and hardware a one-sided CUSUM (Page 1954) runs over the size of log residuals, in units of the spread that
held-out data had in the same load regime. While the model holds, a residual is below one spread on average and the sum
stays near 0; after a change it climbs, and the last time it was 0 dates the change. Then the first of previous model
and analytic model whose own recent error is smaller answers, for that target and hardware only, until the next
training has been judged.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from heliotrope.predict.models import HardwareKey, LearnedModels, Level, Predictions, hardware_keys
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import ANALYTIC_COLUMN, Target

ALLOWED = 1.5
"""Spreads by which a residual may err on average; when a model holds it is 0.8."""
ALARM = 15.0
"""Sum of what exceeds it: about ten residuals of three spreads in a row."""
LARGEST = 5.0
"""Spreads that one residual counts at most, so that no single outlier gives an alarm."""
MIN_SPREAD = 0.03
"""A model that errs by less than this is not suspected, however small its spread was."""
RECENT = 0.95
"""Weight of an error relative to the next: a window of 20."""
UNKNOWN_ERROR = 0.5
"""Error of a missing estimate, when it is compared with a wrong one."""
MAX_KEYS = 1_024


@dataclass(frozen=True, slots=True)
class Drift:
    """A model no longer holds."""

    target: Target
    hardware: HardwareKey
    since_unix_s: float
    """When the first change since the last training began, as far as the errors tell."""
    at_unix_s: float
    before: Level
    after: Level
    """Who answers from now on; may be the same, if nobody errs less."""
    error: float
    """Recent mean absolute log error of the level that answered."""


@dataclass(slots=True)
class _Watch:
    level: Level = Level.CURRENT
    excess: float = 0.0
    since_unix_s: float = 0.0
    alarmed: bool = False
    """An alarm was given since the last training: the date stands."""
    errors: dict[Level, float] = field(default_factory=dict)
    """Recent mean absolute log error by level, of the levels that have an estimate."""


class DriftMonitor:
    """A state machine over observed samples; owned by one thread. Pairs beyond `max_keys` push out the oldest.

    A pair is reported at its first alarm since the last training, and whenever another level takes over.
    """

    def __init__(self, max_keys: int = MAX_KEYS) -> None:
        self._watches: OrderedDict[tuple[Target, HardwareKey], _Watch] = OrderedDict()
        self._max_keys = max_keys

    @property
    def levels(self) -> dict[tuple[Target, HardwareKey], Level]:
        """Pairs that the current model does not answer for: what `LearnedModels.with_levels` takes."""
        return {key: watch.level for key, watch in self._watches.items() if watch.level is not Level.CURRENT}

    def judged(self) -> None:
        """A training was judged: whoever answers now has just been compared with the rest, and starts afresh."""
        self._watches.clear()

    def observe(self, models: LearnedModels, samples: Sequence[Sample]) -> list[Drift]:
        """Compare samples of one table with what every level says of them; returns what has drifted."""
        if not samples:
            return []
        table = samples[0].table
        rows = np.array([sample.row for sample in samples])
        current = models.predict_at(Level.CURRENT, table, rows)
        previous = models.predict_at(Level.PREVIOUS, table, rows)
        keys = hardware_keys(rows, table)
        drifts = []
        for target in table.targets:
            if target not in models.current.models:
                continue
            for i, sample in enumerate(samples):
                label = sample.labels[table.targets.index(target)]
                if np.isnan(label):
                    continue
                errors = _errors(target, i, float(label), rows, current, previous)
                spreads = {
                    Level.CURRENT: float(current.relative_error_of(target)[i]),
                    Level.PREVIOUS: float(previous.relative_error_of(target)[i]),
                }
                drift = self._step(target, int(keys[i]), sample.at_unix_s, errors, spreads)
                if drift is not None:
                    drifts.append(drift)
        return drifts

    def _step(
        self,
        target: Target,
        hardware: HardwareKey,
        at_unix_s: float,
        errors: dict[Level, float],
        spreads: dict[Level, float],
    ) -> Drift | None:
        watch = self._watch(target, hardware, at_unix_s)
        for level, error in errors.items():
            before = watch.errors.get(level, error)
            watch.errors[level] = RECENT * before + (1.0 - RECENT) * error
        if watch.level is Level.ANALYTIC or watch.level not in errors:  # models were exchanged meanwhile
            return None
        spread = max(spreads[watch.level], MIN_SPREAD)
        surplus = min(errors[watch.level] / spread, LARGEST) - ALLOWED
        watch.excess += surplus
        if watch.excess <= 0.0:
            watch.excess = 0.0
            if not watch.alarmed:
                watch.since_unix_s = at_unix_s
        if watch.excess <= ALARM:
            return None
        # Recent errors lag behind a change, so who errs less is asked again at every further alarm.
        first, before, error = not watch.alarmed, watch.level, watch.errors[watch.level]
        watch.excess, watch.alarmed, watch.level = 0.0, True, _instead(watch)
        if not first and watch.level is before:
            return None
        return Drift(target, hardware, watch.since_unix_s, at_unix_s, before, watch.level, error)

    def _watch(self, target: Target, hardware: HardwareKey, at_unix_s: float) -> _Watch:
        key = (target, hardware)
        watch = self._watches.get(key)
        if watch is None:
            watch = self._watches[key] = _Watch(since_unix_s=at_unix_s)
            if len(self._watches) > self._max_keys:
                self._watches.popitem(last=False)
        else:
            self._watches.move_to_end(key)
        return watch


def _errors(
    target: Target, i: int, label: float, rows: np.ndarray, current: Predictions, previous: Predictions
) -> dict[Level, float]:
    estimates = {
        Level.CURRENT: current.typical_of(target)[i],
        Level.PREVIOUS: previous.typical_of(target)[i],
        Level.ANALYTIC: rows[i, ANALYTIC_COLUMN[target]],
    }
    return {level: float(abs(np.log(label / each))) for level, each in estimates.items() if 0.0 < each < np.inf}


def _instead(watch: _Watch) -> Level:
    """The first level further down whose recent error is smaller than that of the one that answers."""
    error = watch.errors[watch.level]
    for level in (Level.PREVIOUS, Level.ANALYTIC):
        unknown = np.inf if level is Level.PREVIOUS else UNKNOWN_ERROR
        if watch.errors.get(level, unknown) < error:
            return level
    return watch.level
