"""What a prompt meets at an endpoint: the running step counts as far as it is known."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.core.decide.pools import ENGINE
from tests.unit.core.decide.test_kernel import ENGINES

from heliotrope.decide.steps import arrival, decode_seconds, prefill_seconds
from heliotrope.engine.coefficients import coefficients
from heliotrope.engine.model import EngineModel

NAN = float("nan")
ROUNDING = 1.0 + 1e-12
STEP, QUEUED_PREFILL, FIRST, SPREAD, FIRST_OF_ONE = range(5)
STATE = {
    "running": 6.0,
    "waiting": 2.0,
    "queued": 3_000.0,
    "squares": 5e6,
    "kv": 8_000.0,
    "duty": 0.3,
    "step_seconds": NAN,
    "step_prefills": NAN,
    "uncached": 800.0,
    "prompt_tokens": 1_000.0,
    "kept_tokens": 200.0,
    "answer_tokens": 200.0,
}


def met(engine: EngineModel = ENGINE, **state: float) -> tuple[float, ...]:
    return arrival(coefficients(engine), *(STATE | state).values())


@st.composite
def states(draw: st.DrawFn) -> dict[str, float]:
    waiting = float(draw(st.integers(0, 40)))
    queued = waiting * draw(st.floats(1.0, 3_000.0))
    prompt = float(draw(st.integers(1, 20_000)))
    return {
        "running": float(draw(st.integers(0, 300))),
        "waiting": waiting,
        "queued": queued,
        "squares": draw(st.sampled_from([NAN, queued * queued / max(waiting, 1.0), queued * queued])),
        "kv": draw(st.floats(0.0, 400_000.0)),
        "duty": draw(st.floats(0.0, 0.95)),
        "uncached": max(prompt - draw(st.floats(0.0, prompt)), 1.0),
        "prompt_tokens": prompt,
        "kept_tokens": 200.0,
        "answer_tokens": draw(st.floats(1.0, 2_000.0)),
    }


engines = st.sampled_from([ENGINE, *ENGINES])
seconds = st.floats(0.0, 5.0)
phases = st.sampled_from([0.0, 1.0])


@given(engines, states(), seconds, seconds, phases)
@settings(max_examples=200, deadline=None)
def test_the_longer_the_step_has_run_the_sooner_it_is_over(
    engine: EngineModel, state: dict[str, float], first: float, second: float, prefills: float
) -> None:
    early, late = sorted((first, second))
    for line in (FIRST, FIRST_OF_ONE):
        soon = met(engine, **state, step_seconds=late, step_prefills=prefills)[line]
        later = met(engine, **state, step_seconds=early, step_prefills=prefills)[line]
        assert soon <= later * ROUNDING
        # Nothing is won but the time that has passed.
        assert later - soon <= late - early + 1e-9 * later


@given(engines, states(), st.one_of(st.just(NAN), seconds), st.sampled_from([0.0, 1.0, NAN]))
@settings(max_examples=200, deadline=None)
def test_no_state_makes_it_shorter_than_an_idle_engine(
    engine: EngineModel, state: dict[str, float], elapsed: float, prefills: float
) -> None:
    c = coefficients(engine)
    result = met(engine, **state, step_seconds=elapsed, step_prefills=prefills)
    alone = prefill_seconds(c, state["uncached"], 1.0, state["uncached"] ** 2)
    assert result[FIRST] >= alone / ROUNDING
    assert result[FIRST_OF_ONE] >= prefill_seconds(c, 1.0, 1.0, 1.0) / ROUNDING
    assert result[FIRST_OF_ONE] <= result[FIRST] * ROUNDING
    assert result[SPREAD] > 0.0


@given(engines, states(), st.one_of(st.just(NAN), seconds), st.sampled_from([0.0, 1.0, NAN]), st.floats(0.0, 1.0))
@settings(max_examples=100, deadline=None)
def test_the_more_is_queued_the_longer_it_takes(
    engine: EngineModel, state: dict[str, float], elapsed: float, prefills: float, share: float
) -> None:
    less = state | {"queued": state["queued"] * share}
    fewer, all_of_it = (met(engine, **s, step_seconds=elapsed, step_prefills=prefills)[FIRST] for s in (less, state))
    assert fewer <= all_of_it * ROUNDING


@given(engines, states(), seconds, phases)
@settings(max_examples=100, deadline=None)
@example(ENGINE, {name: value for name, value in STATE.items() if not name.startswith("step_")}, 0.01, 1.0)
def test_a_step_of_which_anything_is_unknown_is_unknown(
    engine: EngineModel, state: dict[str, float], elapsed: float, prefills: float
) -> None:
    unknown = met(engine, **state, step_seconds=NAN, step_prefills=NAN)
    for half in ((elapsed, NAN), (NAN, prefills)):
        assert met(engine, **state, step_seconds=half[0], step_prefills=half[1]) == unknown
    c, waiting, queued = coefficients(engine), state["waiting"], state["queued"]
    squares = state["squares"] if state["squares"] == state["squares"] else queued**2 / max(waiting, 1.0)
    uncached, stretch = state["uncached"], 1.0 / (1.0 - state["duty"])
    if state["running"] + waiting > 0.0 and no_slot_or_room_is_awaited(engine, state):
        own = prefill_seconds(c, queued + uncached, waiting + 1.0, squares + uncached**2)
        before = 0.5 * unknown[STEP] * stretch + unknown[QUEUED_PREFILL] * (stretch - 1.0)
        assert unknown[FIRST] == pytest.approx(own + before)


def no_slot_or_room_is_awaited(engine: EngineModel, state: dict[str, float]) -> bool:
    needed = state["kv"] + state["queued"] + state["prompt_tokens"] + state["kept_tokens"]
    return state["running"] + state["waiting"] < engine.max_num_seqs and needed <= engine.kv_capacity_tokens


def test_behind_a_decode_step_all_prompts_are_computed_together() -> None:
    c = coefficients(ENGINE)
    step = decode_seconds(c, 8.0, 8_000.0)
    together = prefill_seconds(c, 3_800.0, 3.0, 5e6 + 800.0**2)
    one = prefill_seconds(c, 3_001.0, 3.0, 5e6 + 1.0)
    for elapsed, left in ((0.0, step), (0.4 * step, 0.6 * step), (3.0 * step, 0.0)):
        result = met(step_seconds=elapsed, step_prefills=0.0)
        assert result[FIRST] == pytest.approx(left + together)
        assert result[FIRST_OF_ONE] == pytest.approx(left + one)


def test_behind_a_prefill_step_come_a_decode_and_the_own_prefill() -> None:
    c = coefficients(ENGINE)
    step, queue = decode_seconds(c, 8.0, 8_000.0), prefill_seconds(c, 3_000.0, 2.0, 5e6)
    own, one = prefill_seconds(c, 800.0, 1.0, 800.0**2), prefill_seconds(c, 1.0, 1.0, 1.0)
    for elapsed, left in ((0.0, queue), (0.4 * queue, 0.6 * queue), (3.0 * queue, 0.0)):
        result = met(step_seconds=elapsed, step_prefills=1.0)
        assert result[FIRST] == pytest.approx(left + step + own)
        assert result[FIRST_OF_ONE] == pytest.approx(left + step + one)


def test_what_is_prefilled_during_the_wait_for_a_slot_is_counted_once() -> None:
    """The queue ahead has the slots that free first; its prefills are those that stall the batch meanwhile."""
    full = {"running": 32.0, "waiting": 3.0, "queued": 3_000.0, "kv": 40_000.0, "step_seconds": 0.0}
    for prefills in (0.0, 1.0):
        busy = met(**full, step_prefills=prefills, duty=0.9)
        short = met(replace(ENGINE, max_num_seqs=36), **full, step_prefills=prefills, duty=0.9)
        wait = 4.0 * 200.0 * busy[STEP] / 32.0
        assert busy[FIRST] - short[FIRST] == pytest.approx(wait, abs=1.01 * abs(busy[STEP] - short[STEP]))


@given(states(), seconds, phases)
@settings(max_examples=50, deadline=None)
def test_the_busier_it_was_the_less_is_certain(state: dict[str, float], elapsed: float, prefills: float) -> None:
    calm, busy = (
        met(**state | {"duty": duty}, step_seconds=elapsed, step_prefills=prefills) for duty in (0.0, state["duty"])
    )
    assert calm[FIRST] == busy[FIRST]
    assert calm[SPREAD] <= busy[SPREAD] * ROUNDING


@given(st.one_of(st.just(NAN), seconds), st.sampled_from([0.0, 1.0, NAN]))
def test_an_idle_engine_runs_no_step(elapsed: float, prefills: float) -> None:
    idle = {"running": 0.0, "waiting": 0.0, "queued": 0.0, "squares": 0.0, "kv": 0.0}
    result = met(**idle, step_seconds=elapsed, step_prefills=prefills)
    assert result[FIRST] == prefill_seconds(coefficients(ENGINE), 800.0, 1.0, 800.0**2)
    assert result[STEP] == 0.0


@pytest.mark.parametrize("unknown", ["running", "waiting", "queued", "kv", "uncached", "prompt_tokens"])
@pytest.mark.parametrize("step", [(NAN, NAN), (0.01, 0.0), (0.01, 1.0)])
def test_an_unknown_state_gives_an_unknown_time(unknown: str, step: tuple[float, float]) -> None:
    result = met(**{unknown: NAN}, step_seconds=step[0], step_prefills=step[1])
    assert np.isnan(result[FIRST])
    assert np.isnan(result[SPREAD])
