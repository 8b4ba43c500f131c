from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.cache.ccar import TokenRatios, break_even_ratio
from heliotrope.cache.costs import transfer
from heliotrope_sim.reproduce.context.analytic import NEW_TOKENS, OUTPUT_TOKENS, break_even_curve
from heliotrope_sim.reproduce.context.beyond import (
    WAN,
    break_even_with_pull,
    bytes_per_second_of_recomputing,
    crossover_sheet,
    joules_per_bit_of_recomputing,
    wan,
)
from heliotrope_sim.reproduce.context.profiles import GPUS, MODELS, profile

models = st.integers(0, len(MODELS) - 1)


def test_a_pull_that_costs_nothing_makes_every_cleaner_grid_pay() -> None:
    free = replace(WAN, network_joules_per_bit=0.0, sender_joules_per_bit=0.0, receiver_joules_per_bit=0.0)
    assert break_even_with_pull(3, 4_096.0, free) == 1.0


@given(models, st.floats(1.0, 1e5), st.floats(0.0, 1e-6), st.floats(0.0, 1e-6))
def test_the_dearer_the_network_the_cleaner_a_grid_must_be(model: int, history: float, a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert break_even_with_pull(model, history, wan(high)) <= break_even_with_pull(model, history, wan(low)) <= 1.0


@given(models, st.floats(1.0, 1e5), st.floats(1.0, 1e5))
def test_the_longer_the_history_the_dearer_the_pull(model: int, a: float, b: float) -> None:
    """As long as its bits cost more than the same tokens as cached input."""
    short, long = sorted((a, b))
    assert break_even_with_pull(model, long, wan(1e-7)) <= break_even_with_pull(model, short, wan(1e-7)) + 1e-12


@given(models, st.floats(100.0, 1e5))
def test_a_pull_beats_recomputing_exactly_below_the_crossover(model: int, tokens: float) -> None:
    joules_per_token = float(profile().input_joules[model * len(GPUS) + 1]) * (1.0 - TokenRatios().cached)
    crossover = joules_per_bit_of_recomputing(model)
    ends = replace(WAN, sender_joules_per_bit=0.0, receiver_joules_per_bit=0.0)
    for factor, wins in ((0.99, True), (1.01, False)):
        link = replace(ends, network_joules_per_bit=factor * crossover)
        moved = transfer(tokens, MODELS[model].kv_bytes_per_token, link)
        assert (moved.joules < joules_per_token * tokens) is wins


@pytest.mark.parametrize("model", range(len(MODELS)))
def test_a_pull_is_faster_than_recomputing_exactly_above_its_speed(model: int) -> None:
    rate = bytes_per_second_of_recomputing(model)
    seconds = 4_096.0 / float(profile().prefill_tokens_per_second[model * len(GPUS) + 1])
    for factor, faster in ((1.01, True), (0.99, False)):
        link = replace(WAN, bytes_per_second=factor * rate, latency_seconds=0.0)
        assert (transfer(4_096.0, MODELS[model].kv_bytes_per_token, link).seconds < seconds) is faster


def test_the_curve_is_the_papers_and_the_table_names_every_model() -> None:
    assert break_even_curve([4_096.0]) == [break_even_ratio(NEW_TOKENS, 4_096.0, OUTPUT_TOKENS, TokenRatios())]
    assert [row[0] for row in crossover_sheet().rows] == [m.name for m in MODELS]
