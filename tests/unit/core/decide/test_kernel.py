"""The compiled loop says what the readable formulas say, for every row and whatever is unknown."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import NOW, THREE, pool
from tests.unit.core.decide.reference import fill

from heliotrope.decide import kernel
from heliotrope.decide.candidates import Candidates
from heliotrope.decide.columns import Columns
from heliotrope.decide.estimate import estimate
from heliotrope.decide.policy import DecisionPolicy
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.model import EngineModel
from heliotrope.engine.profiles import available, load

ENGINES = [load(name) for name in available()]
COLUMNS = (
    "running",
    "waiting",
    "waiting_tokens",
    "oldest_waiting_seconds",
    "kv_tokens",
    "prefill_duty",
    "cached_tokens",
    "waiting_squared_tokens",
    "step_seconds",
)
LIMITS = (600.0, 60.0, 90_000.0, 20.0, 400_000.0, 1.0, 9_000.0, 1e9, 1.0)
PREFILLS = st.sampled_from([0.0, 1.0, float("nan")])


def state(limit: float) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), st.just(float("nan")), st.floats(0.0, limit), st.integers(0, 5).map(float))


@st.composite
def pools(draw: st.DrawFn) -> tuple[Candidates, Sequence[EngineModel | None]]:
    n = draw(st.integers(1, 7))
    engines = draw(st.lists(st.sampled_from([None, *ENGINES]), min_size=n, max_size=n))
    candidates = pool([None] * n, {}, engines=engines)
    columns = {
        name: np.array(draw(st.lists(state(limit), min_size=n, max_size=n)))
        for name, limit in zip(COLUMNS, LIMITS, strict=True)
    }
    columns["step_prefills"] = np.array(draw(st.lists(PREFILLS, min_size=n, max_size=n)))
    return replace(candidates, **columns), engines


@given(pools(), st.integers(1, 20_000), st.floats(0.0, 4_000.0), st.floats(0.0, 2_000.0))
@settings(max_examples=150, deadline=None)
def test_it_agrees_with_the_formulas(
    asked: tuple[Candidates, Sequence[EngineModel | None]], prompt_tokens: int, output_tokens: float, load: float
) -> None:
    candidates, engines = asked
    n = len(candidates)
    request = RequestProfile("r", "m", prompt_tokens, output_tokens, streaming=True)
    expected, found = Columns.unknown(n), Columns.unknown(n)
    with np.errstate(all="ignore"):
        for engine in ENGINES:
            rows = np.array([i for i, e in enumerate(engines) if e is engine], dtype=np.intp)
            if len(rows):
                fill(expected, rows, engine, request, candidates, load)
    kernel.analytic(
        candidates.engine_rows,
        *(getattr(candidates, name) for name in COLUMNS),
        candidates.step_prefills,
        np.zeros(n),
        float(prompt_tokens),
        output_tokens,
        load,
        found.table,
        found.kv_fits,
    )
    np.testing.assert_allclose(found.table, expected.table, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found.kv_fits, expected.kv_fits)


def test_a_pool_is_counted_once_however_many_plans_it_has() -> None:
    request = RequestProfile("r", "m", 2_000, 100.0, streaming=True)
    policy = DecisionPolicy(name="p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)
    alone = pool(["a", "b"], THREE)
    twice = replace(pool(["a", "b", "a", "b"], THREE), endpoint_count=2)
    assert estimate(request, twice, policy, NOW).batch[0] == estimate(request, alone, policy, NOW).batch[0]


@pytest.mark.parametrize(("seconds", "joules"), [(0.5, 0.0), (0.0, 90.0), (0.25, 12.0)])
def test_what_a_plan_fetches_takes_time_and_energy(seconds: float, joules: float) -> None:
    request = RequestProfile("r", "m", 2_000, 100.0, streaming=True)
    policy = DecisionPolicy(name="p", ttft_slo_seconds=10.0, tpot_slo_seconds=1.0)
    bare = estimate(request, pool(["a"], THREE), policy, NOW)
    plan = estimate(request, pool(["a"], THREE, transfer_seconds=seconds, transfer_joules=joules), policy, NOW)
    assert plan.ttft_seconds[0] - bare.ttft_seconds[0] == pytest.approx(seconds)
    for name in ("energy_joules", "incremental_joules", "attributed_joules"):
        assert getattr(plan, name)[0] - getattr(bare, name)[0] == pytest.approx(joules)
