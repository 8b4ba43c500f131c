"""A Prometheus query and a Carbon Aware SDK as sources: units, kinds, times, and what they do not say."""

from typing import Any

import pytest
from tests.support.carbon_apis import HOUR_S, PROMETHEUS_TOKEN, CarbonApis, iso
from tests.support.upstream import Asked, Reply, of_json
from tests.unit.core.providers.conftest import MARGINAL, Clock, Make

from heliotrope.errors import BadAnswerError, NoDataError, SignalUnavailableError

AVERAGE = "grid_intensity_carbon_average"


def series(name: str = AVERAGE, value: Any = 250.0, taken: float = 0.0, **labels: str) -> dict[str, Any]:
    named = {"__name__": name} if name else {}
    return {"metric": named | labels, "value": value, "taken": taken}


async def test_the_time_of_the_sample_counts_not_that_of_the_question(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.prometheus = [series(taken=clock() - 3 * HOUR_S, units="gCO2e per kWh", is_estimated="true")]

    reading = (await make("prometheus").fetch(clock())).reading

    assert reading.measured_unix_s == clock() - 3 * HOUR_S
    assert (reading.intensity_g_per_kwh, reading.estimated) == (250.0, True)
    queries = [asked.one("query") for asked in apis.asked]
    assert queries == ['grid_intensity_carbon_average{location="ES"}', f'timestamp({AVERAGE}{{location="ES"}})']


async def test_a_computed_value_is_of_the_time_of_the_question(make: Make, apis: CarbonApis, clock: Clock) -> None:
    def answer(asked: Asked) -> Reply | None:
        if (asked.one("query") or "").startswith("timestamp("):
            return of_json({"status": "error", "errorType": "bad_data", "error": "expected vector"}, 400)
        data = {"resultType": "scalar", "result": [clock(), "12"]}
        return of_json({"status": "success", "data": data})

    apis.override["prom"] = answer

    reading = (await make("prometheus").fetch(clock())).reading

    assert (reading.intensity_g_per_kwh, reading.measured_unix_s) == (12.0, clock())


@pytest.mark.parametrize(
    ("units", "grams"),
    [("gCO2e per kWh", 250.0), ("gCO2eq/kWh", 250.0), ("lbCO2e per MWh", 250.0 * 0.45359237), ("", 250.0)],
)
async def test_the_label_of_the_unit_is_heeded(
    units: str, grams: float, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.prometheus = [series(taken=clock(), **({"units": units} if units else {}))]

    assert (await make("prometheus").fetch(clock())).reading.intensity_g_per_kwh == pytest.approx(grams)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (series(units="kg per furlong"), "not known to be g/kWh"),
        (series(units="percent"), "percentile"),
        (series("grid_intensity_carbon_relative"), "percentile"),
        (series("grid_intensity_carbon_marginal"), "is marginal intensity, which is never mixed"),
        (series(value=-5.0), "no intensity; check its unit"),
        (series(value=25_000.0), "no intensity; check its unit"),
    ],
)
async def test_what_is_of_another_kind_is_refused(
    found: dict[str, Any], words: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.prometheus = [found]

    with pytest.raises(BadAnswerError, match=words):
        await make("prometheus").fetch(clock())


async def test_average_is_refused_where_marginal_is_wanted(make: Make, apis: CarbonApis, clock: Clock) -> None:
    with pytest.raises(BadAnswerError, match=r"is average intensity.*spec\.signal\.type marginal"):
        await make("prometheus", signal=MARGINAL).fetch(clock())
    apis.prometheus = [series("grid_intensity_carbon_marginal", taken=clock())]
    assert (await make("prometheus", signal=MARGINAL).fetch(clock())).reading.intensity_g_per_kwh == 250.0


async def test_one_region_has_one_value(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.prometheus = [series(location="ES"), series(location="FR")]
    with pytest.raises(BadAnswerError, match="gives 2 series, but a region has one value"):
        await make("prometheus").fetch(clock())
    apis.prometheus = [series(value="NaN")]
    with pytest.raises(NoDataError, match="no number"):
        await make("prometheus").fetch(clock())
    apis.override["prom"] = lambda _: of_json({"status": "success", "data": {"resultType": "vector", "result": []}})
    with pytest.raises(NoDataError, match="gives nothing"):
        await make("prometheus").fetch(clock())


async def test_the_token_is_sent_and_without_a_reference_none(make: Make, apis: CarbonApis, clock: Clock) -> None:
    await make("prometheus").fetch(clock())
    await make("prometheus", {"tokenSecretRef": None}).fetch(clock())

    assert [asked.headers.get("authorization") for asked in apis.asked] == [f"Bearer {PROMETHEUS_TOKEN}"] * 2 + [
        None
    ] * 2


async def test_the_series_of_the_bbc_exporter_is_read(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.prometheus = [series("carbon_intensity", 132.0, clock(), location="London", geohash="gcpvj")]

    reading = (await make("prometheus", {"query": 'carbon_intensity{location="London"}'}).fetch(clock())).reading

    assert (reading.intensity_g_per_kwh, reading.estimated) == (132.0, None)


async def test_the_sdk_is_asked_for_hours_past_and_a_forecast(make: Make, apis: CarbonApis, clock: Clock) -> None:
    fetched = await make("carbonAwareSdk").fetch(clock())

    emissions, forecast = apis.asked
    assert (emissions.path, forecast.path) == ("/sdk/emissions/bylocation", "/sdk/emissions/forecasts/current")
    assert emissions.query == {
        "location": ["eastus"],
        "time": ["2026-03-10T07:20:00Z"],
        "toTime": ["2026-03-10T10:20:00Z"],
    }
    assert fetched.forecast is not None
    assert fetched.reading.estimated is None


async def test_an_sdk_without_forecasts_has_values(make: Make, apis: CarbonApis, clock: Clock) -> None:
    problem = {"title": "NotImplementedException", "status": 501, "detail": "no forecasts with this data source"}
    apis.override["sdk"] = lambda asked: of_json(problem, 501) if "forecasts" in asked.path else None

    fetched = await make("carbonAwareSdk").fetch(clock())

    assert (fetched.reading.intensity_g_per_kwh, fetched.forecast) == (250.0, None)
    assert "no forecasts with this data source" in (fetched.forecast_failure or "")


@pytest.mark.parametrize(
    "document",
    [
        [{"location": "x", "time": iso(0.0)}],
        [{"time": iso(0.0), "rating": "1,5"}],
        [{"rating": 5}],
        {"title": "x"},
        [5],
    ],
)
async def test_other_shapes_of_the_sdk_are_no_answer(document: Any, make: Make, apis: CarbonApis, clock: Clock) -> None:
    """Among them a decimal comma of another locale (its issue #364)."""
    apis.override["sdk"] = lambda _: of_json(document)

    with pytest.raises(BadAnswerError, match="carbonAwareSdk"):
        await make("carbonAwareSdk").fetch(clock())


async def test_a_problem_of_the_sdks_own_source_is_passed_on(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.fail("sdk", of_json({"title": "Bad Request", "detail": "Location not found"}, 400))

    with pytest.raises(SignalUnavailableError, match="Location not found"):
        await make("carbonAwareSdk").fetch(clock())
