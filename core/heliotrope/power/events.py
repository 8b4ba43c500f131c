"""Requests of the grid from any source as `Event`s: the policy's own list, a Prometheus sample, a list over HTTP.

The list over HTTP is ours (docs/power.md) or that of an OpenADR 3 VTN (`GET /events`). Reading is tolerant: an entry
that cannot be read is left out and named, as one bad entry must not end the answer to another. It is also bounded, as
the address may be anybody's.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from heliotrope.api.v1alpha1.controls import DemandResponse
from heliotrope.errors import InvalidInputError
from heliotrope.power.demand import FOREVER, Event
from heliotrope.units import SECONDS_PER_DAY, SECONDS_PER_HOUR

MAX_BYTES = 1_048_576
MAX_EVENTS = 256
"""Events and intervals of a list; what comes after is left out and said so."""
MAX_NAME = 253
MAX_WATTS = 1e9
PROMETHEUS_EVENT = "prometheus"
"""Name of the event that a query's sample stands for."""
_KILOWATT = 1_000.0
_DURATION = re.compile(
    r"^P(?:(\d{1,4})Y)?(?:(\d{1,4})M)?(?:(\d{1,5})W)?(?:(\d{1,5})D)?"
    r"(?:T(?:(\d{1,6})H)?(?:(\d{1,6})M)?(?:(\d{1,9})(?:\.\d+)?S)?)?$"
)
_ENDLESS_YEARS = 1_000
_DAYS_PER_YEAR, _DAYS_PER_MONTH = 365.25, 30.4375
_LIMIT_TYPES = frozenset({"IMPORT_CAPACITY_LIMIT", "DISPATCH_SETPOINT", "CONTROL_SETPOINT"})
_OUT_OF_FORCE = frozenset({"cancelled", "canceled", "completed"})


@dataclass(frozen=True, slots=True)
class EventList:
    """What a list says."""

    events: tuple[Event, ...]
    problems: tuple[str, ...] = ()
    """Entries that were left out, and why."""


def planned_events(response: DemandResponse) -> tuple[Event, ...]:
    """The events that the policy itself lists."""
    return tuple(
        Event(
            event.name,
            event.start.timestamp(),
            event.end.timestamp(),
            None if event.watts is None else float(event.watts),
        )
        for event in response.events or ()
    )


def sampled_event(watts: float | None, since_unix_s: float) -> tuple[Event, ...]:
    """The event that a query's sample stands for: it began when a sample was first seen, and lasts while there is one.

    Args:
        watts: the sample; None for no sample, which is no event. NaN and what is no power are none either.
        since_unix_s: when the first sample without a gap was seen.
    """
    if watts is None or not math.isfinite(watts) or not 0.0 <= watts <= MAX_WATTS:
        return ()
    return (Event(PROMETHEUS_EVENT, since_unix_s, FOREVER, watts),)


def read_events(body: bytes, now_unix_s: float) -> EventList:
    """The events of a list over HTTP.

    Args:
        body: JSON: an object with `events` in our form, or a list of OpenADR 3 events (also under `events`).
        now_unix_s: stands in for a start that says "now".

    Raises:
        InvalidInputError: if the whole is too large or no such list.
    """
    if len(body) > MAX_BYTES:
        raise InvalidInputError("", f"the list of events has more than {MAX_BYTES} bytes")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidInputError("", "the list of events is not JSON") from None
    entries = document.get("events") if isinstance(document, Mapping) else document
    if not isinstance(entries, list):
        raise InvalidInputError("events", "must be a list; see docs/power.md for its form")
    events: list[Event] = []
    problems: list[str] = []
    for index, entry in enumerate(entries[:MAX_EVENTS]):
        try:
            events.extend(_entry(entry, now_unix_s))
        except InvalidInputError as error:
            problems.append(f"events[{index}]: {error}")
    if len(entries) > MAX_EVENTS or len(events) > MAX_EVENTS:
        problems.append(f"only the first {MAX_EVENTS} events are read")
    return EventList(tuple(_uniquely_named(events[:MAX_EVENTS])), tuple(problems))


def _entry(entry: object, now_unix_s: float) -> list[Event]:
    if not isinstance(entry, Mapping):
        raise InvalidInputError("", "is no object")
    return _openadr(entry, now_unix_s) if "intervals" in entry else _own(entry)


def _own(entry: Mapping[str, Any]) -> list[Event]:
    if str(entry.get("status", "")).lower() in _OUT_OF_FORCE:
        return []
    start = _time(entry.get("start"), "start")
    if "end" in entry:
        end = _time(entry["end"], "end")
    elif "duration" in entry:
        end = start + _duration(entry["duration"], "duration")
    else:
        raise InvalidInputError("end", "give end or duration")
    if end <= start:
        raise InvalidInputError("end", "must be after start")
    reduction = entry.get("reductionPercent")
    return [
        Event(
            _name(entry.get("name") or entry.get("id"), "name"),
            start,
            end,
            None if entry.get("watts") is None else _number(entry["watts"], "watts", 0.0, MAX_WATTS),
            None if reduction is None else _number(reduction, "reductionPercent", 1.0, 100.0) / 100.0,
        )
    ]


