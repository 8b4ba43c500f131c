import pytest

from heliotrope_sim.reproduce.context.causes import median_gap, recomputed_by_cause
from heliotrope_sim.reproduce.context.intensity import intensities
from heliotrope_sim.reproduce.context.measures import Arm, Ground, recomputed_share
from heliotrope_sim.reproduce.context.policies import FAIR_CARBON, POLICIES
from heliotrope_sim.reproduce.context.tasks import Run, play
from heliotrope_sim.reproduce.context.workload import Episode

SMALL = Episode(450, 1.0, 60.0, 3)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_causes_are_all_there_are(policy: str) -> None:
    ground, arm = Ground.of((SMALL,)), Arm.of((play(Run(SMALL, policy)),))
    causes = recomputed_by_cause(ground, arm)
    assert sum(causes) == pytest.approx(1.0)
    assert all(0.0 <= each <= 1.0 for each in causes)
    assert 0.0 < recomputed_share(ground, arm) < 1.0
    if policy == FAIR_CARBON:
        assert causes[0] > causes[1]


def test_the_gap_is_among_those_of_the_hours_with_turns() -> None:
    series = intensities()[450:475]
    gaps = series.max(axis=1) / series.min(axis=1)
    assert gaps.min() <= median_gap((SMALL,)) <= gaps.max()
