"""What holds for every source of the network: times, zeros, gaps, revisions, failures, and silence about keys."""

import json
import logging
from math import sin
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.support.carbon_apis import HOUR_S, CarbonApis, unix
from tests.support.upstream import Asked, Reply, of_json
from tests.unit.core.providers.conftest import KEYS, Clock, HeldSecrets, Make, knows_the_past

from heliotrope.errors import (
    BadAnswerError,
    CredentialsMissingError,
    CredentialsRefusedError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope.providers.recorded import FORECAST_POINTS
from heliotrope.providers.secrets import Secret

ALL = ("electricityMaps", "wattTime", "neso", "energyCharts", "entsoe", "carbonAwareSdk", "prometheus")
FOLDERS = dict(zip(ALL, ("em", "wt", "neso", "ec", "entsoe", "sdk", "prom"), strict=True))
PAST = ("electricityMaps", "wattTime", "neso", "energyCharts", "entsoe", "carbonAwareSdk")
AHEAD = ("electricityMaps", "wattTime", "neso", "energyCharts", "carbonAwareSdk")
KEYED = ("electricityMaps", "wattTime", "entsoe", "prometheus")
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=6, max_size=40)
PERIOD_S = {"electricityMaps": 3600, "wattTime": 300, "neso": 1800, "energyCharts": 900, "carbonAwareSdk": 300}


@pytest.fixture(autouse=True)
def _keys(apis: CarbonApis) -> None:
    apis.prometheus_token = KEYS["prom", "token"]


