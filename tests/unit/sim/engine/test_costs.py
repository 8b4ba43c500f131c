"""The plain step costs are the analytic model's, at every clock."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.costs import StepCosts
from heliotrope_sim.engine.fixed_point import joules, seconds


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20_000), min_size=1, max_size=8),
    mhz=st.integers(300, 1200),
)
def test_prefill_agrees_with_the_model(model: EngineModel, lengths: list[int], mhz: int) -> None:
    at = model.at_clock(mhz)
    costs = StepCosts.of(at)
    tokens, squares = sum(lengths), sum(n * n for n in lengths)
    assert seconds(costs.prefill_ns(tokens, len(lengths), squares)) == pytest.approx(
        float(at.prefill_seconds(float(tokens), float(len(lengths)), float(squares))), abs=1e-9
    )
    assert joules(
        costs.prefill_base_picojoules
        + costs.prefill_picojoules_per_token * tokens
        + costs.prefill_picojoules_per_square * squares
    ) == pytest.approx(float(at.prefill_joules(float(tokens), float(squares))), rel=1e-6)


@settings(deadline=None)
@given(batch=st.integers(1, 300), kv_tokens=st.integers(1, 2_000_000), mhz=st.integers(300, 1200))
def test_decode_agrees_with_the_model(model: EngineModel, batch: int, kv_tokens: int, mhz: int) -> None:
    at = model.at_clock(mhz)
    costs = StepCosts.of(at)
    assert seconds(costs.decode_ns(batch, kv_tokens)) == pytest.approx(
        float(at.decode_seconds(float(batch), float(kv_tokens))), rel=1e-9, abs=1e-9
    )
    assert joules(
        costs.decode_base_picojoules
        + costs.decode_picojoules_per_request * batch
        + costs.decode_picojoules_per_cached_token * kv_tokens
    ) == pytest.approx(float(at.decode_joules(float(batch), float(kv_tokens))), rel=1e-6)
