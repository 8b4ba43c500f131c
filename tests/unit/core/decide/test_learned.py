"""Learned estimates take the analytic ones' place where they answer, and only there."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.unit.core.decide.pools import ENGINE, NOW, POLICY, REQUEST, THREE, pool

from heliotrope.decide.decision import Outcome, decide
from heliotrope.decide.estimate import estimate
from heliotrope.predict.features import column_of
from heliotrope.predict.models import LearnedModels, Predictions
from heliotrope.predict.targets import REQUESTS, Target

NAN = float("nan")


class Answers(LearnedModels):
    """Says what it is told to, for every row, and remembers what it was asked."""

    def __init__(self, means: Mapping[Target, Any], error: float = 0.02, shared: Any = None) -> None:
        super().__init__()
        self.means, self.error, self.shared = means, error, shared

    @property
    def targets(self) -> frozenset[Target]:
        return frozenset(self.means)

    def predict(self, rows: np.ndarray[Any, Any], asked: Mapping[Target, int] | None = None) -> Predictions:
        assert asked is not None
        n = asked[Target.TTFT]
        self.asked, self.asked_shared = rows[:n], rows[n:]
        mean = np.full((len(REQUESTS.targets), len(rows)), NAN)
        for line, target in enumerate(REQUESTS.targets):
            mean[line, :n] = np.resize(np.asarray(self.means.get(target, NAN), dtype=float), n)
        if Target.REQUEST_ENERGY in self.means:
            given = self.means[Target.REQUEST_ENERGY] if self.shared is None else self.shared
            mean[-1, n:] = np.resize(np.asarray(given, dtype=float), n)
        error = np.where(np.isfinite(mean), self.error, NAN)
        return Predictions(REQUESTS.targets, mean=mean, typical=mean * 0.9, q90=mean * 1.5, relative_error=error)


def test_without_models_nothing_is_learned() -> None:
    for models in (None, LearnedModels()):
        assert estimate(REQUEST, pool(["a"], THREE), POLICY, NOW, models).learned == {}


def test_a_learned_latency_replaces_the_analytic_one_with_its_own_spread() -> None:
    models = Answers({Target.TTFT: [0.5, NAN], Target.TPOT: [NAN, 0.02]}, error=0.07)
    analytic = estimate(REQUEST, pool(["a", "b"], THREE), POLICY, NOW)

    e = estimate(REQUEST, pool(["a", "b"], THREE), POLICY, NOW, models)

    assert (e.ttft_seconds[0], e.ttft_relative_error[0]) == (0.5, 0.07)
    assert (e.ttft_seconds[1], e.ttft_relative_error[1]) == (
        analytic.ttft_seconds[1],
        analytic.ttft_relative_error[1],
    )
    assert (e.tpot_seconds[0], e.tpot_seconds[1]) == (analytic.tpot_seconds[0], 0.02)
    assert e.learned[Target.TTFT].tolist() == [True, False]
    assert e.learned[Target.TPOT].tolist() == [False, True]
    assert Target.REQUEST_ENERGY not in e.learned
    assert e.service_seconds[0] == pytest.approx(0.5 + REQUEST.expected_output_tokens * e.tpot_seconds[0])


def test_a_slower_engine_than_its_profile_says_is_found_infeasible() -> None:
    candidates = pool(["a", "b"], THREE)
    assert decide(REQUEST, candidates, POLICY, NOW).endpoint == "e0"

    decision = decide(REQUEST, candidates, POLICY, NOW, models=Answers({Target.TPOT: [0.2, 0.02]}))

    assert decision.endpoint == "e1"
    row = decision.explanation()["candidates"][0]
    assert row["lost_because"] == "TPOT above the SLO"
    assert row["sources"] == {"ttft": "analytic", "tpot": "learned", "energy": "analytic"}


def test_energy_is_asked_for_now_and_for_the_consolidated_batch() -> None:
    models = Answers({Target.REQUEST_ENERGY: [500.0, 300.0]}, shared=[80.0, 90.0])
    candidates = pool(["a", "b"], THREE, running=[2.0, 10.0], waiting=[1.0, 0.0], waiting_tokens=[900.0, 0.0])
    analytic = estimate(REQUEST, candidates, POLICY, NOW)

    e = estimate(REQUEST, candidates, POLICY, NOW, models)

    assert e.attributed_joules.tolist() == [500.0, 300.0]
    assert e.energy_joules.tolist() == [80.0, 90.0]
    assert e.grams_co2e[1] / e.grams_co2e[0] == pytest.approx(90.0 * 150.0 / (80.0 * 20.0))
    assert e.incremental_joules[0] == pytest.approx(
        analytic.incremental_joules[0] * 500.0 / analytic.attributed_joules[0]
    )
    now, shared = models.asked.T, models.asked_shared.T
    assert now[column_of("batch")].tolist() == [4.0, 11.0]
    assert shared[column_of("batch")].tolist() == analytic.batch.tolist() == [14.0, 14.0]
    assert shared[column_of("running")].tolist() == [13.0, 13.0]
    assert shared[column_of("waiting")].tolist() == shared[column_of("waiting_tokens")].tolist() == [0.0, 0.0]
    assert shared[column_of("kv_tokens")] == pytest.approx(1100.0 * 13.0)
    assert shared[column_of("analytic_request_joules")].tolist() == analytic.energy_joules.tolist()
    assert now[column_of("analytic_request_joules")].tolist() == analytic.attributed_joules.tolist()


def test_an_endpoint_without_a_profile_is_decided_on_what_was_learned() -> None:
    candidates = pool(["c", "a"], THREE, engines=[ENGINE, None], running=[3.0, 3.0], waiting=[0.0, 2.0])
    assert decide(REQUEST, candidates, POLICY, NOW).endpoint == "e0"
    models = Answers({Target.TTFT: 0.2, Target.TPOT: 0.02, Target.REQUEST_ENERGY: 100.0})

    decision = decide(REQUEST, candidates, POLICY, NOW, models=models)

    assert (decision.endpoint, decision.outcome) == ("e1", Outcome.WITHIN_SLO)
    e = decision.estimates
    assert e.queue_ttft_seconds[1] == pytest.approx(0.2)
    assert (e.energy_joules[1], e.incremental_joules[1], e.batch[1]) == (100.0, 100.0, 6.0)
    assert np.isfinite(e.cost).all()


def test_what_fetching_costs_comes_on_top_of_what_was_learned() -> None:
    models = Answers({Target.TTFT: 0.2, Target.REQUEST_ENERGY: 100.0})
    bare = estimate(REQUEST, pool(["a"], THREE), POLICY, NOW, models)

    e = estimate(REQUEST, pool(["a"], THREE, transfer_seconds=0.5, transfer_joules=7.0), POLICY, NOW, models)

    assert e.ttft_seconds[0] == 0.7
    assert (e.energy_joules[0], e.attributed_joules[0]) == (107.0, 107.0)
    np.testing.assert_array_equal(e.features, bare.features)


def test_of_unknown_load_nothing_is_made_up() -> None:
    candidates = pool(["a"], THREE, engines=[None], running=[NAN], waiting=[NAN])

    e = estimate(REQUEST, candidates, POLICY, NOW, Answers({Target.TTFT: NAN, Target.REQUEST_ENERGY: NAN}))

    assert np.isnan([e.ttft_seconds[0], e.queue_ttft_seconds[0], e.energy_joules[0], e.batch[0]]).all()
    assert not e.learned[Target.TTFT].any()
