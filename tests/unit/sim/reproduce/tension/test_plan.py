from dataclasses import replace

import pytest

from heliotrope_sim.reproduce.experiment import Settings
from heliotrope_sim.reproduce.tension import loads
from heliotrope_sim.reproduce.tension.case import LARGE_SITES
from heliotrope_sim.reproduce.tension.experiment import CARBON_SLO, PARTS
from heliotrope_sim.reproduce.tension.models import LLAMA
from heliotrope_sim.reproduce.tension.plan import plan
from heliotrope_sim.reproduce.tension.policies import FACILITY, GREEN_LLM, ROUND_ROBIN, Sight

QUICK = plan(Settings(quick=True))
both = pytest.mark.parametrize("quick", [True, False])


@both
def test_every_case_has_its_baseline_and_none_is_run_twice(quick: bool) -> None:
    sizes = plan(Settings(quick=quick))
    cases = sizes.with_baselines(case for part in PARTS for case in part.cases(sizes))
    assert len(cases) == len(set(cases))
    assert {sizes.baseline(case) for case in cases} <= set(cases)


@both
def test_as_much_is_measured_of_all_runs_of_a_figure(quick: bool) -> None:
    measured = {round(c.seconds - c.warm_seconds, 6) for c in loads.cases(plan(Settings(quick=quick)))}
    assert len(measured) == 1


def test_a_baseline_has_the_same_requests_and_engines() -> None:
    case = replace(
        QUICK.swept(LLAMA, 1_200.0, FACILITY), sight=Sight.OWN, hour=5, real_pue=True, predicted=True, shape=LARGE_SITES
    )
    found = QUICK.baseline(case)
    assert (found.policy, found.shape, found.rate, found.seed) == (ROUND_ROBIN, LARGE_SITES, case.rate, case.seed)
    assert found == QUICK.baseline(found)


def test_green_llm_is_measured_after_its_first_minute() -> None:
    assert plan(Settings()).case(LLAMA, 1_200.0, GREEN_LLM).warm_seconds > 60.0


def test_parts_can_be_asked_for_alone() -> None:
    CARBON_SLO.check(Settings(figures=("spread",)))
    assert [p.ids for p in PARTS if any(Settings(figures=("tail",)).wants(each) for each in p.ids)] == [PARTS[0].ids]
