"""What all parts of the study share: the policies' names for runs, and the years that were placed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliotrope.carbon.bootstrap import Interval
from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.grid.curtailment import Floats
from heliotrope_sim.reproduce.grid.demand import Demand, demand
from heliotrope_sim.reproduce.grid.rates import Rates, credited, rates
from heliotrope_sim.reproduce.grid.replay import Placed
from heliotrope_sim.reproduce.grid.runs import (
    CLEANEST_FIRST,
    LEAST_LOADED,
    ROUND_ROBIN,
    SOFT_MULTIPLIER,
    Run,
)
from heliotrope_sim.reproduce.grid.settle import BLOCK_HOURS, RESAMPLES, fixed_joules, hourly_grams, saving
from heliotrope_sim.reproduce.report import Picture, Sheet
from heliotrope_sim.reproduce.row import Row

PER_ZONE = 10
PER_ZONE_QUICK = 2
"""Cohorts of an hour, over the number of zones."""
RESAMPLES_QUICK = 1_000
FINER = 4
"""The soft multiplier balances loads against each other, so it is asked in smaller cohorts by this factor."""


@dataclass(frozen=True, slots=True)
class Arms:
    """Runs by what the paper calls them."""

    settings: Settings

    def round_robin(self) -> Run:
        """An even split."""
        return self._run(ROUND_ROBIN, 1)

    def blind(self) -> Run:
        """Served where it arises; what saturates a zone goes to the least loaded."""
        return self._run(LEAST_LOADED, 1, local=True)

    def soft(self, **changes: Any) -> Run:
        """The soft multiplier, w = 1 and sessions pinned unless changed."""
        return self._run(SOFT_MULTIPLIER, FINER, **changes)

    def capped(self, **changes: Any) -> Run:
        """Capped cleanest-first, 50 % and sessions pinned unless changed."""
        return self._run(CLEANEST_FIRST, 1, **changes)

    def _run(self, scheduler: str, finer: int, **changes: Any) -> Run:
        settings = self.settings
        per_zone = PER_ZONE_QUICK if settings.quick else PER_ZONE
        cohorts = per_zone * finer * len(rates(settings.moer).zones)
        return Run(scheduler, cohorts, settings.seed, settings.moer, **changes)


@dataclass(frozen=True, slots=True)
class Study:
    """All years, and how they are settled."""

    arms: Arms
    placed: Mapping[Run, Placed]
    _saved: dict[tuple[Run, Run], Interval] = field(default_factory=dict, repr=False)
    """What rows and pictures ask for again."""

    @property
    def settings(self) -> Settings:
        """Seed and size."""
        return self.arms.settings

    @property
    def rates(self) -> Rates:
        """Zeros as they are."""
        return rates(self.settings.moer)

    @property
    def demand(self) -> Demand:
        """Of the same hours."""
        return demand(self.rates)

    @property
    def label(self) -> str:
        """What ours is called in plots."""
        return "illustration" if self.settings.moer is None else "your rates"

    def of_stand_in(self, text: str) -> str:
        """A remark that holds only where a model stands in for marginal rates."""
        return text if self.settings.moer is None else ""

    def settled(self, alpha: float) -> Rates:
        """Rates with credit α for zeros."""
        return credited(self.settings.moer, alpha)

    def joules(self, run: Run) -> Floats:
        """At the paper's fixed energy per token, by hour and zone."""
        return fixed_joules(self.placed[run], self.demand.total)

    def grams(self, run: Run, alpha: float | None = None) -> Floats:
        """Of each hour, at the run's own credit or another."""
        return hourly_grams(self.joules(run), self.settled(run.credit if alpha is None else alpha).g_per_kwh)

    def saved(self, run: Run, baseline: Run | None = None) -> Interval:
        """Against round robin or another run, settled alike."""
        against = self.arms.round_robin() if baseline is None else baseline
        if (run, against) not in self._saved:
            self._saved[run, against] = self.saving(self.grams(run), self.grams(against, run.credit))
        return self._saved[run, against]

    def saving(self, grams: Floats, baseline: Floats, block_hours: int = BLOCK_HOURS) -> Interval:
        """1 − grams over the baseline's, hour by hour."""
        resamples = RESAMPLES_QUICK if self.settings.quick else RESAMPLES
        return saving(grams, baseline, self.settings.seed, block_hours=block_hours, resamples=resamples)


@dataclass(frozen=True, slots=True)
class Part:
    """A question of the study. Ids of its rows, tables and pictures begin with its name."""

    name: str
    runs: Callable[[Arms], Sequence[Run]]
    """Years that it needs; round robin is always there."""
    rows: Callable[[Study], Sequence[Row]]
    pictures: Callable[[Study], Sequence[Picture]] = lambda _study: ()
    sheets: Callable[[Study], Sequence[Sheet]] = lambda _study: ()
