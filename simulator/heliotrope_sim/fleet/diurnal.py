"""How much is asked in each region, hour by hour."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from heliotrope.errors import InvalidInputError
from heliotrope.units import SECONDS_PER_HOUR
from heliotrope_sim.data import data_file

CASPER_FILE = "casper/requests.csv"


@dataclass(frozen=True, slots=True)
class HourlyRates:
    """A shape: its unit is unknown and does not matter."""

    regions: tuple[str, ...]
    start_unix_s: float
    per_hour: NDArray[np.float64]
    """Shape (hours, regions), every hour from the start on."""

    def of(self, *regions: str) -> "HourlyRates":
        """Some regions, in this order.

        Raises:
            InvalidInputError: if one is not there; the message lists those there are.
        """
        for region in regions:
            if region not in self.regions:
                raise InvalidInputError("region", f"{region!r} is none of {', '.join(self.regions)}")
        columns = [self.regions.index(region) for region in regions]
        return HourlyRates(regions, self.start_unix_s, self.per_hour[:, columns])


def casper(path: Path | None = None) -> HourlyRates:
    """Requests to Wikipedia by AWS region, seven weeks (`data/casper`), or a file of its shape.

    Columns are timestamp (Unix seconds), datetime, then one per region.

    Raises:
        InvalidInputError: if a row cannot be read, is negative, out of order, or hours are missing before it; the
            message names file and line.
    """
    path = path or data_file(CASPER_FILE)
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        regions = tuple(next(reader, ()))[2:]
        times: list[float] = []
        rows: list[list[float]] = []
        for number, cells in enumerate(reader, start=2):
            place = f"{path.name}:{number}"
            try:
                time, values = float(cells[0]), [float(cell) for cell in cells[2:]]
            except (IndexError, ValueError) as error:
                raise InvalidInputError(place, f"not a row of hourly requests: {error}") from error
            if len(values) != len(regions):
                raise InvalidInputError(place, f"has {len(values)} regions, the header has {len(regions)}")
            if not all(np.isfinite(value) and value >= 0.0 for value in values):
                raise InvalidInputError(place, "holds a number that is missing or negative")
            if times and time <= times[-1]:
                raise InvalidInputError(place, "comes before the row above, or again")
            if times and time - times[-1] != SECONDS_PER_HOUR:
                raise InvalidInputError(place, f"{time - times[-1]:.0f} s after the row above; hours are missing")
            times.append(time)
            rows.append(values)
    if not rows:
        raise InvalidInputError(path.name, "holds no hours")
    return HourlyRates(regions, times[0], np.array(rows))
