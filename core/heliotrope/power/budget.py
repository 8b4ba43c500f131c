"""The watts that a pool may draw at a time: constant, by a weekly schedule, in answer to the grid; the lowest counts.

A schedule is in local time. A window starts on its days at its start and ends at the next time of day that is its end,
so one with its end before its start runs over midnight. Where a change of clocks makes a start or end happen twice, the
window is the longer of the two; where it leaves one out, the window starts or ends as much later.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from heliotrope.api.v1alpha1.controls import BudgetWindow, WattBudget, Weekday

_WEEKDAYS = tuple(Weekday)


class LimitSource(StrEnum):
    """Where a limit comes from."""

    CONSTANT = "Budget"
    SCHEDULE = "Schedule"
    DEMAND = "DemandResponse"


@dataclass(frozen=True, slots=True)
class Limit:
    """Watts that a pool may draw, and whose wish that is."""

    watts: float
    source: LimitSource
    name: str = ""
    """Name of the window or event; empty for a constant."""


@dataclass(frozen=True, slots=True)
class Planned:
    """What a budget says at a time."""

    limit: Limit | None
    """The lowest that holds; None: no limit."""
    changes_unix_s: float
    """When a window next starts or ends; inf if never."""
    problems: tuple[str, ...] = ()
    """Windows that cannot be read; they hold at no time."""


def planned(budget: WattBudget | None, now_unix_s: float) -> Planned:
    """The limit of constant and schedule at a time; of several the lowest."""
    if budget is None:
        return Planned(None, float("inf"))
    limits = [] if budget.watts is None else [Limit(float(budget.watts), LimitSource.CONSTANT)]
    changes, problems = float("inf"), []
    for window in budget.schedule:
        try:
            spans = window_spans(window, now_unix_s)
        except (LookupError, ValueError, OSError):
            problems.append(
                f"budget.schedule {window.name}: there is no time zone {window.time_zone!r}; use an IANA name such as "
                f"Europe/Madrid"
            )
            continue
        if any(start <= now_unix_s < end for start, end in spans):
            limits.append(Limit(float(window.watts), LimitSource.SCHEDULE, window.name))
        edges = [edge for span in spans for edge in span if edge > now_unix_s]
        changes = min(changes, min(edges, default=float("inf")))
    return Planned(lowest(limits), changes, tuple(problems))


def lowest(limits: Sequence[Limit | None]) -> Limit | None:
    """The limit that counts; the first of equal ones. None if there are none."""
    return min((limit for limit in limits if limit is not None), key=lambda limit: limit.watts, default=None)


def window_spans(window: BudgetWindow, now_unix_s: float) -> list[tuple[float, float]]:
    """The starts and ends around a time, Unix seconds: from the last that may hold to the first of a week later.

    Raises:
        LookupError, ValueError, OSError: if there is no such time zone.
    """
    zone = ZoneInfo(window.time_zone)
    today = datetime.fromtimestamp(now_unix_s, zone).date()
    start, end = time.fromisoformat(window.start), time.fromisoformat(window.end)
    spans = []
    for offset in range(-2, 9):
        day = today + timedelta(days=offset)
        if _WEEKDAYS[day.weekday()] in window.days:
            last = day if end > start else day + timedelta(days=1)
            spans.append((_instant(day, start, zone, fold=0), _instant(last, end, zone, fold=1)))
    return spans


def _instant(day: date, at: time, zone: ZoneInfo, *, fold: int) -> float:
    """A wall time as an instant.

    A time that happens twice is the first (fold 0) or the second (fold 1) of them; one that is left out is read by the
    offset before the change, so that it comes as much later.
    """
    wall = datetime.combine(day, at, zone)
    first, second = (wall.replace(fold=each).astimezone(UTC).timestamp() for each in (0, 1))
    left_out = second < first
    return first if left_out or fold == 0 else second
