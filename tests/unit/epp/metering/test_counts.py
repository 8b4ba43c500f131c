"""Tokens that are counted at two places: what others did, and how far our counts are from the engine's."""

import numpy as np
import pytest

from heliotrope_epp.metering.balance import FORGIVEN_SECONDS, Balance
from heliotrope_epp.metering.ratios import TokenRatios


def test_what_the_engine_counts_beyond_ours_is_others() -> None:
    balance = Balance()

    assert balance.others(100.0, 60.0, 1.0) == 40.0
    assert balance.others(60.0, 60.0, 1.0) == 0.0


def test_what_we_count_ahead_is_set_off_later() -> None:
    balance = Balance()

    assert balance.others(0.0, 50.0, 1.0) == 0.0
    assert balance.others(50.0, 0.0, 1.0) == pytest.approx(0.0, abs=1.0)


def test_noise_does_not_add_up_to_others() -> None:
    balance = Balance()
    random = np.random.default_rng(0)
    carried, claimed = 0.0, 0.0
    for _ in range(5_000):
        early = float(random.uniform(0.0, 10.0))  # counted by us now, by the engine in the next interval
        claimed += balance.others(60.0 + carried - early, 60.0, 0.2)
        carried = early

    assert claimed < 0.01 * 5_000 * 60


def test_an_overestimate_does_not_hide_others_for_ever() -> None:
    balance = Balance()
    balance.others(0.0, 10_000.0, 1.0)
    seen = [balance.others(100.0, 0.0, FORGIVEN_SECONDS) for _ in range(6)]

    assert seen[0] == 0.0
    assert seen[-1] == 100.0


def test_others_are_found_beside_ours() -> None:
    balance = Balance()
    claimed = sum(balance.others(90.0, 60.0, 0.2) for _ in range(100))

    assert claimed == pytest.approx(3_000.0)


def test_ratios_are_learned_per_model() -> None:
    ratios = TokenRatios()
    for _ in range(50):
        ratios.learn_prompt("a", 100.0, 125.0)
        ratios.learn_chunks("a", 50.0, 100.0)

    assert ratios.prompt("a") == pytest.approx(1.25)
    assert ratios.tokens_per_chunk("a") == pytest.approx(2.0)
    assert (ratios.prompt("b"), ratios.tokens_per_chunk("b")) == (1.0, 1.0)


@pytest.mark.parametrize("actual", [0.0, -5.0, float("nan"), float("inf"), 1e9])
def test_absurd_counts_teach_nothing(actual: float) -> None:
    ratios = TokenRatios()
    ratios.learn_prompt("a", 100.0, actual)
    ratios.learn_prompt("a", 0.0, 100.0)
    ratios.learn_chunks("a", 0.0, 100.0)

    assert ratios.prompt("a") == 1.0
    assert ratios.tokens_per_chunk("a") == 1.0


def test_models_that_clients_make_up_do_not_fill_the_memory() -> None:
    ratios = TokenRatios()
    for number in range(3_000):
        ratios.learn_prompt(f"m{number}", 100.0, 200.0)

    assert ratios.prompt("m2999") == 2.0
    assert ratios.prompt("m0") == 1.0
