"""Which runs the study makes, in full and quick, and the savings of what they found."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.row import PERCENT
from heliotrope_sim.reproduce.tension.case import Case, Outcome
from heliotrope_sim.reproduce.tension.grids import base_hour, extreme_hours
from heliotrope_sim.reproduce.tension.models import DENSE, Served
from heliotrope_sim.reproduce.tension.policies import GREEN_LLM, ROUND_ROBIN, Sight


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes. A quick run has a quarter of the fleet and of the rate, so that engines are as loaded."""

    seed: int
    quick: bool
    share: float
    seconds: float
    """Measured of the runs of figure 4."""
    swept_seconds: float
    """Of the others."""
    poll_seconds: float
    """Of those whose polls are far between."""
    prompt_seconds: float
    """With long prompts, which are few."""
    warm_seconds: float
    """Before that, and left out."""
    long_answer_warm_seconds: float
    """With Mixtral, whose answers are three times as long."""
    planned_seconds: float
    """With Green-LLM-like: its plan follows the demand of the first minute only after it."""
    hours: tuple[int, ...]
    """Of the spread of intensities, rising."""
    poll_periods: tuple[float, ...]
    long_capacities: tuple[int, ...]
    mixed_capacities: tuple[int, ...]
    anchor_rates: tuple[float, ...]
    anchor_requests: int

    def warm(self, served: str) -> float:
        """Seconds of a model's runs that are left out."""
        return self.warm_seconds if served in _SHORT_ANSWERS else self.long_answer_warm_seconds

    def case(self, served: Served, rate: float, policy: str, seconds: float | None = None) -> Case:
        """A run of figure 4, or another one that so many seconds are measured of."""
        warm = self.planned_seconds if policy == GREEN_LLM else self.warm(served.name)
        measured = self.seconds if seconds is None else seconds
        return Case(
            served.name, rate, policy, warm + measured, base_hour(), self.seed, warm_seconds=warm, share=self.share
        )

    def swept(self, served: Served, rate: float, policy: str) -> Case:
        """A run that something is changed in."""
        return self.case(served, rate, policy, self.swept_seconds)

    def baseline(self, case: Case) -> Case:
        """Round robin on such requests and the same engines. It looks neither at carbon nor at load nor at lengths."""
        warm = self.warm(case.served)
        return replace(
            case,
            policy=ROUND_ROBIN,
            seconds=case.seconds - case.warm_seconds + warm,
            warm_seconds=warm,
            hour=base_hour(),
            sight=Sight.ALL,
            poll_seconds=1.0,
            staggered=False,
            real_pue=False,
            predicted=False,
        )

    def with_baselines(self, cases: Iterable[Case]) -> list[Case]:
        """The cases and what their savings are measured against, each once."""
        return list(dict.fromkeys(each for case in cases for each in (case, self.baseline(case))))


_SHORT_ANSWERS = frozenset(each.name for each in DENSE)


def plan(settings: Settings) -> Plan:
    """The usual sizes."""
    if settings.quick:
        return Plan(
            seed=settings.seed,
            quick=True,
            share=0.25,
            seconds=3.0,
            swept_seconds=3.0,
            poll_seconds=6.0,
            prompt_seconds=25.0,
            warm_seconds=2.0,
            long_answer_warm_seconds=8.0,
            planned_seconds=8.0,
            hours=(extreme_hours(1)[0], extreme_hours(1)[-1]),
            poll_periods=(1.0, 4.0),
            long_capacities=(8, 16),
            mixed_capacities=(16, 32),
            anchor_rates=(2.0, 50.0),
            anchor_requests=2_100,
        )
    return Plan(
        seed=settings.seed,
        quick=False,
        share=1.0,
        seconds=185.0,
        swept_seconds=185.0,
        poll_seconds=185.0,
        prompt_seconds=185.0,
        warm_seconds=15.0,
        long_answer_warm_seconds=15.0,
        planned_seconds=75.0,
        hours=extreme_hours(),
        poll_periods=(0.5, 1.0, 2.0, 5.0, 10.0),
        long_capacities=(4, 8, 12, 16, 20),
        mixed_capacities=(8, 16, 24, 32, 40),
        anchor_rates=(2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0),
        anchor_requests=2_100,
    )


class Found:
    """Outcomes by case."""

    def __init__(self, plan_: Plan, outcomes: Mapping[Case, Outcome]) -> None:
        self._plan = plan_
        self._outcomes = outcomes

    def __getitem__(self, case: Case) -> Outcome:
        return self._outcomes[case]

    def saving(self, case: Case) -> float:
        """Percent of round robin's emissions at the same load, hour and PUE."""
        theirs = self._outcomes[self._plan.baseline(case)].grams_per_second(case.hour, real_pue=case.real_pue)
        return PERCENT * (1.0 - self._outcomes[case].grams_per_second() / theirs)

    def violation(self, case: Case) -> float:
        """Percent of the requests that missed their TTFT or TPOT."""
        return PERCENT * self._outcomes[case].violation
