"""What a method of forecasting is: it learns from hours, and then tells the next 72 from any of them."""

from typing import Protocol

from heliotrope.carbon.forecast.hours import FloatMatrix, Hours, IntVector

HORIZON_HOURS = 72
"""Hours ahead that are forecast; the first is the hour after the newest known one."""
DAY = 24
WEEK = 7 * DAY


class Fitted(Protocol):
    """A method that has learned."""

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        """(origins, HORIZON_HOURS): intensity 1, 2, … hours after each origin, g/kWh, NaN where it cannot tell.

        Args:
            hours: what happened; nothing after an origin enters its forecast.
            origins: positions in `hours.values` of the newest hours that are known.
        """
        ...


class Method(Protocol):
    """A way to forecast."""

    @property
    def name(self) -> str:
        """As a forecast's source has it."""
        ...

    def fit(self, hours: Hours) -> Fitted | None:
        """Learn from hours; None if they are too few. The same hours give the same result."""
        ...


def same_hour_lag(ahead: int) -> int:
    """Hours from the target, `ahead` hours after the origin, back to the newest known hour of the same time of day."""
    return -(-ahead // DAY) * DAY
