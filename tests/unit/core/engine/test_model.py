"""Step times and energies: worked by hand, growing in all their arguments, alike for numbers and arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError

shipped = st.sampled_from([profiles.load(name) for name in profiles.available()])
tokens = st.floats(min_value=1, max_value=16_384)
batches = st.floats(min_value=1, max_value=256)
lengths = st.floats(min_value=1, max_value=16_384)
more = st.floats(min_value=1, max_value=1_000)


def test_prefill_below_the_knee(model: EngineModel) -> None:
    # 50 tokens: 50 × 1e-5 + 0.01 + 0.001 + 1e-8 × 2,500 = 0.0005 + 0.011 + 0.000025
    assert model.prefill_seconds(50.0) == pytest.approx(0.011525)


def test_prefill_above_the_knee_counts_the_knee_once_at_each_slope(model: EngineModel) -> None:
    # Four prompts of 250: 100 × 1e-5 + 900 × 1e-4 + 0.01 + 4 × 0.001 + 1e-8 × 4 × 62,500
    assert model.prefill_seconds(1000.0, 4.0, 250_000.0) == pytest.approx(0.001 + 0.09 + 0.01 + 0.004 + 0.0025)


def test_prefill_of_nothing_takes_and_draws_nothing(model: EngineModel) -> None:
    assert model.prefill_seconds(0.0) == 0.0
    assert model.prefill_joules(0.0) == 0.0


def test_chunks_of_a_prompt_have_the_attention_of_the_whole(model: EngineModel) -> None:
    def attention(tokens: float, squares: float) -> float:
        return float(model.prefill_joules(tokens, squares) - model.prefill_joules(tokens, 0.0))

    whole = attention(3000.0, 3000.0**2)
    assert attention(2000.0, 2000.0**2) + attention(1000.0, 3000.0**2 - 2000.0**2) == pytest.approx(whole)


def test_decode_by_hand(model: EngineModel) -> None:
    # B = 10, K = 5,000, so 500 a sequence: a0 = 0.02 + 5e-4, a1 = 1e-4 + 5e-5, a2 = 1e-6 + 5e-7
    assert model.decode_seconds(10.0, 5_000.0) == pytest.approx(0.0205 + 10 * 1.5e-4 + 100 * 1.5e-6)
    assert model.decode_joules(10.0, 5_000.0) == pytest.approx(8.0 + 1.0 + 0.5)


def test_decode_of_an_average_batch_below_one_keeps_its_cached_tokens(model: EngineModel) -> None:
    # B = 0.5, K = 200, so 400 a sequence: 0.02 + 4e-4 + 0.5 × (1e-4 + 4e-5) + 0.25 × (1e-6 + 4e-7)
    assert model.decode_seconds(0.5, 200.0) == pytest.approx(0.0204 + 7e-5 + 3.5e-7)


def test_decode_of_nobody_takes_and_draws_nothing(model: EngineModel) -> None:
    assert model.decode_seconds(0.0, 0.0) == 0.0
    assert model.decode_joules(0.0, 100.0) == 0.0


@settings(deadline=None)
@given(engine=shipped, n=tokens, extra=more)
def test_prefill_grows_with_tokens(engine: EngineModel, n: float, extra: float) -> None:
    assert engine.prefill_seconds(n + extra) > engine.prefill_seconds(n)
    assert engine.prefill_joules(n + extra) > engine.prefill_joules(n)


@settings(deadline=None)
@given(engine=shipped, batch=batches, length=lengths, extra=more)
def test_decode_grows_with_the_batch_and_with_what_it_caches(
    engine: EngineModel, batch: float, length: float, extra: float
) -> None:
    for cost in (engine.decode_seconds, engine.decode_joules):
        assert cost(batch + extra, (batch + extra) * length) > cost(batch, batch * length)
        assert cost(batch, batch * length + extra) > cost(batch, batch * length)


@settings(deadline=None)
@given(engine=shipped, batch=batches, length=lengths)
def test_a_token_of_a_larger_batch_costs_less(engine: EngineModel, batch: float, length: float) -> None:
    small = engine.decode_joules(batch, batch * length) / batch
    assert engine.decode_joules(2 * batch, 2 * batch * length) / (2 * batch) < small


@settings(deadline=None)
@given(engine=shipped, values=st.lists(st.tuples(tokens, batches, lengths), min_size=1, max_size=8))
def test_arrays_give_what_numbers_give(engine: EngineModel, values: list[tuple[float, float, float]]) -> None:
    n, batch, length = np.array([*values, (0.0, 0.0, 0.0)]).T
    pairs: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
        (engine.prefill_seconds, (n, batch, n * 100)),
        (engine.prefill_joules, (n,)),
        (engine.decode_seconds, (batch, batch * length)),
        (engine.decode_joules, (batch, batch * length)),
    ]
    for cost, arguments in pairs:
        together = cost(*arguments)
        assert together.shape == n.shape
        assert together.tolist() == [cost(*(float(a[i]) for a in arguments)) for i in range(len(n))]


def test_a_model_survives_the_trip_through_its_mapping(model: EngineModel) -> None:
    assert EngineModel.from_mapping(model.to_mapping()) == model


def test_power_without_a_process_may_be_unknown(model: EngineModel) -> None:
    data = model.to_mapping()
    del data["unloaded_watts"]
    assert EngineModel.from_mapping(data).unloaded_watts is None


def _without(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda data: data.pop(name)


def _with(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(data: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            data = data[parent]
        data[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "path", "problem"),
    [
        (_without("idle_watts"), "idle_watts", "missing"),
        (_with("colour", 1), "colour", "no field of EngineModel"),
        (_with("prefill.slope", 1.0), "prefill.slope", "no field of PrefillTime"),
        (_with("prefill", 3.0), "prefill", "must be a mapping"),
        (_with("energy.decode_base_joules", -1.0), "energy.decode_base_joules", "0 or more"),
        (_with("energy.decode_base_joules", float("nan")), "energy.decode_base_joules", "finite"),
        (_with("energy.decode_base_joules", "3"), "energy.decode_base_joules", "finite number"),
        (_with("energy.decode_base_joules", True), "energy.decode_base_joules", "finite number"),
        (_with("decode.alpha_seconds", [1.0, 2.0]), "decode.alpha_seconds", "three numbers"),
        (_with("decode.alpha_seconds", [1.0, None, 2.0]), "decode.alpha_seconds[1]", "finite number"),
        (_with("block_size", 16.5), "block_size", "whole number"),
        (_with("name", 7), "name", "string"),
    ],
)
def test_a_bad_profile_is_refused_by_the_name_of_its_field(
    model: EngineModel, change: Callable[[dict[str, Any]], None], path: str, problem: str
) -> None:
    data = model.to_mapping()
    change(data)
    with pytest.raises(InvalidInputError, match=problem) as caught:
        EngineModel.from_mapping(data)
    assert caught.value.path == path
