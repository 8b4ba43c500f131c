"""Watches whether the models that answer still hold, and lets the previous or the analytic one answer where not."""

import logging
from collections import Counter, deque
from collections.abc import Iterable

from heliotrope.predict.drift import Drift, DriftMonitor
from heliotrope.predict.models import Level
from heliotrope.predict.sample import Sample
from heliotrope.predict.targets import TABLES
from heliotrope_epp.learning.holder import ModelHolder

MAX_WAITING = 32
"""Samples that one call of `observe` looks at: the newest. More would tell the same and hold up the loop."""

_log = logging.getLogger(__name__)


class DriftWatch:
    """Owned by the loop's thread. Samples are looked at together, which costs a fraction of one by one."""

    def __init__(self, holder: ModelHolder) -> None:
        self._holder = holder
        self._monitor = DriftMonitor()
        self._waiting: deque[Sample] = deque(maxlen=MAX_WAITING)
        self.drifts: Counter[tuple[str, str]] = Counter()
        """Since start, by target and by who answers after it."""

    def add(self, sample: Sample) -> None:
        """Look at it at the next `observe`."""
        self._waiting.append(sample)

    def observe(self) -> list[Drift]:
        """Compare what was collected with what the models say; returns and applies what has drifted."""
        samples, models = list(self._waiting), self._holder.current
        self._waiting.clear()
        if not models.targets:
            return []
        drifts: list[Drift] = []
        for table in TABLES.values():
            drifts += self._monitor.observe(models, [sample for sample in samples if sample.table is table])
        if drifts:
            self._tell(drifts)
            self._holder.current = models.with_levels(self._monitor.levels)
        return drifts

    def judged(self) -> None:
        """A training was judged, so what drifted before says nothing about who answers now."""
        self._monitor.judged()
        self._waiting.clear()
        if self._holder.current.levels:
            self._holder.current = self._holder.current.with_levels({})

    def _tell(self, drifts: Iterable[Drift]) -> None:
        for drift in drifts:
            self.drifts[drift.target.value, drift.after.name.lower()] += 1
            if drift.after is drift.before:
                continue
            fields = {
                "target": drift.target.value,
                "hardware": drift.hardware,
                "since_unix_s": round(drift.since_unix_s, 1),
                "error": round(drift.error, 3),
                "answers_now": drift.after.name.lower(),
            }
            _log.warning("a learned model no longer holds", extra={"fields": fields})


def worst_levels(holder: ModelHolder) -> dict[str, Level]:
    """By target of the current models: the level of the hardware that has fallen back furthest."""
    models = holder.current
    worst = {target.value: Level.CURRENT for target in models.targets}
    for (target, _), level in models.levels.items():
        if target.value in worst:
            worst[target.value] = max(worst[target.value], level)
    return worst
