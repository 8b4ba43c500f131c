"""The arms that requests are in, so that savings are measured and not asserted."""

from enum import StrEnum


class Arm(StrEnum):
    """How a request's endpoint was chosen."""

    UNSTEERED = "unsteered"
    """No enforced policy decided on it."""
    STEERED = "policy"
    """It went where an enforced policy sent it."""
    HOLDOUT = "holdout"
    """An enforced policy kept it blind to carbon, so that there is something to compare with."""
