"""The keyless ones: what is measured and what forecast, regions of Great Britain, borders of half-hours."""

from typing import Any

import pytest
from tests.support.carbon_apis import HALF_HOUR_S, CarbonApis, iso, unix
from tests.support.upstream import of_json
from tests.unit.core.providers.conftest import Clock, Make, knows_the_past

from heliotrope.errors import BadAnswerError, NoDataError, SignalUnavailableError


async def test_the_current_half_hour_is_the_forecast_and_flagged(make: Make, apis: CarbonApis, clock: Clock) -> None:
    fetched = await make("neso").fetch(clock())

    assert apis.paths() == ["/neso/intensity/2026-03-10T10:01Z/fw48h"]
    assert fetched.reading.measured_unix_s == unix("2026-03-10T10:00Z")
    assert fetched.reading.estimated is True
    assert fetched.forecast is not None
    assert fetched.forecast.times_unix_s[1] - fetched.forecast.times_unix_s[0] == HALF_HOUR_S


@pytest.mark.parametrize("seconds", [0.0, 1.0, 59.0, 60.0, 1_799.0])
async def test_every_moment_of_a_half_hour_finds_it(seconds: float, make: Make, apis: CarbonApis, clock: Clock) -> None:
    clock.unix_s = unix("2026-03-10T10:00Z") + seconds

    assert (await make("neso").fetch(clock())).reading.measured_unix_s == unix("2026-03-10T10:00Z")


async def test_what_was_measured_takes_the_place_of_the_forecast(make: Make, apis: CarbonApis, clock: Clock) -> None:
    row = {"from": "2026-03-10T10:00Z", "to": "2026-03-10T10:30Z"}
    apis.override["neso"] = lambda _: of_json({"data": [row | {"intensity": {"forecast": 266, "actual": 0}}]})

    reading = (await make("neso").fetch(clock())).reading

    assert (reading.intensity_g_per_kwh, reading.estimated) == (0.0, False)


@pytest.mark.parametrize("nested", ["object", "list"])
async def test_a_region_is_asked_by_number_and_has_forecasts_only(
    nested: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    provider = make("neso", {"regionId": 13})
    if nested == "list":
        rows = [{"from": iso(clock() - 600, "minutes"), "intensity": {"forecast": 120, "index": "low"}}]
        apis.override["neso"] = lambda _: of_json({"data": [{"regionid": 13, "shortname": "London", "data": rows}]})

    reading = (await provider.fetch(clock())).reading

    assert apis.paths() == ["/neso/regional/intensity/2026-03-10T10:01Z/fw48h/regionid/13"]
    assert reading.estimated is True
    assert reading.intensity_g_per_kwh == (120.0 if nested == "list" else 250.0)
    if nested == "object":
        series = await knows_the_past(provider).history(clock() - 20 * 86_400.0, clock())
        assert all(series.estimated)
        assert len(series.times_unix_s) == 20 * 48


async def test_why_it_refuses_is_passed_on(make: Make, apis: CarbonApis, clock: Clock) -> None:
    error = {"code": "400 Bad Request", "message": "Please enter a valid date"}
    apis.fail("neso", of_json({"error": error}, 400))

    with pytest.raises(SignalUnavailableError, match="400 Bad Request: Please enter a valid date"):
        await make("neso").fetch(clock())


async def test_another_region_is_refused(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["neso"] = lambda _: of_json({"data": {"regionid": 1, "data": []}})

    with pytest.raises(BadAnswerError, match="nothing of region 13"):
        await make("neso", {"regionId": 13}).fetch(clock())


@pytest.mark.parametrize(
    "document",
    [
        {"data": [{"from": "2026-03-10T10:00Z"}]},
        {"data": [{"from": None, "intensity": {"forecast": 1}}]},
        {"data": [{"from": "2026-03-10T10:00Z", "intensity": 5}]},
        {"data": [5]},
        {"data": {}},
        {"error": {"code": "400", "message": "no"}},
    ],
)
async def test_other_shapes_are_no_answer(document: Any, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["neso"] = lambda _: of_json(document)

    with pytest.raises(BadAnswerError, match="neso"):
        await make("neso").fetch(clock())


async def test_quarter_hours_are_measured_until_they_are_forecast(make: Make, apis: CarbonApis, clock: Clock) -> None:
    fetched = await make("energyCharts").fetch(clock())

    (asked,) = apis.asked
    assert asked.query == {"country": ["de"], "start": ["2026-03-10T07:20Z"], "end": ["2026-03-12T10:20Z"]}
    assert fetched.reading.measured_unix_s == unix("2026-03-10T10:15Z")
    assert fetched.reading.estimated is True
    history = await knows_the_past(make("energyCharts")).history(clock() - 86_400.0, clock() - 7_200.0)
    assert set(history.estimated) == {False}


async def test_nulls_are_gaps_and_zeros_are_values(make: Make, apis: CarbonApis, clock: Clock) -> None:
    times = [unix(f"2026-03-10T{time}Z") for time in ("09:30", "09:45", "10:00", "10:15", "10:30", "10:45")]
    apis.override["ec"] = lambda _: of_json(
        {
            "unix_seconds": times,
            "co2eq": [300, 0, None, None, None, None],
            "co2eq_forecast": [310, 310, None, None, 0, None],
        }
    )

    fetched = await make("energyCharts").fetch(clock())

    assert fetched.reading.measured_unix_s == times[1]
    assert (fetched.reading.intensity_g_per_kwh, fetched.reading.estimated) == (0.0, False)
    assert fetched.forecast is not None
    assert fetched.forecast.values_g_per_kwh == (0.0, 0.0)


@pytest.mark.parametrize(
    "change",
    [
        {"co2eq": [1, 2, 3]},
        {"co2eq": {"a": 1}},
        {"unix_seconds": ["now", "then"]},
        {"unix_seconds": None},
        {"co2eq_forecast": "high"},
    ],
)
async def test_columns_that_do_not_fit_are_no_answer(
    change: dict[str, Any], make: Make, apis: CarbonApis, clock: Clock
) -> None:
    whole = {"unix_seconds": [1, 2], "co2eq": [1, 2], "co2eq_forecast": [None, None]}
    apis.override["ec"] = lambda _: of_json(whole | change)

    with pytest.raises(BadAnswerError, match="energyCharts"):
        await make("energyCharts").fetch(clock())


async def test_a_country_that_is_unknown_is_no_data(make: Make, clock: Clock) -> None:
    with pytest.raises(NoDataError, match="Not Found"):
        await make("energyCharts", {"country": "xx"}).fetch(clock())
    with pytest.raises(SignalUnavailableError):
        await knows_the_past(make("energyCharts", {"country": "xx"})).history(0.0, 86_400.0)
