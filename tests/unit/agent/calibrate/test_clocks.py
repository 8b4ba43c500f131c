import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.engine import profiles
from heliotrope_agent.calibrate.clocks import Point, best_clock, equals, next_clock, smoothed, spread_out

CLOCKS = tuple(range(360, 1411, 15))
STEP = 15


def search(truth: Callable[[int], float], coarse: int, noise: float, rng: random.Random, most: int = 12) -> list[Point]:
    """What a calibration would measure, clock after clock."""
    found = {mhz: truth(mhz) * (1.0 + rng.gauss(0.0, noise)) for mhz in spread_out(CLOCKS, coarse)}

    def points() -> list[Point]:
        return [Point(mhz, value, value * noise) for mhz, value in found.items()]

    for _ in range(most):
        mhz = next_clock(points(), CLOCKS)
        if mhz is None:
            break
        assert mhz not in found
        assert mhz in CLOCKS
        found[mhz] = truth(mhz) * (1.0 + rng.gauss(0.0, noise))
    return points()


@given(st.sets(st.integers(1, 5_000), min_size=1, max_size=120), st.integers(1, 130))
def test_first_clocks_are_spread_with_both_ends(clocks: set[int], count: int) -> None:
    ordered = sorted(clocks)
    found = spread_out(ordered, count)
    assert list(found) == sorted({*found}, reverse=True)
    assert len(found) == min(count, len(ordered))
    assert found[0] == ordered[-1]
    assert count == 1 or found[-1] == ordered[0]


@given(st.integers(0, len(CLOCKS) - 1), st.floats(0.0005, 0.05), st.floats(0.0005, 0.05), st.integers(3, 9))
def test_any_valley_is_found_to_the_step_where_there_is_no_noise(
    place: int, left: float, right: float, coarse: int
) -> None:
    def truth(mhz: int) -> float:
        steps = CLOCKS.index(mhz) - place
        return 1.0 + (right * steps if steps > 0 else -left * steps)

    points = search(truth, coarse, 1e-9, random.Random(0), most=40)
    assert abs(CLOCKS.index(best_clock(points)) - place) <= 1


@pytest.mark.parametrize("noise", [0.0005, 0.001])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_an_engines_best_clock_is_found_within_a_step_in_noise(phase: str, noise: float) -> None:
    engine = profiles.load("llama-3.1-8b-a100-40gb")
    joules = {}
    for mhz in CLOCKS:
        at = engine.at_clock(mhz)
        if phase == "prefill":
            joules[mhz] = float(at.prefill_joules(8192.0, 4 * 2048.0**2)) / 8192
        else:
            joules[mhz] = float(at.decode_joules(16.0, 16 * 400.0)) / 16
    best = min(CLOCKS, key=joules.__getitem__)
    rng, near, measured = random.Random(1), 0, 0
    for _ in range(60):
        points = search(joules.__getitem__, 6, noise, rng)
        near += abs(best_clock(points) - best) <= STEP
        measured += len(points)
        assert joules[best_clock(points)] <= joules[best] * (1.0 + 8.0 * noise)
    assert near >= 57
    assert measured <= 60 * 16


@given(
    st.lists(
        st.tuples(st.sampled_from(CLOCKS), st.floats(0.1, 10.0)), min_size=1, max_size=20, unique_by=lambda x: x[0]
    )
)
def test_the_search_ends_and_never_asks_twice(values: list[tuple[int, float]]) -> None:
    points = [Point(mhz, value, 0.01 * value) for mhz, value in values]
    asked = set()
    while (mhz := next_clock(points, CLOCKS)) is not None:
        assert mhz not in {point.mhz for point in points}
        asked.add(mhz)
        points.append(Point(mhz, 1.0 + abs(mhz - 700) / 700, 0.01))
    assert len(asked) <= len(CLOCKS)


@given(
    st.lists(st.tuples(st.sampled_from(CLOCKS), st.floats(0.5, 2.0)), min_size=1, max_size=20, unique_by=lambda x: x[0])
)
def test_the_best_is_the_lowest_of_the_profile_and_equal_to_itself(values: list[tuple[int, float]]) -> None:
    points = [Point(mhz, value, 0.02 * value) for mhz, value in values]
    found, best = smoothed(points), best_clock(points)
    assert {*found} == {point.mhz for point in points}
    assert found[best] == min(found.values())
    assert best in equals(points)


def test_smoothing_moves_no_point_further_than_noise_explains() -> None:
    rng = random.Random(5)
    points = search(lambda mhz: mhz / 600 + 600 / mhz, 7, 0.01, rng)
    values = smoothed(points)
    assert any(values[point.mhz] != point.joules_per_token for point in points)
    for point in points:
        assert abs(values[point.mhz] - point.joules_per_token) <= 4.0 * point.deviation


def test_unknown_noise_is_not_smoothed() -> None:
    points = [Point(mhz, 1.0 + abs(mhz - 700) / 700, float("nan")) for mhz in (500, 600, 700, 800, 900)]
    assert smoothed(points) == {point.mhz: point.joules_per_token for point in points}


def test_nothing_measured_has_no_best() -> None:
    assert next_clock([], CLOCKS) is None
    with pytest.raises(ValueError, match="nothing"):
        best_clock([])
