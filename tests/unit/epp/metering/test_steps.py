"""What a metered interval says of its engine's steps."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.epp.metering.played import Played, raised

from heliotrope.engine import profiles
from heliotrope.predict.features import STEP_FEATURE_COUNT, STEP_FEATURES, FloatColumn, column_of
from heliotrope_epp.datalayer.endpoint import EngineMetrics, Traits
from heliotrope_epp.datalayer.node_energy import Accelerator, NodeReading
from heliotrope_epp.metering.steps import Steps, mean_step_row, metered_steps, steps_between, unknown_steps
from heliotrope_epp.outcomes.energy import MeteredSteps, NoSteps

A = "ns/a"
ENGINE = profiles.load("llama-3.1-8b-h100")
PAGE = EngineMetrics(scraped_s=10.0, iterations_total=100.0, power_watts=300.0, sm_clock_mhz=1_000.0)
WORK = (1.0, 100.0, 10_000.0, 19.0, 19.0, 2_000.0)


def value(row: FloatColumn, name: str) -> float:
    return float(row[column_of(name, STEP_FEATURES)])


def world() -> Played:
    played = Played("a", engine=ENGINE)
    counted = played.counted[A]
    counted.accelerators, counted.iterations, counted.power_watts, counted.asleep = {"gpu": 0}, 0.0, 400.0, False
    played.tick()
    go(played, 1.0, 80_000, 0)
    return played


def go(played: Played, seconds: float, millijoules: int, steps: int | None) -> None:
    """Time passes in which the engine makes steps and draws energy."""
    counted = played.counted[A]
    counted.accelerators = raised(counted.accelerators, millijoules)
    if steps is None:
        counted.iterations = None
    elif counted.iterations is not None:
        counted.iterations += steps
    played.tick(seconds)


def served(played: Played, steps: int | None = 5) -> MeteredSteps | NoSteps:
    """A request of 20 tokens alone in two seconds, of which each fifth is an interval; returns the last one's steps."""
    sent = played.send("r", A)
    for _ in range(5):
        played.chunks(sent, 4)
        go(played, 0.4, 100_000, steps)
    played.end(sent, tokens=20, prompt_tokens=100)
    go(played, 0.5, 40_000, 0)
    return played.intervals[-2].steps


def test_an_interval_tells_of_its_mean_step() -> None:
    steps = served(world())
    assert isinstance(steps, MeteredSteps)
    assert (steps.count, steps.joules, steps.busy_share) == (5.0, 100.0, 1.0)
    assert steps.mean_joules == 20.0
    assert steps.features.shape == (STEP_FEATURE_COUNT,)
    assert value(steps.features, "batch") == pytest.approx(4 / 5)
    assert value(steps.features, "kv_tokens") == pytest.approx(4 / 5 * 118, rel=0.05), "100 of the prompt and some more"
    assert value(steps.features, "prefill_tokens") == 0.0
    assert value(steps.features, "power_watts") == 400.0


def test_the_first_interval_has_the_prefill() -> None:
    played = world()
    served(played)
    steps = played.intervals[0].steps
    assert isinstance(steps, MeteredSteps)
    assert value(steps.features, "prefill_tokens") == pytest.approx(100 / 5)
    assert value(steps.features, "prefill_requests") == pytest.approx(1 / 5)
    assert value(steps.features, "prefill_squared_tokens") == pytest.approx(100**2 / 5)


def test_idle_energy_is_not_the_steps() -> None:
    played = world()
    sent = played.send("r", A)
    played.chunks(sent, 10)
    played.now_s += 0.5
    played.meter.tick(played.now_s)
    played.end(sent, tokens=10, prompt_tokens=100)
    go(played, 0.5, 200_000, 10)
    steps, interval = played.intervals[-1].steps, played.intervals[-1]
    assert isinstance(steps, MeteredSteps)
    assert interval.idle_millijoules > 0
    assert steps.busy_share == pytest.approx(0.5)
    assert steps.joules == pytest.approx((interval.total_millijoules - interval.idle_millijoules) / 1_000)


def test_an_engine_that_counts_no_steps_gives_none() -> None:
    assert served(world(), steps=None) is NoSteps.UNCOUNTED


def test_an_engine_that_starts_again_gives_none_and_then_some() -> None:
    played = world()
    played.counted[A].iterations = 1_000.0
    go(played, 0.4, 20_000, 0)
    sent = played.send("r", A)
    played.chunks(sent, 4)
    played.counted[A].iterations = 0.0
    go(played, 0.4, 100_000, 3)
    assert played.intervals[-1].steps is NoSteps.UNCOUNTED
    played.chunks(sent, 4)
    go(played, 0.4, 100_000, 5)
    steps = played.intervals[-1].steps
    assert isinstance(steps, MeteredSteps)
    assert steps.count == 5.0


def test_idle_time_and_sleep_give_none() -> None:
    played = world()
    go(played, 1.0, 80_000, 0)
    assert played.intervals[-1].steps is NoSteps.IDLE
    played.counted[A].asleep = True
    go(played, 1.0, 80_000, 0)
    assert played.intervals[-1].steps is NoSteps.ASLEEP


def test_what_is_not_shared_out_gives_none() -> None:
    played = world()
    played.counted[A].generated = None
    assert served(played) is NoSteps.NOT_SHARED_OUT


