from dataclasses import replace

import numpy as np
import pytest

from heliotrope_sim.reproduce.tension.case import (
    BASE,
    EIGHT_SCHEDULERS,
    LARGE_SITES,
    SHAPES,
    Case,
    play,
    topology_of,
    workload_of,
)
from heliotrope_sim.reproduce.tension.grids import REGIONS, base_hour, extreme_hours
from heliotrope_sim.reproduce.tension.policies import FACILITY, GREEDY_0, MOER, ROUND_ROBIN

SHORT = Case("llama", 1_200.0, ROUND_ROBIN, 1.5, base_hour(), 7, warm_seconds=0.5, share=0.25)


@pytest.mark.parametrize("shape", SHAPES)
def test_all_shapes_have_as_many_engines(shape: str) -> None:
    assert topology_of(replace(SHORT, share=1.0, shape=shape)).engines == 512
    assert topology_of(replace(SHORT, served="mixtral", share=1.0, shape=shape)).engines == 128


def test_schedulers_and_sites_of_each_shape() -> None:
    found = {shape: topology_of(replace(SHORT, shape=shape)) for shape in SHAPES}
    counts = {shape: (len(t.schedulers), len(t.sites)) for shape, t in found.items()}
    assert counts == {BASE: (4, 16), EIGHT_SCHEDULERS: (8, 16), LARGE_SITES: (4, 8)}
    for topology in found.values():
        owned = [sum(site.zone == s.zone for site in topology.sites) for s in topology.schedulers]
        assert len(set(owned)) == 1


def test_other_regions_are_as_far_as_measured() -> None:
    rtt = topology_of(SHORT).rtt_seconds
    own = np.array([[i // 4 == s for i in range(16)] for s in range(len(REGIONS))])
    assert rtt[own].max() < 0.01
    assert 0.08 < rtt[~own].min() < rtt[~own].max() < 0.28


def test_requests_are_the_same_for_all_policies_and_predictions_change_beliefs_only() -> None:
    base = workload_of(SHORT, 4)
    guessed = workload_of(replace(SHORT, policy=FACILITY, predicted=True), 4)
    assert (base.arrival_ns == guessed.arrival_ns).all()
    assert (base.output_tokens == guessed.output_tokens).all()
    assert (base.expected_output_tokens == base.output_tokens).all()
    assert (guessed.expected_output_tokens != guessed.output_tokens).mean() > 0.9


def test_round_robin_at_another_hour_and_pue_needs_no_run_of_its_own() -> None:
    hour = extreme_hours()[-1]
    here = play(SHORT)
    there = play(replace(SHORT, hour=hour, real_pue=True))
    assert here.grams(hour, real_pue=True) == pytest.approx(there.grams(), rel=1e-12)
    assert here.grams() != pytest.approx(there.grams(), rel=0.01)


def test_moer_routing_is_greedy_without_latency() -> None:
    assert play(replace(SHORT, policy=MOER)).joules == play(replace(SHORT, policy=GREEDY_0)).joules


def test_the_warm_up_is_left_out() -> None:
    outcome = play(SHORT)
    hosts = 16 * 300.0  # W: a node in each site
    assert sum(row[4] for row in outcome.joules) == pytest.approx(hosts * 1.0)
    assert 0.0 < outcome.standing_share < 1.0
    assert 0.0 < outcome.idle_share < 1.0


def test_facility_is_cleaner_than_round_robin() -> None:
    assert play(replace(SHORT, policy=FACILITY)).grams_per_second() < 0.9 * play(SHORT).grams_per_second()
