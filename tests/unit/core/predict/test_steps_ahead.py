"""Which steps end before a first token."""

import pytest

from heliotrope.predict.steps_ahead import UNSEEN, steps_ahead

NAN = float("nan")


@pytest.mark.parametrize(
    ("asked", "decodes", "prefills", "over_seconds"),
    [
        ((4.0, 0.01, 0.0), 1.0, 1.0, 0.01),
        ((4.0, 0.3, 1.0), 1.0, 2.0, 0.3),
        ((4.0, 0.0, 0.0), 1.0, 1.0, 0.0),
        ((4.0, NAN, 0.0), UNSEEN, 1.0, 0.0),
        ((4.0, NAN, NAN), UNSEEN, 1.0, 0.0),
        ((4.0, 0.3, NAN), UNSEEN, 1.0, 0.0),
        ((4.0, -0.1, 0.0), UNSEEN, 1.0, 0.0),
        ((0.0, NAN, NAN), 0.0, 1.0, 0.0),
        ((0.0, 0.3, 1.0), 0.0, 1.0, 0.0),
        ((NAN, 0.3, 1.0), 1.0, 2.0, 0.3),
        ((NAN, NAN, NAN), UNSEEN, 1.0, 0.0),
    ],
)
def test_steps_follow_the_running_one(
    asked: tuple[float, float, float], decodes: float, prefills: float, over_seconds: float
) -> None:
    assert steps_ahead(*asked) == (decodes, prefills, over_seconds)
