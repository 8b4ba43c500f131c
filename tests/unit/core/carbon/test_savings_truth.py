"""The whole way from draw to verdict in a synthetic fleet of two regions, where the true saving is known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, pool, region

from heliotrope.carbon.arms import Arm
from heliotrope.carbon.savings import ArmTotals, Comparison, Metric, Verdict, compare
from heliotrope.decide.decision import decide
from heliotrope.decide.holdout import Assignment, Holdout
from heliotrope.decide.request import RequestProfile

HOUR = 3_600.0
HOURS = 48
CLASSES = (
    replace(REQUEST, prompt_tokens=200),
    replace(REQUEST, prompt_tokens=2_000, expected_output_tokens=900.0),
    replace(REQUEST, prompt_tokens=6_000, streaming=False),
)
REQUESTS_PER_HOUR = (60.0, 30.0, 20.0)
SPREAD = 0.6
"""Of a request's grams around their mean, as the standard deviation of their logarithm."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """Mean grams of a request of each class in each hour, by arm, and how many come."""

    grams: dict[Arm, np.ndarray]
    rates: np.ndarray

    @property
    def change(self) -> float:
        """The true one, over all requests."""
        steered, held = ((self.grams[arm] * self.rates).sum() for arm in (Arm.STEERED, Arm.HOLDOUT))
        return float(steered / held - 1.0)


def fleet(regions: Sequence[str]) -> Fleet:
    """Two engines whose grids' intensities cross twice a day; the scorers prefer now one, now the other.

    The endpoint of each arm is what `decide` says, its energy what the decision expects there.
    """
    grams = {arm: np.zeros((HOURS, len(CLASSES))) for arm in (Arm.STEERED, Arm.HOLDOUT)}
    rates = np.zeros((HOURS, len(CLASSES)))
    rng = np.random.default_rng(5)
    for hour in range(HOURS):
        day = 2.0 * np.pi * hour / 24.0
        views = {"a": region("a", 150.0 + 90.0 * np.sin(day)), "b": region("b", 170.0 - 60.0 * np.sin(day))}
        candidates = pool(regions, views, base_score=rng.random(2).tolist())
        for column, request in enumerate(CLASSES):
            for arm in grams:
                decision = decide(request, candidates, POLICY, NOW, assignment=Assignment(arm, ""))
                assert decision.winner is not None
                grams[arm][hour, column] = decision.estimates.grams_co2e[decision.winner]
        rates[hour] = np.array(REQUESTS_PER_HOUR) * (1.0 + 0.6 * np.sin(day - 1.0))
    return Fleet(grams, rates)


def run(of: Fleet, seed: int, requests: Sequence[RequestProfile] = CLASSES) -> Comparison:
    """Two days of requests through the real draw, 10 % held out."""
    rng = np.random.default_rng(seed)
    policy = replace(POLICY, holdout_percent=10, holdout_seed=seed)
    holdout = Holdout()
    rows = []
    for hour in range(HOURS):
        weather = rng.lognormal(0.0, 0.15)  # what moves both arms alike
        for column, request in enumerate(requests):
            drawn = [holdout.assign(policy, request) for _ in range(rng.poisson(of.rates[hour, column]))]
            for arm in (Arm.STEERED, Arm.HOLDOUT):
                count = sum(assignment.arm is arm for assignment in drawn)
                if count == 0:
                    continue
                mean = of.grams[arm][hour, column] * weather
                total = mean * rng.lognormal(-(SPREAD**2) / 2.0, SPREAD, count).sum()
                name = drawn[0].request_class
                rows.append(
                    ArmTotals(hour * HOUR, name, arm, count, {Metric.GRAMS: float(total)}, {Metric.GRAMS: count}, "e")
                )
    savings = compare(rows, slot_seconds=HOUR, resamples=400, seed=seed)
    return next(c for c in savings.overall if c.metric is Metric.GRAMS)


def test_one_run_finds_the_saving() -> None:
    two_regions = fleet("ab")
    assert two_regions.change < -0.2
    found = run(two_regions, seed=1)
    assert found.verdict is Verdict.SAVING
    assert found.change.low <= two_regions.change <= found.change.high
    share = found.holdout_requests / (found.holdout_requests + found.steered_requests)
    assert share == pytest.approx(0.1, abs=0.001)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_interval_holds_the_true_saving_as_often_as_it_says() -> None:
    two_regions = fleet("ab")
    found = [run(two_regions, seed) for seed in range(200)]
    covered = sum(c.change.low <= two_regions.change <= c.change.high for c in found)
    assert covered >= 0.9 * len(found)
    assert sum(c.verdict is Verdict.SAVING for c in found) >= 0.95 * len(found)
    assert np.mean([c.change.estimate for c in found]) == pytest.approx(two_regions.change, abs=0.01)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_where_nothing_is_saved_nothing_is_called_a_saving() -> None:
    one_region = fleet("aa")
    assert one_region.change == pytest.approx(0.0)
    found = [run(one_region, seed) for seed in range(200)]
    assert sum(c.verdict is Verdict.SAVING for c in found) <= 0.05 * len(found)
    assert sum(c.verdict is Verdict.UNDECIDED for c in found) >= 0.9 * len(found)
