"""The annotations of a deferrable Job: what its creator asks for, and what the operator writes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from heliotrope.api.scalars import parse_decimal, parse_duration, parse_time
from heliotrope.scale.deferral import Work
from heliotrope_operator.kinds.deferrable import PREFIX
from heliotrope_operator.kinds.deferrable import REGION as REGION

T = TypeVar("T")

DEADLINE = f"{PREFIX}deadline"
"""RFC 3339 time, or a duration since the Job was created."""
EXPECTED_DURATION = f"{PREFIX}expected-duration"
LONGEST_DURATION = f"{PREFIX}longest-duration"
"""How long it may run; the deadline is kept for this."""
EXPECTED_POWER = f"{PREFIX}expected-power-watts"
"""What it draws while it runs, so that grams can be told; steady power is assumed anyway."""
POLICY = f"{PREFIX}policy"
"""CarbonPolicy of the namespace whose `deferral` holds for the Job."""

PLANNED_START = f"{PREFIX}planned-start"
"""Written by the operator while the Job waits."""
UNDEFERRED_INTENSITY = f"{PREFIX}undeferred-intensity"
"""Written with the first plan: g/kWh that were expected for a start on arrival."""
STARTED = f"{PREFIX}started"
"""Written with the resumption: when the operator started it. It starts a Job once."""
REASON = f"{PREFIX}deferral-reason"
"""Why it waits, or why it was started then."""

LONGEST_BY_DEFAULT = 1.5
"""A Job that says only what is expected may take this many times as long."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a Job asks for."""

    work: Work | None
    """None: nobody said how long it runs."""
    policy: str | None
    region: str | None
    power_watts: float | None
    planned_unix_s: float | None
    undeferred_g_per_kwh: float | None
    problems: tuple[str, ...]
    """Annotations that cannot be read, and why. With any of them the Job is not planned."""


def parse(annotations: Iterable[tuple[str, str]], *, created_unix_s: float, longest_run_s: float | None) -> Ask:
    """Read the annotations of a Job or Workload.

    Args:
        annotations: those of Heliotrope.
        created_unix_s: when the object was created.
        longest_run_s: how long the object itself allows its pods to run; None: without limit.
    """
    found = dict(annotations)
    problems: list[str] = []

    def read(name: str, parse: Callable[[str], T]) -> T | None:
        text = found.get(name)
        if text is None:
            return None
        try:
            return parse(text.strip())
        except ValueError as error:
            problems.append(f"annotation {name}: {text[:100]!r} {error}")
            return None

    expected_s, longest_s = read(EXPECTED_DURATION, _seconds), read(LONGEST_DURATION, _seconds)
    deadline = read(DEADLINE, lambda text: _deadline(text, created_unix_s))
    if expected_s is not None and longest_s is not None and longest_s < expected_s:
        problems.append(f"annotation {LONGEST_DURATION} must not be below {EXPECTED_DURATION}")
    power_watts = read(EXPECTED_POWER, parse_decimal)
    work = None
    if not problems:
        work = _work(created_unix_s, expected_s, longest_s, longest_run_s, deadline)
    # What the operator wrote itself is no reason to refuse the Job.
    planned = _or_none(found.get(PLANNED_START), lambda text: parse_time(text).timestamp())
    undeferred = _or_none(found.get(UNDEFERRED_INTENSITY), parse_decimal)
    return Ask(work, found.get(POLICY), found.get(REGION), power_watts, planned, undeferred, tuple(problems))


def _work(
    created_unix_s: float,
    expected_s: float | None,
    longest_s: float | None,
    longest_run_s: float | None,
    deadline_unix_s: float | None,
) -> Work | None:
    """Durations fill in for each other; no run is longer than the object allows."""
    if expected_s is None:
        expected_s = longest_s if longest_s is not None else longest_run_s
    if expected_s is None:
        return None
    longest_s = expected_s * LONGEST_BY_DEFAULT if longest_s is None else longest_s
    if longest_run_s is not None:
        expected_s, longest_s = min(expected_s, longest_run_s), min(longest_s, longest_run_s)
    return Work(created_unix_s, expected_s, max(longest_s, expected_s), deadline_unix_s)


def _seconds(text: str) -> float:
    seconds = parse_duration(text).total_seconds()
    if seconds <= 0.0:
        raise ValueError("must be above 0")
    return seconds


def _deadline(text: str, created_unix_s: float) -> float:
    try:
        return created_unix_s + parse_duration(text) / timedelta(seconds=1)
    except ValueError:
        pass
    try:
        return parse_time(text).timestamp()
    except ValueError:
        raise ValueError(
            'must be a time such as "2026-06-01T06:00:00Z", or a duration since creation such as "12h"'
        ) from None


def _or_none(text: str | None, parse: Callable[[str], T]) -> T | None:
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError:
        return None
