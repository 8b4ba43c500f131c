"""One figure of a paper beside ours."""

import math
from dataclasses import dataclass
from typing import Any

from heliotrope.carbon.bootstrap import Interval
from heliotrope.unknown import finite_or_none

PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class Row:
    """A figure. Percentages are given as such, not as fractions."""

    id: str
    """Unique in its experiment."""
    title: str
    paper: float | str | None
    """What the paper prints; None where it prints nothing."""
    ours: float | str
    unit: str
    holds: bool | None
    """Whether the paper's statement holds here; None: reported only."""
    note: str = ""
    """What was judged, what stands in for the paper's input, and why a figure disagrees."""
    low: float = math.nan
    """95 % confidence interval of ours, NaN where there is none."""
    high: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """Plain data; None where unknown."""
        interval = [self.low, self.high] if math.isfinite(self.low) and math.isfinite(self.high) else None
        return {
            "id": self.id,
            "title": self.title,
            "paper": self.paper,
            "ours": self.ours if isinstance(self.ours, str) else finite_or_none(self.ours),
            "unit": self.unit,
            "holds": self.holds,
            "interval": interval,
            "note": self.note,
        }


def percent_row(
    id_: str,
    title: str,
    paper: float | None,
    interval: Interval,
    *,
    holds: bool | None,
    note: str = "",
) -> Row:
    """A row of a fraction with its interval, in percent."""
    return Row(
        id=id_,
        title=title,
        paper=paper,
        ours=interval.estimate * PERCENT,
        unit="%",
        holds=holds,
        note=note,
        low=interval.low * PERCENT,
        high=interval.high * PERCENT,
    )


def above_zero(interval: Interval, *, quick: bool) -> bool:
    """Whether a figure is positive: with its whole interval, or in a quick run by its sign."""
    return interval.estimate > 0.0 if quick or not interval.known else interval.low > 0.0
