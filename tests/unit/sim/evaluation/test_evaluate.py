"""A small evaluation from start to end."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from heliotrope.predict.models import LearnedModels
from heliotrope_cli.picker_view import EndpointView
from heliotrope_sim.evaluation.buckets import bucket_scores
from heliotrope_sim.evaluation.lengths import Lengths
from heliotrope_sim.evaluation.report import Evaluation, show
from heliotrope_sim.evaluation.rows import Requests, Steps
from heliotrope_sim.evaluation.run import Settings, Train, evaluate
from heliotrope_sim.evaluation.targets import GOALS, Met, verdict
from heliotrope_sim.evaluation.training import models_of

SMALL = Settings(
    seed=3,
    training_loads=(0.4, 0.9, 1.2),
    held_out_loads=(0.5, 0.95, 1.3),
    training_requests=50,
    held_out_requests=30,
    twin_every=20,
    profiles=("llama-3.1-8b-h100",),
    bucket_requests=800,
    studies=False,
)
pytestmark = pytest.mark.timeout(400)
PROMISED = {
    "ttft_mape",
    "ttft_mape_around",
    "ttft_mape_above",
    "tpot_mape",
    "step_energy_mape",
    "request_energy_mape",
    "coverage_90",
    "bucket_exact",
    "bucket_within_one",
    "bucket_base_rate",
    "us_per_64_candidates",
}


def evaluated(settings: Settings = SMALL, train: Train = models_of) -> Evaluation:
    return evaluate(settings, EndpointView, Console(file=io.StringIO()), train)


@pytest.fixture(scope="module")
def small() -> Evaluation:
    return evaluated()


@pytest.mark.slow
def test_every_promised_key_is_a_plain_fraction(small: Evaluation) -> None:
    document = json.loads(json.dumps(small.to_json(), allow_nan=False))
    assert document.keys() >= PROMISED
    for key in PROMISED - {"us_per_64_candidates"}:
        assert 0.0 < document[key] < 5.0, key
        if key != "bucket_base_rate":
            score = document["scores"][key]
            assert score["low"] <= score["value"] <= score["high"]
            assert score["n"] > 20
    assert {goal.key for goal in GOALS} == set(document["targets"])
    assert document["analytic_ttft_mape"] > document["ttft_mape"]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_figures(small: Evaluation) -> None:
    again = evaluated()
    assert {k: v for k, v in again.figures.items() if k != "us_per_64_candidates"} == {
        k: v for k, v in small.figures.items() if k != "us_per_64_candidates"
    }


@pytest.mark.slow
def test_a_model_that_learned_nothing_is_reported_as_missed(small: Evaluation) -> None:
    def broken(requests: Requests, steps: Steps, seed: int) -> LearnedModels:
        rng = np.random.default_rng(seed)
        order, step_order = rng.permutation(len(requests)), rng.permutation(len(steps))
        shuffled = replace(
            requests,
            ttft_seconds=requests.ttft_seconds[order],
            tpot_seconds=requests.tpot_seconds[order],
            joules=requests.joules[order],
        )
        return models_of(shuffled, replace(steps, joules=steps.joules[step_order]), seed)

    found = evaluated(train=broken)
    assert small.verdicts["step_energy_mape"] is Met.MET
    for key in ("ttft_mape", "ttft_mape_around", "tpot_mape", "step_energy_mape", "request_energy_mape"):
        assert found.verdicts[key] is Met.MISSED, key
    for key in ("ttft_mape", "step_energy_mape", "request_energy_mape"):
        assert found.figures[key] > 1.5 * small.figures[key], key


@pytest.mark.slow
def test_the_screen_says_what_was_met_and_why_not(small: Evaluation) -> None:
    console = Console(file=io.StringIO(), width=200)
    show(small, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for goal in GOALS:
        assert goal.title in text
    assert "missed" in text
    assert "the best single answer errs by" in text


@pytest.mark.slow
def test_the_studies_and_the_page() -> None:
    two_kinds = ("llama-3.1-8b-h100", "llama-3.1-8b-a100-40gb")
    full = evaluated(replace(SMALL, profiles=two_kinds, studies=True, drift_requests=300, plots=True))
    assert [s.key for s in full.sections] == [
        "slices",
        "buckets",
        "ablation",
        "leave_one_hardware_out",
        "drift",
        "measured",
    ]
    json.dumps(full.to_json(), allow_nan=False)
    assert full.page.count("data:image/png;base64,") == 3


def test_verdicts() -> None:
    goals = {goal.key: goal for goal in GOALS}
    assert verdict(goals["ttft_mape"], {"ttft_mape": 0.05}) is Met.MET
    assert verdict(goals["ttft_mape"], {"ttft_mape": 0.051}) is Met.MISSED
    assert verdict(goals["ttft_mape"], {}) is Met.UNKNOWN
    assert verdict(goals["coverage_90"], {"coverage_90": 0.93}) is Met.MISSED
    assert verdict(goals["drift_requests"], {"drift_requests": float("inf")}) is Met.MISSED
    assert verdict(goals["bucket_exact"], {"bucket_exact": 0.5, "bucket_base_rate": 0.5}) is Met.MISSED


def test_buckets_are_predicted_before_they_are_learned() -> None:
    alternating = [Lengths(name, 100, tokens) for name, tokens in (("code", 10), ("summary", 300))] * 200
    told = bucket_scores(alternating, 1, warm_up=200, with_application=True)
    untold = bucket_scores(alternating, 1, warm_up=200, with_application=False)
    assert told.exact.value == told.within_one.value == 1.0
    assert untold.exact.value <= 0.6
    assert (told.base_rate, told.base_within_one) == (0.5, 0.5)
    assert told.exact.n == 200
