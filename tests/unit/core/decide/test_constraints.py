"""The compiled check of constraints says what the rules say, one after the other."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.decide.comparing import first_rows, keep_near
from heliotrope.decide.constraints import check
from heliotrope.decide.losses import CODE, Loss

NAN = float("nan")
seconds = st.sampled_from([NAN, 0.0, 0.5, 1.0, 2.0, float("inf")])
errors = st.sampled_from([NAN, 0.0, 0.1])
promises = st.sampled_from([NAN, 0.5, 1.0])


@given(
    st.lists(
        st.tuples(seconds, seconds, seconds, errors, errors, st.booleans(), seconds, st.integers(-1, 1)), max_size=6
    ),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.sampled_from([NAN, 0.5]),
    st.sampled_from([0.0, 2.0]),
    st.tuples(promises, promises, promises),
)
@settings(max_examples=200, deadline=None)
def test_the_first_broken_rule_is_named(
    plans: list[tuple[float, float, float, float, float, bool, float, int]],
    regions: tuple[bool, bool, bool],
    floor: float,
    certainty: float,
    slo: tuple[float, float, float],
) -> None:
    n = len(plans)
    ttft, tpot, queue, ttft_error, tpot_error = np.array([plan[:5] for plan in plans]).reshape(n, 5).T.copy()
    fits, codes = (
        np.array([plan[5] for plan in plans], dtype=bool),
        np.array([plan[7] for plan in plans], dtype=np.intp),
    )
    quality = np.array([plan[6] for plan in plans], dtype=float)
    result, broken = np.empty((3, n), dtype=bool), np.empty(n, dtype=np.int8)

    columns = (ttft, tpot, queue, ttft_error, tpot_error, fits, quality, codes)
    check(*columns, np.array(regions), floor, certainty, *slo, result, broken)

    def kept(value: float, error: float, promise: float) -> bool:
        return bool(np.isfinite(value)) if np.isnan(promise) else value * (1.0 + certainty * error) <= promise

    for i in range(n):
        known = bool(np.isfinite(ttft[i]) and np.isfinite(tpot[i]))
        rules = {
            Loss.REGION: regions[codes[i]],
            Loss.QUALITY: np.isnan(floor) or quality[i] >= floor,
            Loss.CAPACITY: fits[i],
            Loss.UNKNOWN: known,
            Loss.TTFT: kept(ttft[i], ttft_error[i], slo[0]),
            Loss.TPOT: kept(tpot[i], tpot_error[i], slo[1]),
            Loss.QUEUE: kept(queue[i], ttft_error[i], slo[2]),
        }
        names = list(rules)
        assert broken[i] == next((CODE[rule] for rule in names if not rules[rule]), 0)
        hard, promised = all(rules[rule] for rule in names[:3]), all(rules[rule] for rule in names[3:])
        assert result[:, i].tolist() == [hard, known, promised]


@pytest.mark.parametrize(
    ("tolerance", "absolute", "kept"), [(0.0, False, [2]), (0.5, False, [2, 0]), (1.5, True, [2, 0, 3])]
)
def test_what_is_near_the_least_is_kept_in_order(tolerance: float, absolute: bool, kept: list[int]) -> None:
    column, codes = np.array([3.0, 9.0, 2.0, 3.5]), np.zeros(4, dtype=np.int8)
    left = np.array([2, 0, 1, 3], dtype=np.intp)
    count = keep_near(column, tolerance, absolute, 7, left, codes)
    assert left[:count].tolist() == kept
    assert codes.tolist() == [0 if i in kept else 7 for i in range(4)]


def test_regions_are_found_where_somebody_may_be_chosen() -> None:
    rows = np.empty(4, dtype=np.intp)
    first_rows(np.array([1, 0, -1, 0, 1]), np.array([False, True, True, True, True]), rows)
    assert rows.tolist() == [1, 4, -1, 2]