@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ({("ns", "a"), ("ns", "b")}, NoSteps.SHARED),
        ({("ns", "a"), ("ns", "x")}, NoSteps.NOT_SHARED_OUT),
    ],
    ids=["with another engine", "with a stranger"],
)
def test_accelerators_that_are_not_an_engines_own_give_none(owners: set[tuple[str, str]], expected: NoSteps) -> None:
    played = Played("a", "b", engine=ENGINE, node="10.9.9.9")
    for key in played.counted:
        played.counted[key].iterations = 0.0
    sent = None
    for tick in range(4):
        played.nodes["10.9.9.9"] = NodeReading(
            played.now_s + 0.5, {"g": Accelerator(100_000 * tick, frozenset(owners))}
        )
        if sent is None:
            sent = played.send("r", A)
        played.chunks(sent, 4)
        for counted in played.counted.values():
            counted.iterations = (counted.iterations or 0.0) + 4
        played.tick(1.0)
    found = {interval.steps for interval in played.intervals if interval.endpoint == A}
    assert found == {expected}


def test_steps_between_readings_of_a_node_are_shared_out_by_time() -> None:
    played = Played("a", engine=ENGINE, node="10.9.9.9")
    counted, sent = played.counted[A], None
    counted.iterations = 0.0
    for tick in range(8):
        reading_s = played.now_s + 0.75
        owners = frozenset({("ns", "a")})
        played.nodes["10.9.9.9"] = NodeReading(reading_s, {"g": Accelerator(100_000 * tick, owners)})
        sent = sent or played.send("r", A)
        played.chunks(sent, 4)
        counted.iterations += 4.0 if tick < 4 else 8.0
        played.tick(1.0)
    counts = [interval.steps.count for interval in played.intervals if isinstance(interval.steps, MeteredSteps)]
    assert counts[0] == pytest.approx(4.0)
    assert counts[-1] == pytest.approx(8.0)
    assert any(4.0 < count < 8.0 for count in counts), "a quarter of one slice and three of the next"


def test_between_two_pages() -> None:
    later = replace(PAGE, scraped_s=12.0, iterations_total=150.0, power_watts=500.0)
    found = steps_between(PAGE, later)
    assert (found.count, found.seconds, found.power, found.clock) == (50.0, 2.0, 800.0, 2_000.0)


@pytest.mark.parametrize("field", ["iterations_total", "power_watts", "sm_clock_mhz"])
def test_what_a_page_does_not_say_is_unknown_and_not_zero(field: str) -> None:
    found = steps_between(PAGE, replace(PAGE, scraped_s=12.0, **{field: None}))
    assert {"iterations_total": found.count, "power_watts": found.power, "sm_clock_mhz": found.clock}[
        field
    ] == pytest.approx(np.nan, nan_ok=True)


def test_a_time_of_which_nothing_is_known_makes_the_whole_unknown() -> None:
    whole = Steps()
    whole.add(Steps(5.0, 1.0, 400.0, 1_000.0), 1.0)
    whole.add(unknown_steps(1.0), 0.25)
    assert metered_steps(Traits(), WORK, whole, joules=1.0, busy_share=1.0) is NoSteps.UNCOUNTED


def test_without_a_profile_there_is_no_analytic_estimate() -> None:
    row = mean_step_row(Traits(), WORK, Steps(20.0, 1.0, 400.0, 1_000.0))
    assert np.isnan(value(row, "analytic_step_joules"))
    assert np.isnan(value(row, "idle_watts"))
    assert value(row, "batch") == pytest.approx(19 / 20)


PREFILL = st.tuples(st.integers(1, 4_000), st.integers(0, 2_000))
DECODE = st.tuples(st.integers(1, 64), st.integers(0, 100_000))


@given(prefills=st.lists(PREFILL, max_size=6), decodes=st.lists(DECODE, max_size=30))
def test_the_mean_step_has_the_mean_energy(prefills: list[tuple[int, int]], decodes: list[tuple[int, int]]) -> None:
    """For any steps, each prompt in one of its own: the analytic estimate of the mean row is the mean of the steps'."""
    if not prefills and not decodes:
        return
    squares = [float((tokens + cached) ** 2 - cached**2) for tokens, cached in prefills]
    count = len(prefills) + len(decodes)
    units = (
        float(len(prefills)),
        float(sum(tokens for tokens, _ in prefills)),
        sum(squares),
        float(len(decodes)),
        float(sum(batch for batch, _ in decodes)),
        float(sum(kv for _, kv in decodes)),
    )
    row = mean_step_row(Traits(engine=ENGINE), units, Steps(float(count), 1.0, 1.0, 1.0))
    true = sum(
        float(ENGINE.prefill_joules(float(tokens), square))
        for (tokens, _), square in zip(prefills, squares, strict=True)
    ) + sum(float(ENGINE.decode_joules(float(batch), float(kv))) for batch, kv in decodes)
    assert value(row, "analytic_step_joules") * count == pytest.approx(true, rel=1e-9)
    assert value(row, "batch") * count == pytest.approx(units[4])
    assert value(row, "kv_tokens") * count == pytest.approx(units[5])


@given(
    units=st.tuples(*[st.floats(0.0, 1e7)] * 6).filter(any),
    count=st.floats(0.001, 1e6),
)
def test_a_row_never_holds_what_no_step_can_be(units: tuple[float, ...], count: float) -> None:
    row = mean_step_row(Traits(engine=ENGINE), units, Steps(count, 1.0, 400.0, 1_000.0))
    assert not np.isinf(row).any()
    assert value(row, "analytic_step_joules") >= 0.0


@given(
    counts=st.lists(st.floats(0.0, 1e4), min_size=1, max_size=8),
    cut=st.floats(0.0, 1.0),
)
def test_steps_of_a_time_that_two_intervals_share_are_in_one_of_them(counts: list[float], cut: float) -> None:
    before, after = Steps(), Steps()
    for count in counts:
        slice_ = Steps(count, 0.2, 80.0, 200.0)
        before.add(slice_, cut)
        after.add(slice_, 1.0 - cut)
    assert before.count + after.count == pytest.approx(sum(counts))
    assert before.seconds + after.seconds == pytest.approx(0.2 * len(counts))
