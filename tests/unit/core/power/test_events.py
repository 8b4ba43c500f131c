"""Lists of events: our form, OpenADR 3, and everything that may be wrong with them."""

import json
from datetime import UTC, datetime
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.power.demand import Event
from heliotrope.power.events import MAX_BYTES, MAX_EVENTS, EventList, read_events, sampled_event

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
FIVE = datetime(2026, 12, 1, 17, tzinfo=UTC).timestamp()


def read(document: Any) -> EventList:
    return read_events(json.dumps(document).encode(), NOW)


def test_our_own_form() -> None:
    found = read(
        {
            "events": [
                {"name": "watts", "start": "2026-12-01T18:00:00+01:00", "end": "2026-12-01T19:00:00Z", "watts": 12000},
                {"id": 7, "start": "2026-12-01T20:00:00Z", "duration": "PT1H30M", "reductionPercent": "25", "x": [1]},
                {"name": "called-off", "start": "2026-12-01T20:00:00Z", "duration": "PT1H", "status": "Cancelled"},
            ]
        }
    )
    assert found.problems == ()
    assert found.events == (
        Event("watts", FIVE, FIVE + 7_200, 12_000.0),
        Event("7", FIVE + 10_800, FIVE + 16_200, None, 0.25),
    )


def openadr(**changes: Any) -> dict[str, Any]:
    return {
        "id": "e1",
        "objectType": "EVENT",
        "programID": "p",
        "eventName": "peak",
        "intervalPeriod": {"start": "2026-12-01T17:00:00Z", "duration": "PT1H"},
        "intervals": [{"id": 0, "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [12.5]}]}],
    } | changes


def test_an_openadr_3_event_in_kilowatts() -> None:
    assert read([openadr()]).events == (Event("peak", FIVE, FIVE + 3_600, 12_500.0),)
    in_watts = openadr(payloadDescriptors=[{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "W"}])
    assert read([in_watts]).events[0].watts == 12.5
    per_hour = openadr(payloadDescriptors=[{"payloadType": "IMPORT_CAPACITY_LIMIT", "units": "KWH"}])
    assert "is no power" in read([per_hour]).problems[0]


def test_intervals_follow_each_other_and_levels_ask_for_the_policys_share() -> None:
    payload = {"type": "SIMPLE", "values": [0]}
    found = read(
        [
            openadr(
                intervals=[
                    {"id": 0, "payloads": [{"type": "SIMPLE", "values": [2]}]},
                    {"id": 1, "payloads": [payload]},
                    {"id": 2, "payloads": [{"type": "PRICE", "values": [1]}, {"type": "SIMPLE", "values": ["1"]}]},
                    {
                        "id": 3,
                        "intervalPeriod": {"start": "2026-12-02T00:00:00Z", "duration": "PT15M"},
                        "payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [1]}],
                    },
                ]
            )
        ]
    )
    midnight = datetime(2026, 12, 2, tzinfo=UTC).timestamp()
    assert found.events == (
        Event("peak/0", FIVE, FIVE + 3_600),
        Event("peak/2", FIVE + 7_200, FIVE + 10_800),
        Event("peak/3", midnight, midnight + 900, 1_000.0),
    )


def test_now_and_without_end() -> None:
    for start in ("0001-01-01T00:00:00Z", "0000-00-00"):
        (event,) = read([openadr(intervalPeriod={"start": start, "duration": "P9999Y"})]).events
        assert (event.start_unix_s, event.end_unix_s) == (NOW, inf)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"name": "a", "start": "2026-12-01T17:00:00", "duration": "PT1H"}, "has no time zone"),
        ({"name": "a", "start": "tomorrow", "duration": "PT1H"}, "is no time"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z"}, "give end or duration"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "end": "2026-12-01T16:00:00Z"}, "after start"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "duration": "1h"}, "PT1H30M"),
        ({"start": "2026-12-01T17:00:00Z", "duration": "PT1H"}, "name: is missing"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "duration": "PT1H", "watts": -1}, "from 0"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "duration": "PT1H", "watts": "NaN"}, "from 0"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "duration": "PT1H", "reductionPercent": 0}, "from 1"),
        ({"name": "a", "start": "2026-12-01T17:00:00Z", "duration": "PT1H", "watts": True}, "from 0"),
        (openadr(intervals={}), "must be a list"),
        (openadr(intervals=[{}]), "payloads"),
        (openadr(intervalPeriod=None), "neither here nor above"),
        ("nothing", "is no object"),
    ],
)
def test_an_entry_that_cannot_be_read_is_named_and_the_others_hold(entry: Any, said: str) -> None:
    found = read({"events": [entry, openadr()]})
    assert [event.name for event in found.events] == ["peak"]
    assert len(found.problems) == 1
    assert found.problems[0].startswith("events[0]: ")
    assert said in found.problems[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"<html>", "not JSON"),
        (b"{}", "must be a list"),
        (b"7", "must be a list"),
        (b"[" * 100_000, "not JSON"),
        (b" " * (MAX_BYTES + 1), "more than"),
    ],
)
def test_what_is_no_list_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        read_events(body, NOW)


def test_lists_are_bounded_and_corrections_count() -> None:
    many = [openadr(eventName=f"e{number}") for number in range(MAX_EVENTS + 5)]
    found = read(many)
    assert len(found.events) == MAX_EVENTS
    assert found.problems == (f"only the first {MAX_EVENTS} events are read",)
    corrected = openadr(intervals=[{"payloads": [{"type": "IMPORT_CAPACITY_LIMIT", "values": [3]}]}])
    assert [event.watts for event in read([openadr(), corrected]).events] == [3_000.0]


KEYS = "events name start end duration intervals intervalPeriod payloads type values watts payloadDescriptors units"
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=5),
    max_leaves=20,
)


@given(json_values)
def test_nothing_but_an_error_of_its_own_comes_of_any_json(document: Any) -> None:
    try:
        found = read({"events": [document]})
    except InvalidInputError:
        return
    assert all(event.end_unix_s > event.start_unix_s for event in found.events)


def test_a_sample_is_an_event_and_no_sample_is_none() -> None:
    assert sampled_event(5_000.0, 10.0) == (Event("prometheus", 10.0, inf, 5_000.0),)
    assert [sampled_event(watts, 10.0) for watts in (None, nan, inf, -1.0)] == [(), (), (), ()]
    assert sampled_event(0.0, 10.0)[0].watts == 0.0
