"""The baseline that every method has to beat: as at the same hour of the newest known day."""

from dataclasses import dataclass

import numpy as np

from heliotrope.carbon.forecast.hours import FloatMatrix, Hours, IntVector
from heliotrope.carbon.forecast.method import DAY, HORIZON_HOURS, Fitted, same_hour_lag

LOOK_BACK_DAYS = 7
"""A day before is taken where an hour is unknown, at most so many in all."""


@dataclass(frozen=True, slots=True)
class SameHourYesterday:
    """Nothing to learn."""

    name: str = "same hour yesterday"

    def fit(self, hours: Hours) -> Fitted | None:
        """Itself, if anything is known."""
        return self if hours.known else None

    def predict(self, hours: Hours, origins: IntVector) -> FloatMatrix:
        """See `Fitted`."""
        predicted = np.full((len(origins), HORIZON_HOURS), np.nan)
        for ahead in range(1, HORIZON_HOURS + 1):
            column = predicted[:, ahead - 1]
            for days in range(LOOK_BACK_DAYS):
                source = origins + ahead - same_hour_lag(ahead) - days * DAY
                missing = np.isnan(column) & (source >= 0)
                column[missing] = hours.values[source[missing]]
        return predicted