@pytest.mark.parametrize("name", ALL)
async def test_it_gives_the_value_of_now_with_the_start_of_its_period(
    name: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.truth = lambda time: 100.0 + time // HOUR_S % 24

    fetched = await make(name).fetch(clock())

    reading = fetched.reading
    if name == "entsoe":  # which is an hour late
        measured = unix("2026-03-10T08:00:00Z")
    elif name == "prometheus":
        measured = clock() - 30.0
    else:
        measured = clock() // PERIOD_S[name] * PERIOD_S[name]
    assert reading.measured_unix_s == measured
    assert reading.intensity_g_per_kwh == pytest.approx(100.0 + measured // HOUR_S % 24)
    assert reading.source == name


@pytest.mark.parametrize("name", [name for name in ALL if name != "entsoe"])
async def test_zero_is_a_clean_value(name: str, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.truth = lambda _: 0.0

    assert (await make(name).fetch(clock())).reading.intensity_g_per_kwh == 0.0


@pytest.mark.parametrize("name", AHEAD)
async def test_the_forecast_begins_with_now_and_fits_a_status(
    name: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.truth = lambda time: 200.0 + 100.0 * sin(time / 7_000.0)

    fetched = await make(name).fetch(clock())

    series = fetched.forecast
    assert series is not None
    assert fetched.forecast_source == name
    assert series.times_unix_s[0] == fetched.reading.measured_unix_s
    assert 20 <= len(series.times_unix_s) <= FORECAST_POINTS
    assert series.times_unix_s[-1] + series.last_holds_s >= clock() + 22 * HOUR_S
    hour = clock() // HOUR_S * HOUR_S + 5 * HOUR_S
    expected = sum(apis.truth(hour + n * 300.0) or 0.0 for n in range(12)) / 12
    assert series.average(hour, hour + HOUR_S) == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize("name", [name for name in ALL if name not in AHEAD])
async def test_who_has_no_forecast_gives_none(name: str, make: Make, clock: Clock) -> None:
    fetched = await make(name).fetch(clock())

    assert (fetched.forecast, fetched.forecast_source, fetched.forecast_failure) == (None, None, None)


@pytest.mark.parametrize("name", ["neso", "energyCharts", "wattTime", "carbonAwareSdk"])
async def test_in_a_gap_the_value_before_it_is_given_with_its_own_time(
    name: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    gap_from = clock() - HOUR_S
    apis.truth = lambda time: 150.0 if time < gap_from else None

    try:
        fetched = await make(name).fetch(clock())
    except NoDataError:
        assert name in ("wattTime", "neso")  # they are asked from now on
    else:
        assert fetched.reading.measured_unix_s <= gap_from
        assert fetched.forecast is None


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("prometheus", "entsoe")])
async def test_nothing_at_all_is_no_data(name: str, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.truth = lambda _: None

    with pytest.raises(NoDataError, match=name):
        await make(name).fetch(clock())


@pytest.mark.parametrize("name", PAST)
async def test_revised_history_changes_the_values_of_the_same_times(
    name: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    start, end = clock() - 30 * 24 * HOUR_S, clock() - 24 * HOUR_S
    provider = knows_the_past(make(name))
    apis.truth = lambda _: 200.0
    before = await provider.history(start, end)
    apis.truth = lambda _: 180.0

    after = await provider.history(start, end)

    assert before.times_unix_s == after.times_unix_s
    assert before.values_g_per_kwh == pytest.approx([200.0] * len(before.times_unix_s))
    assert after.values_g_per_kwh == pytest.approx([180.0] * len(after.times_unix_s))
    assert before.times_unix_s[0] >= start
    assert before.times_unix_s[-1] < end
    assert len(before.times_unix_s) >= 29 * 24 - 1


@pytest.mark.parametrize("name", [name for name in PAST if name != "entsoe"])
async def test_a_gap_in_the_past_stays_one(name: str, make: Make, apis: CarbonApis, clock: Clock) -> None:
    start, end = clock() - 3 * 24 * HOUR_S, clock() - 24 * HOUR_S
    hole = (start + 10 * HOUR_S, start + 20 * HOUR_S)
    apis.truth = lambda time: None if hole[0] <= time < hole[1] else 200.0

    series = await knows_the_past(make(name)).history(start, end)

    assert series.at(start + 5 * HOUR_S) is not None
    assert series.at(start + 15 * HOUR_S) is None
    assert series.average(start, end) is None


@pytest.mark.parametrize("name", PAST)
async def test_no_past_is_no_data(name: str, make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.truth = lambda _: None
    ahead = clock() + 100 * HOUR_S

    with pytest.raises(NoDataError):
        await knows_the_past(make(name)).history(ahead, ahead + HOUR_S)


@pytest.mark.parametrize(
    ("start", "hours"),
    [("2026-03-29T00:00:00+01:00", 23), ("2026-10-25T00:00:00+02:00", 25)],
)
@pytest.mark.parametrize("name", PAST)
async def test_days_on_which_clocks_change_have_every_hour_once(
    name: str, make: Make, apis: CarbonApis, clock: Clock, start: str, hours: int
) -> None:
    """Central European days of 23 and of 25 hours, asked for by their local borders."""
    first = unix(start)
    clock.unix_s = first + 48 * HOUR_S
    apis.truth = lambda time: 100.0 + time // HOUR_S % 50

    series = await knows_the_past(make(name)).history(first, first + hours * HOUR_S)

    for hour in range(hours):
        time = first + hour * HOUR_S
        assert series.average(time, time + HOUR_S) == pytest.approx(100.0 + time // HOUR_S % 50)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (Reply(429, headers={"Retry-After": "120"}), ThrottledError),
        (Reply(503, b"busy", {"Retry-After": "120"}), ThrottledError),
        (Reply(500, b"oops"), SignalUnavailableError),
        (Reply(503), SignalUnavailableError),
        (Reply(403), CredentialsRefusedError),
        (Reply(404), NoDataError),
        (Reply(200, b""), BadAnswerError),
        (Reply(200, b"\xff\xfe<html>"), BadAnswerError),
        (of_json({}), BadAnswerError),
        (of_json([]), SignalUnavailableError),
        (of_json(None), BadAnswerError),
        (Reply(200, b"[" * 50_000), BadAnswerError),
        (Reply(200, b'{"data": NaN}'), BadAnswerError),
        (Reply(200, b"x" * 1_000, cut=True), SignalUnavailableError),
        (Reply(200, b"x" * 9_000_000), BadAnswerError),
        (Reply(307, headers={"Location": "http://127.0.0.1:1/"}), SignalUnavailableError),
    ],
)
async def test_each_refusal_is_its_own_error(
    name: str, reply: Reply, kind: type[Exception], make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.fail(FOLDERS[name], reply)

    with pytest.raises(kind, match=name) as raised:
        await make(name).fetch(clock())

    assert isinstance(raised.value, SignalUnavailableError)
    if isinstance(raised.value, ThrottledError):
        assert raised.value.retry_after_s == (600.0 if name == "entsoe" and reply.status == 429 else 120.0)


@pytest.mark.parametrize("name", ALL)
async def test_a_source_that_fails_and_comes_back_is_the_same(
    name: str, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    provider = make(name)
    first = await provider.fetch(clock())
    apis.fail(FOLDERS[name], Reply(500))
    with pytest.raises(SignalUnavailableError):
        await provider.fetch(clock())
    apis.fail(FOLDERS[name], None)

    assert (await provider.fetch(clock())).reading == first.reading


@pytest.mark.parametrize("name", KEYED)
async def test_a_missing_key_is_told_and_a_refused_one_is_read_anew(
    name: str, make: Make, apis: CarbonApis, clock: Clock, secrets: HeldSecrets
) -> None:
    provider = make(name)
    right = dict(secrets.values)
    secrets.values.clear()
    with pytest.raises(CredentialsMissingError):
        await provider.fetch(clock())
    secrets.values |= {pair: "wrong-" + value for pair, value in right.items()}
    with pytest.raises(CredentialsRefusedError, match=name):
        await provider.fetch(clock())
    secrets.values |= right
    clock.unix_s += 61.0

    assert (await provider.fetch(clock())).reading.intensity_g_per_kwh == pytest.approx(250.0)


@pytest.mark.parametrize("name", ["electricityMaps", "wattTime", "prometheus"])
async def test_a_value_from_the_future_is_refused(name: str, make: Make, clock: Clock) -> None:
    """This machine's clock is a day late: nothing may look fresh for a day too long. The others answer by our clock."""
    with pytest.raises(NoDataError, match="is the clock of this machine right"):
        await make(name).fetch(clock() - 24 * HOUR_S)


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("prometheus", "entsoe")])
@pytest.mark.parametrize("value", [-1.0, 1e9, "140", True, [1], {"a": 1}])
async def test_what_is_no_intensity_is_refused(
    name: str, value: Any, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    wanted = {"carbonIntensity", "value", "forecast", "actual", "co2eq", "co2eq_forecast", "rating"}

    def spoil(document: Any) -> Any:
        if isinstance(document, dict):
            return {
                key: (
                    [value for _ in each]
                    if key in wanted and isinstance(each, list) and not (each and isinstance(each[0], dict))
                    else value
                    if key in wanted and isinstance(each, int | float)
                    else spoil(each)
                )
                for key, each in document.items()
            }
        return [spoil(each) for each in document] if isinstance(document, list) else document

    def answer(asked: Asked) -> Reply | None:
        if asked.path.endswith("/login"):
            return None
        override = apis.override.pop(FOLDERS[name])
        reply = apis.answer(asked)
        apis.override[FOLDERS[name]] = override
        return Reply(reply.status, json.dumps(spoil(json.loads(reply.body))).encode(), reply.headers)

    apis.override[FOLDERS[name]] = answer

    with pytest.raises(BadAnswerError, match=name):
        await make(name).fetch(clock())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def mutated(document: Any, data: st.DataObject) -> Any:
    """The document with one part of it, however deep, replaced by any JSON."""
    if isinstance(document, dict) and document and data.draw(st.integers(0, 5)):
        key = data.draw(st.sampled_from(sorted(document)))
        return document | {key: mutated(document[key], data)}
    if isinstance(document, list) and document and data.draw(st.integers(0, 5)):
        index = data.draw(st.integers(0, min(len(document) - 1, 3)))
        return [*document[:index], mutated(document[index], data), *document[index + 1 :]]
    return data.draw(JSON)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", [name for name in ALL if name != "entsoe"])
async def test_whatever_is_answered_there_is_a_value_or_one_of_our_errors(
    name: str, data: st.DataObject, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    folder = FOLDERS[name]

    def answer(asked: Asked) -> Reply:
        del apis.override[folder]
        document = json.loads(apis.answer(asked).body)
        apis.override[folder] = answer
        return of_json(mutated(document, data))

    apis.override[folder] = answer
    fetched, message = None, ""
    try:
        fetched = await make(name).fetch(clock())
    except SignalUnavailableError as error:
        message = str(error)
    if fetched is None:
        assert name in message
    else:
        assert fetched.reading.measured_unix_s <= clock() + 600.0
        assert 0.0 <= fetched.reading.intensity_g_per_kwh <= 10_000.0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(status=400, shape=0, secret=":00000")
@given(status=st.sampled_from([200, 400, 401, 403, 404, 429, 500, 503]), shape=st.integers(0, 5), secret=PRINTABLE)
@pytest.mark.parametrize("name", KEYED)
async def test_no_key_appears_in_any_message_or_log(
    name: str,
    status: int,
    shape: int,
    secret: str,
    make: Make,
    apis: CarbonApis,
    clock: Clock,
    secrets: HeldSecrets,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever the source repeats of the question in its answer."""
    secrets.values = dict.fromkeys(secrets.values, secret)

    def echo(asked: Asked) -> Reply:
        text = f"you sent {dict(asked.headers)} {asked.query} {secret}"
        documents: list[Any] = [{"error": text}, {"message": text}, {"detail": text}, text, [text], {"title": text}]
        return of_json(documents[shape], status)

    apis.override[FOLDERS[name]] = echo
    message = ""
    with caplog.at_level(logging.DEBUG):
        try:
            await make(name).fetch(clock())
        except SignalUnavailableError as error:
            message = f"{error} {error!r} {error.__cause__} {error.args}"
    assert message
    assert secret not in message
    assert secret not in caplog.text
    caplog.clear()


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hidden-value")

    assert "hidden-value" not in f"{secret} {secret!r} {[secret]}"
    assert secret.reveal() == "hidden-value"
