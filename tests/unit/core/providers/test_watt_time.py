"""WattTime: logins, renewal, units, percentiles, and credit for curtailed power."""

from typing import Any

import pytest
from tests.support.carbon_apis import HOUR_S, CarbonApis
from tests.support.upstream import Reply, of_json
from tests.unit.core.providers.conftest import Clock, HeldSecrets, Make, knows_the_past

from heliotrope.carbon.signal import EmissionFactor, SignalType
from heliotrope.errors import BadAnswerError, CredentialsRefusedError, NoDataError, SignalUnavailableError

NAME = "wattTime"


async def test_pounds_per_megawatt_hour_become_grams_per_kilowatt_hour(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    meta = {"region": "ES", "signal_type": "co2_moer", "units": "lbs_co2_per_mwh"}
    data = [{"point_time": "2026-03-10T10:20:00Z", "value": 870.0}]
    apis.override["wt"] = lambda asked: None if "login" in asked.path else of_json({"data": data, "meta": meta})

    reading = (await make(NAME).fetch(clock())).reading

    assert reading.intensity_g_per_kwh == pytest.approx(870.0 * 0.45359237)
    assert (reading.signal_type, reading.emission_factor) == (SignalType.MARGINAL, EmissionFactor.DIRECT)


async def test_the_forecast_is_asked_for_never_the_index(make: Make, apis: CarbonApis, clock: Clock) -> None:
    await make(NAME, {"forecastHours": 12}).fetch(clock())

    login, forecast = apis.asked
    assert login.path == "/wt/login"
    assert forecast.path == "/wt/v3/forecast"
    assert forecast.query == {"region": ["ES"], "signal_type": ["co2_moer"], "horizon_hours": ["12"]}


async def test_without_forecast_there_is_the_value_alone(make: Make, apis: CarbonApis, clock: Clock) -> None:
    fetched = await make(NAME, {"forecastHours": 0}).fetch(clock())

    assert fetched.reading.intensity_g_per_kwh == pytest.approx(250.0)
    assert fetched.forecast is None


async def test_a_token_is_used_until_it_is_refused_then_renewed_once(
    make: Make, apis: CarbonApis, clock: Clock
) -> None:
    provider = make(NAME)
    for _ in range(3):
        await provider.fetch(clock())
    assert apis.wt_tokens == 1
    apis.wt_tokens += 1  # half an hour is over

    await provider.fetch(clock())

    assert apis.wt_tokens == 3
    assert [path.rsplit("/", 1)[1] for path in apis.paths()[-3:]] == ["forecast", "login", "forecast"]


async def test_regions_of_an_account_share_a_login_and_its_refusal(
    make: Make, apis: CarbonApis, clock: Clock, secrets: HeldSecrets
) -> None:
    first, second = make(NAME), make(NAME)
    await first.fetch(clock())
    await second.fetch(clock())
    assert apis.paths().count("/wt/login") == 1

    secrets.values["wt", "password"] = "wrong"
    for provider in (first, second, first):
        with pytest.raises(CredentialsRefusedError):
            await provider.fetch(clock())
    assert apis.paths().count("/wt/login") == 2
    clock.unix_s += 61.0
    with pytest.raises(CredentialsRefusedError):
        await second.fetch(clock())
    assert apis.paths().count("/wt/login") == 3


async def test_a_token_that_is_never_taken_is_a_refusal_and_no_loop(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["wt"] = lambda asked: None if "login" in asked.path else Reply(401)

    with pytest.raises(CredentialsRefusedError):
        await make(NAME).fetch(clock())
    assert len(apis.asked) == 4


async def test_a_region_outside_of_the_account_is_said(make: Make, clock: Clock) -> None:
    with pytest.raises(CredentialsRefusedError, match="Your account lacks this region"):
        await make(NAME, zone="PJM").fetch(clock())


async def test_a_user_whose_name_ends_too_early_is_not_sent(
    make: Make, apis: CarbonApis, clock: Clock, secrets: HeldSecrets
) -> None:
    secrets.values = dict.fromkeys(secrets.values, "p:ssword")

    with pytest.raises(CredentialsRefusedError, match="cannot hold a colon") as caught:
        await make("wattTime").fetch(clock())

    assert "p:ssword" not in str(caught.value)
    assert apis.wt_tokens == 0


@pytest.mark.parametrize(
    ("meta", "words"),
    [
        ({"units": "percentile"}, "percentile, which says nothing of grams"),
        ({"units": "kg"}, "units 'kg', asked for 'lbs_co2_per_mwh'"),
        ({"region": "CAISO_NORTH"}, "region 'CAISO_NORTH', asked for 'ES'"),
        ({"signal_type": "co2_aoer"}, "signal_type 'co2_aoer'"),
        ({"signal_type": "health_damage"}, "signal_type 'health_damage'"),
    ],
)
async def test_other_signals_units_and_regions_are_refused(
    meta: dict[str, Any], words: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.wt_meta = meta

    with pytest.raises(BadAnswerError, match=words):
        await make(NAME).fetch(clock())


@pytest.mark.parametrize("token", [None, 5, "", "line\nbreak"])
async def test_a_login_without_a_token_is_no_login(token: Any, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.override["wt"] = lambda _: of_json({"token": token})

    with pytest.raises(SignalUnavailableError, match="token of the login"):
        await make(NAME).fetch(clock())


async def test_curtailed_power_counts_as_a_share_of_the_usual_value(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.truth = lambda time: 0.0 if time < clock() + HOUR_S else 400.0

    fetched = await make(NAME, curtailmentCredit="0.5").fetch(clock())
    clean = await make(NAME).fetch(clock())

    assert fetched.reading.intensity_g_per_kwh == pytest.approx(200.0)
    assert fetched.forecast is not None
    assert min(fetched.forecast.values_g_per_kwh) == pytest.approx(200.0)
    assert clean.reading.intensity_g_per_kwh == 0.0


async def test_the_usual_value_is_remembered_through_a_day_of_zeros(make: Make, apis: CarbonApis, clock: Clock) -> None:
    provider = make(NAME, curtailmentCredit="0.25")
    apis.truth = lambda _: 400.0
    await provider.fetch(clock())
    apis.truth = lambda _: 0.0
    clock.unix_s += 2 * 24 * HOUR_S

    assert (await provider.fetch(clock())).reading.intensity_g_per_kwh == pytest.approx(100.0)


async def test_zeros_without_any_other_value_cannot_be_credited(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.truth = lambda _: 0.0

    with pytest.raises(NoDataError, match="none above zero was seen yet"):
        await make(NAME, curtailmentCredit="0.5").fetch(clock())


async def test_history_is_paged_and_keeps_what_was_imputed_apart(make: Make, apis: CarbonApis, clock: Clock) -> None:
    start = clock() - 70 * 24 * HOUR_S

    series = await knows_the_past(make(NAME)).history(start, clock())

    pages = [asked for asked in apis.asked if asked.path.endswith("historical")]
    assert len(pages) == 3
    assert {asked.one("include_imputed_marker") for asked in pages} == {"true"}
    assert len(series.times_unix_s) == 70 * 24 * 12
