"""What work draws, learned from intervals."""

from dataclasses import astuple

import numpy as np
import pytest

from heliotrope.engine import profiles
from heliotrope.engine.work_weights import OnlineWeights, WorkWeights, generic_prior, profile_prior

ENGINE = profiles.load("llama-3.1-70b-h100-tp4")
TRUE = WorkWeights(prompt=20.0, prompt_token=0.2, prompt_square=3e-6, step=40.0, token=0.3, cached_token=1e-4)


def interval(random: np.random.Generator) -> np.ndarray:
    """Work of a few seconds: prompts, their tokens and squares, steps, decoded and cached tokens."""
    prompts = random.integers(0, 8)
    tokens = prompts * random.uniform(50.0, 2_000.0)
    steps, batch = random.uniform(20.0, 150.0), random.uniform(1.0, 40.0)
    return np.array([prompts, tokens, tokens * tokens / max(prompts, 1), steps, steps * batch, steps * batch * 700.0])


def teach(learned: OnlineWeights, true: WorkWeights, *, idle_watts: float, rounds: int, noise: float = 0.05) -> None:
    random = np.random.default_rng(3)
    for _ in range(rounds):
        units = interval(random)
        idle_s = random.uniform(0.0, 2.0)
        joules = float(units @ true.array()) + idle_watts * idle_s
        learned.worked(units, joules * random.normal(1.0, noise), 5.0, idle_s)
    learned.refit()


def relative_errors(learned: WorkWeights, true: WorkWeights) -> np.ndarray:
    """Of predicted joules of intervals: coefficients alone may trade with each other."""
    random = np.random.default_rng(9)
    units = np.array([interval(random) for _ in range(200)])
    return np.abs(units @ learned.array() / (units @ true.array()) - 1.0)


def test_before_anything_was_read_a_profile_is_believed() -> None:
    learned = OnlineWeights(profile_prior(ENGINE))

    assert learned.weights.prompt_token == ENGINE.energy.prefill_joules_per_token
    assert learned.weights.step == ENGINE.energy.decode_base_joules
    assert learned.idle_watts == ENGINE.idle_watts
    learned.refit()
    assert astuple(learned.weights) == pytest.approx(astuple(OnlineWeights(profile_prior(ENGINE)).weights))


@pytest.mark.parametrize("prior", [profile_prior(ENGINE), generic_prior(4)], ids=["profile", "generic"])
def test_intervals_teach_what_work_draws(prior: object) -> None:
    learned = OnlineWeights(prior)  # type: ignore[arg-type]
    before = relative_errors(learned.weights, TRUE).mean()

    teach(learned, TRUE, idle_watts=450.0, rounds=200)

    assert relative_errors(learned.weights, TRUE).mean() < 0.03 < before
    assert learned.idle_watts == pytest.approx(450.0, rel=0.15)


def test_no_weight_is_negative_whatever_the_counters_say() -> None:
    learned = OnlineWeights(generic_prior(1))
    random = np.random.default_rng(0)
    for _ in range(50):
        learned.worked(interval(random), float(random.uniform(0.1, 1e5)), 1.0, 0.0)
    learned.refit()

    assert min(astuple(learned.weights)) >= 0.0
    assert learned.idle_watts >= 0.0


def test_an_idle_engine_tells_its_standing_power_and_forgets_nothing_of_work() -> None:
    learned = OnlineWeights(generic_prior(4))
    teach(learned, TRUE, idle_watts=450.0, rounds=200)
    known = relative_errors(learned.weights, TRUE).mean()

    for _ in range(10_000):
        learned.idle(5.0 * 320.0, 5.0)
    learned.refit()

    assert learned.idle_watts == pytest.approx(320.0, rel=0.02)
    assert relative_errors(learned.weights, TRUE).mean() < known + 0.03


def test_new_intervals_outweigh_old_ones() -> None:
    learned = OnlineWeights(profile_prior(ENGINE), memory_seconds=300.0)
    teach(learned, TRUE, idle_watts=450.0, rounds=300)
    halved = WorkWeights(*(each / 2.0 for each in astuple(TRUE)))

    teach(learned, halved, idle_watts=450.0, rounds=300)

    assert relative_errors(learned.weights, halved).mean() < 0.05


@pytest.mark.parametrize("joules", [float("nan"), float("inf"), 0.0, -5.0])
def test_nonsense_teaches_nothing(joules: float) -> None:
    learned = OnlineWeights(profile_prior(ENGINE))
    before = learned.weights
    units = interval(np.random.default_rng(1))

    learned.worked(units, joules, 5.0, 0.0)
    learned.worked(units, 100.0, 5.0, 5.0)  # no time to work in
    learned.worked(np.zeros(6), 100.0, 5.0, 0.0)
    learned.worked(np.array([np.nan] * 6), 100.0, 5.0, 0.0)
    learned.idle(joules, 5.0)

    assert learned.intervals == 0
    learned.refit()
    assert astuple(learned.weights) == pytest.approx(astuple(before))
