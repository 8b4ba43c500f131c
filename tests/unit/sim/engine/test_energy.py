"""The meter is exact at any time, never runs backwards and never loses a remainder."""

from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.engine.model import EngineModel
from heliotrope_sim.engine.energy import EnergyMeter

SECOND = 1_000_000_000


def test_idle_time_draws_idle_power_exactly(model: EngineModel) -> None:
    meter = EnergyMeter(model, now_ns=5)
    assert meter.picojoules(5) == 0
    assert meter.millijoules(5 + SECOND) == 100_000
    assert meter.host_picojoules(5 + SECOND) == 30 * 10**12
    # A thousand readings and settlements in between change nothing.
    for now in range(5, 5 + SECOND, 1_000_003):
        meter.settle(now)
    meter.settle(5 + SECOND)
    assert meter.picojoules(5 + SECOND) == 100_000 * 1_000_000_000 == meter.idle_picojoules


def test_a_step_draws_its_energy_evenly_over_its_time(model: EngineModel) -> None:
    meter = EnergyMeter(model, now_ns=0)
    meter.step(SECOND, SECOND, 900 * 10**12)
    assert meter.millijoules(SECOND) == 100_000
    assert meter.millijoules(SECOND + SECOND // 3) == 100_000 + 299_999  # 299,999.9997 mJ
    assert meter.millijoules(2 * SECOND) == 1_000_000
    assert meter.watts(SECOND + 1) == 900.0
    assert meter.watts(2 * SECOND) == 100.0
    assert meter.millijoules(3 * SECOND) == 1_100_000


def test_sleep_changes_the_standing_power_after_the_step_in_progress(model: EngineModel) -> None:
    meter = EnergyMeter(model, now_ns=0)
    meter.step(0, SECOND, 500 * 10**12)
    meter.set_asleep(SECOND // 2, asleep=True)
    assert meter.millijoules(2 * SECOND) == 500_000 + 40_000
    meter.set_asleep(3 * SECOND, asleep=False)
    assert meter.millijoules(4 * SECOND) == 500_000 + 80_000 + 100_000
    assert (meter.busy_picojoules, meter.asleep_picojoules) == (500 * 10**12, 80 * 10**12)


@settings(deadline=None)
@given(
    events=st.lists(
        st.tuples(
            st.integers(0, 10**9),
            st.sampled_from(["read", "step", "sleep", "wake"]),
            st.integers(1, 10**9),
            # Steps draw at least the idle power; below that a reading in the middle of one could shrink.
            st.integers(100_000, 10**7),
        ),
        max_size=40,
    )
)
def test_readings_never_shrink_and_parts_add_up(model: EngineModel, events: list[tuple[int, str, int, int]]) -> None:
    meter = EnergyMeter(model, now_ns=0)
    now = last = 0
    for wait, action, duration, milliwatts in events:
        now = now + wait
        if action == "step":
            now = max(now, meter.settled_ns)
            meter.step(now, duration, milliwatts * duration)
        elif action != "read":
            meter.set_asleep(now, asleep=action == "sleep")
        reading = meter.picojoules(now)
        assert reading >= last
        last = reading
    end = max(now, meter.settled_ns)
    total = meter.picojoules(end)
    meter.settle(end)
    assert total == meter.busy_picojoules + meter.idle_picojoules + meter.asleep_picojoules
