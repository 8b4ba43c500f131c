"""RegionProfile: from what its source gave to what its status says."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, NOW_S

from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.api.v1alpha1.regionprofile import (
    EmissionFactor,
    Forecast,
    ForecastPoint,
    Freshness,
    IntensityReading,
    RegionProfileStatus,
    SignalType,
)
from heliotrope_operator.conditions import transitions
from heliotrope_operator.controllers.regions import region_status
from heliotrope_operator.polling import Outcome
from heliotrope_operator.signals import Observation, Published

FILE = {"file": {"path": "/es.csv", "valueColumn": "v"}}
HOUR = timedelta(hours=1)


def reading(value: float = 250.0, *, age: timedelta = timedelta(), source: str = "file") -> IntensityReading:
    return IntensityReading(
        value=value,
        time=NOW - age,
        source=source,
        signal_type=SignalType.AVERAGE,
        emission_factor=EmissionFactor.LIFECYCLE,
    )


def file_region(status: RegionProfileStatus | None = None, **spec: Any) -> RegionProfile:
    document = None if status is None else status.model_dump(by_alias=True, exclude_none=True, mode="json")
    return objects.read_region(status=document, source=FILE, **spec)


def said(status: RegionProfileStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status.value, condition.reason) for condition in status.conditions}


def got(value: IntensityReading, forecast: Forecast | None = None) -> Observation:
    return Observation(Published(value, forecast), next_poll_s=300.0)


def test_a_fresh_value_is_published() -> None:
    status = region_status(file_region(), got(reading()), NOW_S)

    assert status.freshness is Freshness.FRESH
    assert status.intensity == reading()
    assert status.observed_generation == 1
    assert said(status) == {"Accepted": ("True", "Accepted"), "SignalFresh": ("True", "SignalFresh")}
    assert status.conditions[1].message == "the value of 2026-03-01T12:00:00Z counts until 2026-03-01T14:00:00Z"


@pytest.mark.parametrize(
    ("age", "freshness"),
    [
        (2 * HOUR, Freshness.FRESH),
        (2 * HOUR + timedelta(seconds=1), Freshness.STALE),
        (-HOUR, Freshness.FRESH),  # a source whose clock is ahead
    ],
)
def test_a_value_is_stale_when_older_than_staleafter(age: timedelta, freshness: Freshness) -> None:
    status = region_status(file_region(), got(reading(age=age)), NOW_S)

    assert status.freshness is freshness
    assert status.intensity == reading(age=age)


def test_zero_is_a_value() -> None:
    status = region_status(file_region(), got(reading(0.0)), NOW_S)

    assert (status.freshness, said(status)["SignalFresh"]) == (Freshness.FRESH, ("True", "SignalFresh"))


def test_nothing_is_not_zero() -> None:
    status = region_status(file_region(), Observation(failure="/es.csv: No such file"), NOW_S)

    assert (status.freshness, status.intensity) == (Freshness.ABSENT, None)
    assert said(status)["SignalFresh"] == ("False", "SignalAbsent")
    assert status.conditions[1].message.endswith(": /es.csv: No such file")


def test_a_source_that_fails_leaves_its_value_fresh_until_it_is_stale() -> None:
    failing = Observation(Published(reading(age=HOUR), None), failure="401")
    before = region_status(file_region(), got(reading(age=HOUR)), NOW_S)

    warned = region_status(file_region(before), failing, NOW_S)
    stale = region_status(file_region(warned), failing, NOW_S + 7200)
    back = region_status(file_region(stale), got(reading()), NOW_S + 7200)

    assert said(warned)["SignalFresh"] == ("True", "SourceFailing")
    assert warned.conditions[1].last_transition_time == before.conditions[1].last_transition_time
    assert said(stale)["SignalFresh"] == ("False", "SignalStale")
    told = [transitions(a.conditions, b.conditions) for a, b in ((before, warned), (warned, stale), (stale, back))]
    assert [[(each.warning, each.reason) for each in changes] for changes in told] == [
        [(True, "SourceFailing")],
        [(True, "SignalStale")],
        [(False, "SignalFresh")],
    ]


def test_a_restart_keeps_the_value_that_the_status_holds() -> None:
    before = region_status(file_region(), got(reading(age=HOUR)), NOW_S - 60)

    after = region_status(file_region(before), Observation(failure="not yet there"), NOW_S)

    assert (after.intensity, after.freshness) == (before.intensity, Freshness.FRESH)


def test_the_value_of_another_spec_does_not_count() -> None:
    before = region_status(file_region(), got(reading()), NOW_S)
    changed = file_region(before.model_copy(update={"observed_generation": 0}))

    after = region_status(changed, Observation(failure="not yet there"), NOW_S)

    assert (after.intensity, after.freshness) == (None, Freshness.ABSENT)


def test_a_source_that_cannot_be_asked_is_said() -> None:
    before = region_status(file_region(), got(reading()), NOW_S)

    status = region_status(file_region(before), Observation(invalid="spec.source.file.path: 'x' is relative"), NOW_S)

    assert said(status)["Accepted"] == ("False", "InvalidSource")
    assert "is relative" in status.conditions[0].message
    assert (status.freshness, status.intensity) == (Freshness.ABSENT, None)


@pytest.mark.parametrize(
    ("outcome", "failure", "expected", "words"),
    [
        (Outcome.SUCCESS, None, ("True", "CredentialsAccepted"), "takes the key"),
        (Outcome.CREDENTIALS_MISSING, "Secret op/em", ("False", "CredentialsMissing"), "Secret op/em"),
        (Outcome.CREDENTIALS_REFUSED, "401", ("False", "CredentialsRefused"), "put a valid key into the Secret"),
        (None, "no answer", ("Unknown", "CredentialsUntested"), "no answer"),
    ],
)
def test_whether_the_key_is_taken_is_said_of_sources_that_need_one(
    outcome: Outcome | None, failure: str | None, expected: tuple[str, str], words: str
) -> None:
    observation = Observation(failure=failure, credentials=outcome, needs_credentials=True)

    status = region_status(file_region(), observation, NOW_S)

    assert said(status)["CredentialsAccepted"] == expected
    assert words in next(each.message for each in status.conditions if each.type == "CredentialsAccepted")
    assert "CredentialsAccepted" not in said(region_status(file_region(), Observation(failure=failure), NOW_S))


def test_a_refused_key_is_told_once_and_its_return_is_news() -> None:
    refused = Observation(failure="401", credentials=Outcome.CREDENTIALS_REFUSED, needs_credentials=True)
    taken = Observation(Published(reading(), None), credentials=Outcome.SUCCESS, needs_credentials=True)
    first = region_status(file_region(), refused, NOW_S)
    again = region_status(file_region(first), refused, NOW_S + 60)
    healed = region_status(file_region(again), taken, NOW_S + 120)

    assert ("CredentialsRefused", True) in [(t.reason, t.warning) for t in transitions((), first.conditions)]
    assert transitions(first.conditions, again.conditions) == []
    told = [(t.reason, t.warning) for t in transitions(again.conditions, healed.conditions)]
    assert told == [("CredentialsAccepted", False), ("SignalFresh", False)]


def test_a_forecast_that_failed_is_said_beside_the_value() -> None:
    published = Published(reading(), None, "electricityMaps answered 403 Forbidden")

    status = region_status(file_region(), Observation(published), NOW_S)

    assert said(status)["SignalFresh"] == ("True", "SignalFresh")
    assert status.conditions[1].message.endswith("; no new forecast: electricityMaps answered 403 Forbidden")


def test_a_static_value_holds_since_it_was_set_and_is_always_fresh() -> None:
    profile = objects.read_region()
    before = region_status(profile, got(reading(source="static")), NOW_S)
    later = reading(source="static", age=-24 * HOUR)
    document = before.model_dump(by_alias=True, exclude_none=True, mode="json")

    after = region_status(objects.read_region(status=document), got(later), NOW_S + 86_400 * 365)

    assert after == before
    assert after.freshness is Freshness.FRESH


def test_a_static_value_that_changes_is_new() -> None:
    document = region_status(objects.read_region(), got(reading(source="static")), NOW_S)
    profile = objects.read_region(status=document.model_dump(by_alias=True, exclude_none=True, mode="json"))
    later = reading(99.0, source="static", age=-HOUR)

    assert region_status(profile, got(later), NOW_S + 3600).intensity == later


def test_a_forecast_of_the_same_points_keeps_its_time() -> None:
    def forecast(issued: timedelta, *values: float) -> Forecast:
        points = tuple(ForecastPoint(time=NOW + n * HOUR, value=value) for n, value in enumerate(values))
        return Forecast(issued_at=NOW + issued, source="file", points=points)

    before = region_status(file_region(), got(reading(), forecast(timedelta(), 1, 2)), NOW_S)

    same = region_status(file_region(before), got(reading(), forecast(HOUR, 1, 2)), NOW_S)
    new = region_status(file_region(before), got(reading(), forecast(HOUR, 1, 3)), NOW_S)
    none = region_status(file_region(before), got(reading()), NOW_S)

    assert same == before
    assert new.forecast == forecast(HOUR, 1, 3)
    assert none.forecast is None


def test_time_limits_of_a_replay_are_in_its_own_time() -> None:
    fast = {"file": FILE["file"] | {"replay": {"seriesStart": "2022-01-01T00:00:00Z", "speed": 3600}}}
    profile = objects.read_region(source=fast)

    assert region_status(profile, got(reading(age=timedelta(seconds=1.9))), NOW_S).freshness is Freshness.FRESH
    assert region_status(profile, got(reading(age=timedelta(seconds=2.1))), NOW_S).freshness is Freshness.STALE
