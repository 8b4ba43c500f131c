"""Deadlines that requests ask for."""

import pytest

from heliotrope.decide.asked import parse_deadline
from heliotrope.errors import InvalidInputError

NOW_UNIX_S = 1_700_000_000.0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200.0),
        (" 90s ", 90.0),
        ("1h30m", 5400.0),
        ("2023-11-14T23:13:20Z", 3600.0),
        ("2023-11-14T22:13:20+00:00", 0.0),
        ("2023-11-14T21:13:20z", -3600.0),
    ],
)
def test_a_deadline_is_a_time_or_a_duration_from_now(text: str, seconds: float) -> None:
    assert parse_deadline(text, NOW_UNIX_S) == NOW_UNIX_S + seconds


@pytest.mark.parametrize("text", ["", "soon", "-1h", "2", "2h 3m", "1d", "2023-13-40T00:00:00Z", "²h", "9" * 2000])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError):
        parse_deadline(text, NOW_UNIX_S)