def _openadr(entry: Mapping[str, Any], now_unix_s: float) -> list[Event]:
    """One event per interval. Intervals without a period of their own follow each other by the event's."""
    name = _name(entry.get("eventName") or entry.get("id"), "eventName")
    intervals = entry["intervals"]
    if not isinstance(intervals, list):
        raise InvalidInputError("intervals", "must be a list")
    period = entry.get("intervalPeriod")
    following = _period_start(period, "intervalPeriod", now_unix_s) if isinstance(period, Mapping) else None
    common = _period_duration(period, "intervalPeriod") if isinstance(period, Mapping) else None
    events = []
    for index, interval in enumerate(intervals[:MAX_EVENTS]):
        path = f"intervals[{index}]"
        if not isinstance(interval, Mapping):
            raise InvalidInputError(path, "is no object")
        own = interval.get("intervalPeriod")
        length = common
        if isinstance(own, Mapping):
            following = _period_start(own, f"{path}.intervalPeriod", now_unix_s)
            length = _period_duration(own, f"{path}.intervalPeriod") or common
        if following is None or length is None:
            raise InvalidInputError(f"{path}.intervalPeriod", "start and duration are stated neither here nor above")
        end = following + length
        asked = _asked(entry, interval, path)
        if asked is not None:
            watts, reduction = asked
            events.append(Event(name if len(intervals) == 1 else f"{name}/{index}", following, end, watts, reduction))
        following = end
    return events


def _asked(entry: Mapping[str, Any], interval: Mapping[str, Any], path: str) -> tuple[float | None, None] | None:
    """Watts that the interval's payloads leave, or None alone for a level without watts; no tuple: nothing is asked."""
    payloads = interval.get("payloads")
    if not isinstance(payloads, list):
        raise InvalidInputError(f"{path}.payloads", "must be a list")
    for payload in payloads[:MAX_EVENTS]:
        if not isinstance(payload, Mapping) or not isinstance(payload.get("values"), list) or not payload["values"]:
            continue
        kind, value = str(payload.get("type", "")), payload["values"][0]
        where = f"{path}.payloads {kind}"
        if kind in _LIMIT_TYPES:
            return _number(value, where, 0.0, MAX_WATTS) * _watts_per_unit(entry, kind), None
        if kind == "SIMPLE":
            return (None, None) if _number(value, where, 0.0, 3.0) > 0 else None
    return None


def _watts_per_unit(entry: Mapping[str, Any], kind: str) -> float:
    """By the payload's descriptor; kW where it says nothing, as OpenADR 3 defines."""
    descriptors = entry.get("payloadDescriptors")
    for each in descriptors if isinstance(descriptors, list) else ():
        if isinstance(each, Mapping) and each.get("payloadType") == kind and each.get("units") is not None:
            units = str(each["units"]).upper()
            if units not in {"W", "KW", "MW"}:
                raise InvalidInputError("payloadDescriptors", f"{kind} in {units[:16]} is no power; use W, KW or MW")
            return {"W": 1.0, "KW": _KILOWATT, "MW": _KILOWATT * _KILOWATT}[units]
    return _KILOWATT


def _period_start(period: Mapping[str, Any], path: str, now_unix_s: float) -> float:
    start = period.get("start")
    if isinstance(start, str) and start.startswith(("0000-", "0001-01-01")):
        return now_unix_s  # OpenADR 3's "now"
    return _time(start, f"{path}.start")


def _period_duration(period: Mapping[str, Any], path: str) -> float | None:
    return None if period.get("duration") is None else _duration(period["duration"], f"{path}.duration")


def _time(value: object, path: str) -> float:
    """An ISO 8601 time with its zone, Unix seconds."""
    if not isinstance(value, str) or len(value) > 64:
        raise InvalidInputError(path, 'must be a time such as "2026-12-01T17:00:00Z"')
    try:
        time = datetime.fromisoformat(value)
        if time.tzinfo is None:
            raise InvalidInputError(path, f"{value!r} has no time zone; add Z or an offset such as +01:00")
        return time.timestamp()
    except (ValueError, OverflowError):
        raise InvalidInputError(path, f'{value!r} is no time such as "2026-12-01T17:00:00Z"') from None


def _duration(value: object, path: str) -> float:
    """An ISO 8601 duration in seconds; OpenADR's P9999Y is without end."""
    found = _DURATION.match(value) if isinstance(value, str) and len(value) <= 64 else None
    parts = [int(each or 0) for each in found.groups()] if found else []
    if not any(parts):
        raise InvalidInputError(path, 'must be a duration above zero such as "PT1H30M"')
    years, months, weeks, days, hours, minutes, seconds = parts
    if years >= _ENDLESS_YEARS:
        return FOREVER
    whole_days = years * _DAYS_PER_YEAR + months * _DAYS_PER_MONTH + weeks * 7 + days
    return whole_days * SECONDS_PER_DAY + hours * SECONDS_PER_HOUR + minutes * 60.0 + seconds


def _number(value: object, path: str, low: float, high: float) -> float:
    """A number, or a decimal string, within bounds."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else math.nan
    except (ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise InvalidInputError(path, f"must be a number from {low:g} to {high:g}")
    return number


def _name(value: object, path: str) -> str:
    if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
        raise InvalidInputError(path, "is missing")
    return "".join(each if each.isprintable() else " " for each in str(value).strip()[:MAX_NAME])


def _uniquely_named(events: Sequence[Event]) -> list[Event]:
    """The last of entries with one name and start counts, as a correction of those before."""
    latest = {(event.name, event.start_unix_s): event for event in events}
    return sorted(latest.values(), key=lambda event: (event.start_unix_s, event.name))
