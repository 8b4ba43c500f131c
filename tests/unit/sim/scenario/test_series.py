from hypothesis import given
from hypothesis import strategies as st

from heliotrope.carbon.series import Series
from heliotrope_sim.scenario.series import beside, constant, first_gap

STEP = 10.0
indices = st.sets(st.integers(0, 30), min_size=1)


def series_at(there: set[int]) -> Series:
    times = tuple(STEP * i for i in sorted(there))
    return Series(times, (1.0,) * len(times), (None,) * len(times), last_holds_s=STEP, longest_hold_s=STEP)


@given(indices, st.integers(-20, 300), st.integers(0, 150))
def test_the_first_gap_is_the_first_time_without_a_value(there: set[int], start: int, length: int) -> None:
    series = series_at(there)
    without = [time for time in range(start, start + length) if series.at(float(time)) is None]
    assert first_gap(series, float(start), float(start + length)) == (float(without[0]) if without else None)


def test_a_long_series_is_looked_through_quickly() -> None:
    series = series_at(set(range(100_000)))
    assert first_gap(series, 0.0, 100_000 * STEP) is None
    assert first_gap(series, 0.0, 100_001 * STEP) == 100_000 * STEP


def test_a_constant_has_no_gap() -> None:
    assert first_gap(constant(0.0), 0.0, 4e9) is None


def test_paths_of_profiles_start_at_their_folder() -> None:
    assert beside("grids/a.yaml", "b.csv") == "grids/b.csv"
    assert beside("a.yaml", "b.csv") == "b.csv"
    assert beside("grids/a.yaml", "/data/b.csv") == "/data/b.csv"
