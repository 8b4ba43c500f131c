"""What is unknown is written as None, and never as a number."""

import numpy as np
import pytest

from heliotrope.unknown import finite_or_none


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), np.float64("nan")])
def test_what_is_not_finite_is_none(value: float) -> None:
    assert finite_or_none(value) is None


@pytest.mark.parametrize("value", [0.0, -1.5, np.float64(2.5)])
def test_numbers_stay_and_are_plain(value: float) -> None:
    assert finite_or_none(value) == value
    assert type(finite_or_none(value)) is float
