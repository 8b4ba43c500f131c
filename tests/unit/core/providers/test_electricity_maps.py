"""Electricity Maps: places, versions, estimates, plans without forecast, and 401 that means too often."""

from typing import Any

import pytest
from tests.support.carbon_apis import HOUR_S, CarbonApis, iso
from tests.support.upstream import Asked, Reply, of_json
from tests.unit.core.providers.conftest import Clock, HeldSecrets, Make, knows_the_past

from heliotrope.errors import (
    BadAnswerError,
    CredentialsRefusedError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)

NAME = "electricityMaps"


@pytest.mark.parametrize("version", ["v3", "v4"])
async def test_the_question_names_the_zone_and_forbids_the_callers(
    version: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    fetched = await make(NAME, {"apiVersion": version, "forecastHours": 30}).fetch(clock())

    latest, forecast = apis.asked
    assert latest.path == f"/em/{version}/carbon-intensity/latest"
    assert latest.query == {"zone": ["ES"], "emissionFactorType": ["lifecycle"], "disableCallerLookup": ["true"]}
    assert forecast.query == latest.query | {"horizonHours": ["48"]}
    assert fetched.forecast is not None
    assert len(fetched.forecast.times_unix_s) == 31


async def test_a_data_centre_is_asked_for_by_its_provider_and_region(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    place = {"provider": "gcp", "region": "europe-southwest1"}

    await make(NAME, {"dataCenter": place, "forecastHours": 0}).fetch(clock())

    (asked,) = apis.asked
    assert (asked.one("dataCenterProvider"), asked.one("dataCenterRegion")) == ("gcp", "europe-southwest1")
    assert asked.one("zone") is None


@pytest.mark.parametrize("source", [{}, {"dataCenter": {"provider": "gcp", "region": "europe-west1"}}])
async def test_an_answer_for_another_zone_is_refused(
    source: dict[str, Any], make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.override["em"] = lambda _: of_json(apis._em_point(clock()) | {"zone": "FR"})

    with pytest.raises(BadAnswerError, match=r"answered for zone 'FR', but spec\.zone is 'ES'"):
        await make(NAME, source).fetch(clock())


async def test_a_zone_that_is_unknown_is_no_data(make: Make, clock: Clock) -> None:
    with pytest.raises(NoDataError, match="Zone 'XX' does not exist"):
        await make(NAME, zone="XX").fetch(clock())


@pytest.mark.parametrize("estimated", [True, False])
async def test_estimates_are_flagged(estimated: bool, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.estimated_for_s = 2 * HOUR_S if estimated else 0.0

    assert (await make(NAME).fetch(clock())).reading.estimated is estimated


async def test_estimates_can_be_refused(make: Make, apis: CarbonApis, clock: Clock) -> None:
    provider = make(NAME, {"disableEstimations": True})
    with pytest.raises(NoDataError, match="estimated values only"):
        await provider.fetch(clock())
    assert apis.asked[0].one("disableEstimations") == "true"
    apis.estimated_for_s = 0.0

    assert (await provider.fetch(clock())).reading.estimated is False


async def test_estimates_of_the_past_are_left_out_where_they_are_refused(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    start = clock() - 48 * HOUR_S
    apis.estimated_for_s = 24 * HOUR_S

    whole = await knows_the_past(make(NAME)).history(start, clock())
    measured = await knows_the_past(make(NAME, {"disableEstimations": True})).history(start, clock())

    assert (len(whole.times_unix_s), len(measured.times_unix_s)) == (48, 24)
    assert set(measured.estimated) == {False}


async def test_an_estimate_is_replaced_under_the_same_time(make: Make, apis: CarbonApis, clock: Clock) -> None:
    provider = make(NAME)
    first = (await provider.fetch(clock())).reading
    apis.truth, apis.estimated_for_s = lambda _: 180.0, 0.0

    second = (await provider.fetch(clock())).reading

    assert first.measured_unix_s == second.measured_unix_s
    assert (first.intensity_g_per_kwh, first.estimated) == (250.0, True)
    assert (second.intensity_g_per_kwh, second.estimated) == (180.0, False)


async def test_a_plan_without_forecast_has_values_and_says_why(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.em_plan_has_forecast = False
    provider = make(NAME)

    fetched = await provider.fetch(clock())

    assert fetched.reading.intensity_g_per_kwh == 250.0
    assert fetched.forecast is None
    assert "Your plan does not include this endpoint" in (fetched.forecast_failure or "")
    await provider.fetch(clock() + 300.0)
    assert [path.rsplit("/", 1)[1] for path in apis.paths()] == ["latest", "forecast", "latest"]


async def test_the_forecast_is_asked_for_twice_an_hour_and_kept_while_it_fails(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    provider = make(NAME)
    for _ in range(12):
        fetched = await provider.fetch(clock())
        clock.unix_s += 300.0
    assert sum("forecast" in path for path in apis.paths()) == 2
    assert fetched.forecast is not None

    apis.override["em"] = lambda asked: Reply(500) if "forecast" in asked.path else None
    clock.unix_s += 1_800.0
    fetched = await provider.fetch(clock())

    assert "500" in (fetched.forecast_failure or "")
    assert fetched.forecast is not None
    assert fetched.forecast.times_unix_s[0] == fetched.reading.measured_unix_s
    clock.unix_s += 25 * HOUR_S
    assert (await provider.fetch(clock())).forecast is None


async def test_a_gap_ends_the_forecast(make: Make, apis: CarbonApis, clock: Clock) -> None:
    def answer(asked: Asked) -> Reply | None:
        if "forecast" not in asked.path:
            return None
        hour = clock() // HOUR_S * HOUR_S
        ahead = [{"carbonIntensity": 100 + n, "datetime": iso(hour + n * HOUR_S)} for n in range(10) if n != 5]
        return of_json({"zone": "ES", "forecast": ahead})

    apis.override["em"] = answer

    series = (await make(NAME).fetch(clock())).forecast

    assert series is not None
    assert series.values_g_per_kwh == (250.0, 101.0, 102.0, 103.0, 104.0)


async def test_401_is_throttling_once_the_token_has_worked_and_a_refusal_before(
    make: Make, apis: CarbonApis, clock: Clock, secrets: HeldSecrets
) -> None:
    refusal = of_json({"error": "Invalid auth-token"}, 401)
    provider = make(NAME)
    apis.fail("em", refusal)
    with pytest.raises(CredentialsRefusedError, match="Invalid auth-token"):
        await provider.fetch(clock())
    apis.fail("em", None)
    await provider.fetch(clock())
    apis.fail("em", refusal)
    with pytest.raises(ThrottledError, match="the token has worked before") as raised:
        await provider.fetch(clock())
    assert raised.value.retry_after_s is None

    secrets.values["em", "token"] = "rotated-wrongly"
    with pytest.raises(CredentialsRefusedError):
        await provider.fetch(clock())


@pytest.mark.parametrize("shape", [lambda point: {"zone": "ES", "data": point}, lambda p: {"zone": "ES", "data": [p]}])
async def test_the_shapes_of_other_versions_are_read(shape: Any, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["em"] = lambda _: of_json(shape(apis._em_point(clock() // HOUR_S * HOUR_S)))

    assert (await make(NAME, {"forecastHours": 0}).fetch(clock())).reading.intensity_g_per_kwh == 250.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"emissionFactorType": "direct"}, "answered with direct emissions"),
        ({"datetime": "yesterday"}, "datetime is not a time"),
        ({"datetime": 5}, "datetime is not a time"),
        ({"zone": None}, "answered for zone 'None'"),
    ],
)
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(
    change: dict[str, Any], words: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.override["em"] = lambda _: of_json(apis._em_point(clock()) | change)

    with pytest.raises(SignalUnavailableError, match=words):
        await make(NAME).fetch(clock())


async def test_no_value_of_now_is_no_data_and_no_zero(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["em"] = lambda _: of_json(apis._em_point(clock()) | {"carbonIntensity": None})

    with pytest.raises(NoDataError):
        await make(NAME).fetch(clock())
