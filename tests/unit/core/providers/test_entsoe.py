"""ENTSO-E: documents, market time units of several lengths, types that are late, factors, and acknowledgements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.carbon_apis import HOUR_S, CarbonApis, acknowledgement, generation, iso, time_series, unix
from tests.support.upstream import Reply
from tests.unit.core.providers.conftest import Clock, Make

from heliotrope.carbon.signal import EmissionFactor
from heliotrope.errors import BadAnswerError, NoDataError, SignalUnavailableError, ThrottledError
from heliotrope.providers.entsoe import intensity
from heliotrope.providers.entsoe_factors import DIRECT, LIFECYCLE, STORAGE, factors_g_per_kwh
from heliotrope.providers.entsoe_xml import Generated, read_generation

START, END = unix("2026-03-10T08:00:00Z"), unix("2026-03-10T10:00:00Z")


def values(reply: Reply, psr_type: str = "B04") -> list[tuple[float, float]]:
    return [
        ((each.start_unix_s - START) / 60.0, each.megawatts)
        for each in read_generation(reply.body, "entsoe")
        if each.psr_type == psr_type
    ]


async def test_the_question_is_for_generation_per_type_in_utc(make: Make, apis: CarbonApis, clock: Clock) -> None:
    reading = (await make("entsoe").fetch(clock())).reading

    (asked,) = apis.asked
    assert asked.query == {
        "securityToken": [apis.entsoe_token],
        "documentType": ["A75"],
        "processType": ["A16"],
        "in_Domain": ["10YES-REE------0"],
        "periodStart": ["202603092200"],
        "periodEnd": ["202603101100"],
    }
    assert reading.intensity_g_per_kwh == pytest.approx(250.0)
    assert reading.estimated is None


@pytest.mark.parametrize(("resolution", "minutes"), [("PT15M", 15.0), ("PT30M", 30.0), ("PT60M", 60.0), ("PT1H", 60.0)])
def test_market_time_units_of_every_length(resolution: str, minutes: float) -> None:
    count = int(120 / minutes)
    series = time_series("B04", START, END, resolution, [float(n) for n in range(count)])

    assert values(generation(series)) == [(n * minutes, float(n)) for n in range(count)]


def test_positions_left_out_are_gaps_in_fixed_blocks_and_repeats_in_variable_ones() -> None:
    given = [1.0, None, None, 4.0, None, None, None, 8.0]
    fixed = time_series("B04", START, END, "PT15M", given)
    variable = time_series("B04", START, END, "PT15M", [1.0, None, None, 4.0, None, None, None, None], curve="A03")

    assert values(generation(fixed)) == [(0.0, 1.0), (45.0, 4.0), (105.0, 8.0)]
    assert [value for _, value in values(generation(variable))] == [1.0] * 3 + [4.0] * 5


def test_what_pumps_take_and_other_units() -> None:
    pumps = time_series("B10", START, END, "PT60M", [100.0, 100.0], out=True)
    assert values(generation(pumps), "B10") == []
    with pytest.raises(BadAnswerError, match="not in MAW"):
        read_generation(generation(time_series("B04", START, END, "PT60M", [1.0], unit="MWH")).body, "entsoe")


def test_the_hours_of_days_on_which_clocks_change_follow_each_other() -> None:
    """A Spanish day in March, of 23 hours, by its local borders."""
    start, end = unix("2026-03-29T00:00:00+01:00"), unix("2026-03-30T00:00:00+02:00")
    body = generation(time_series("B04", start, end, "PT60M", [float(n) for n in range(23)])).body

    found = read_generation(body, "entsoe")

    assert [each.start_unix_s for each in found] == [start + n * HOUR_S for n in range(23)]


def test_the_mix_is_weighted_by_generation() -> None:
    """By hand: (490 × 300 + 11 × 600 + 12 × 100) / 1000 = 154.8 g/kWh."""
    reply = generation(
        time_series("B04", START, END, "PT60M", [300.0, 0.0]),
        time_series("B19", START, END, "PT60M", [600.0, 600.0]),
        time_series("B14", START, END, "PT60M", [100.0, 100.0]),
    )

    points = intensity(read_generation(reply.body, "entsoe"), LIFECYCLE, "ES")

    assert [point.intensity_g_per_kwh for point in points] == [pytest.approx(154.8), pytest.approx(7_800 / 700)]


def test_a_unit_without_all_types_is_a_gap() -> None:
    """Coal of the newest hour is not there yet: the hour would look clean."""
    reply = generation(
        time_series("B05", START, END, "PT60M", [300.0, None]),
        time_series("B19", START, END, "PT60M", [600.0, 600.0]),
        time_series("B16", START, END, "PT60M", [0.0, None]),
    )

    points = intensity(read_generation(reply.body, "entsoe"), LIFECYCLE, "ES")

    assert [point.time_unix_s for point in points] == [START]


def test_types_of_longer_units_count_in_each_shorter_one() -> None:
    reply = generation(
        time_series("B04", START, END, "PT60M", [100.0, 300.0]),
        time_series("B19", START, END, "PT15M", [100.0] * 8),
    )

    points = intensity(read_generation(reply.body, "entsoe"), {"B04": 400.0, "B19": 0.0}, "ES")

    assert [point.intensity_g_per_kwh for point in points] == [200.0] * 4 + [300.0] * 4


def test_storage_counts_in_neither_sum_and_negative_feed_in_as_none() -> None:
    reply = generation(
        time_series("B10", START, END, "PT60M", [500.0, 500.0]),
        time_series("B04", START, END, "PT60M", [100.0, 100.0]),
        time_series("B16", START, END, "PT60M", [100.0, -3.0]),
    )

    points = intensity(read_generation(reply.body, "entsoe"), {"B04": 400.0, "B16": 0.0, "B10": 9.0}, "ES")

    assert [point.intensity_g_per_kwh for point in points] == [200.0, 400.0]


@pytest.mark.parametrize(("other", "counts"), [(90.0, True), (150.0, False)])
def test_types_without_a_factor_are_as_the_rest_until_they_are_many(other: float, counts: bool) -> None:
    reply = generation(
        time_series("B04", START, END, "PT60M", [900.0, 900.0]),
        time_series("B20", START, END, "PT60M", [other, other]),
    )
    generated = read_generation(reply.body, "entsoe")

    if counts:
        assert intensity(generated, LIFECYCLE, "ES")[0].intensity_g_per_kwh == pytest.approx(490.0)
    else:
        with pytest.raises(NoDataError, match=r"B20 without an emission factor.*spec\.source\.entsoe\.factors"):
            intensity(generated, LIFECYCLE, "ES")


async def test_factors_of_the_profile_replace_the_built_in_ones(make: Make, apis: CarbonApis, clock: Clock) -> None:
    factors = [{"psrType": "B04", "gramsPerKwh": "0"}, {"psrType": "B19", "gramsPerKwh": "0"}]

    assert (await make("entsoe", {"factors": factors}).fetch(clock())).reading.intensity_g_per_kwh == 0.0
    direct = await make("entsoe", signal={"type": "average", "emissionFactor": "direct"}).fetch(clock())
    assert direct.reading.intensity_g_per_kwh == pytest.approx(370.0 * (250.0 - 11.0) / (490.0 - 11.0))


async def test_an_hour_whose_values_are_late_is_old_and_not_new(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.entsoe_lag_s = 5 * HOUR_S

    assert (await make("entsoe").fetch(clock())).reading.measured_unix_s == unix("2026-03-10T04:00:00Z")


@pytest.mark.parametrize("status", [200, 400])
async def test_acknowledgements_say_why_there_is_nothing(
    status: int, make: Make, apis: CarbonApis, clock: Clock
) -> None:
    apis.fail("entsoe", acknowledgement("999", "No matching data found", status))
    with pytest.raises(NoDataError, match=r"check spec\.source\.entsoe\.domain"):
        await make("entsoe").fetch(clock())
    apis.fail("entsoe", acknowledgement("999x", "Input in_Domain is wrong", status))
    with pytest.raises(SignalUnavailableError, match="refuses the question: Input in_Domain is wrong") as raised:
        await make("entsoe").fetch(clock())
    assert not isinstance(raised.value, NoDataError)


async def test_a_ban_is_waited_out(make: Make, apis: CarbonApis, clock: Clock) -> None:
    apis.fail("entsoe", Reply(429, b"<html>too many</html>"))

    with pytest.raises(ThrottledError, match="ten minutes") as raised:
        await make("entsoe").fetch(clock())
    assert raised.value.retry_after_s == 600.0


ENTITY = '<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "{}">]><GL_MarketDocument>&a;</GL_MarketDocument>'


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no xml",
        b"<GL_MarketDocument>",
        b"<Publication_MarketDocument/>",
        ENTITY.format("x" * 10).encode(),
        ENTITY.format("x" * 10).encode("utf-16"),
        b'<?xml version="1.0" encoding="no-such"?><GL_MarketDocument/>',
        b"<GL_MarketDocument><TimeSeries/></GL_MarketDocument>",
        generation(time_series("B04", START, END, "P1D", [1.0])).body,
        generation(time_series("B04", START, END, "PT0M", [1.0])).body,
        generation(time_series("B04", END, START, "PT60M", [1.0])).body,
        generation(time_series("B04", START, END, "PT60M", [1.0, 1.0, 1.0])).body,
        generation(time_series("B04", START, END, "PT60M", [float("nan")])).body,
        generation(time_series("B04", START, unix("2099-01-01T00:00:00Z"), "PT1M", [1.0], curve="A03")).body,
        generation(time_series("B04", START, END, "PT60M", [1.0])).body.replace(b"<position>1<", b"<position>-1<"),
        generation(time_series("B04", START, END, "PT60M", [1.0])).body.replace(
            b"<position>1<", b"<position>\xc2\xb2<"
        ),
        generation(time_series("B04", START, END, "PT60M", [1.0])).body.replace(iso(START, "minutes").encode(), b"now"),
    ],
)
def test_other_documents_are_refused(body: bytes) -> None:
    with pytest.raises(BadAnswerError, match="entsoe"):
        read_generation(body, "entsoe")


@given(st.dictionaries(st.sampled_from(sorted(LIFECYCLE)), st.floats(0.0, 1e5), min_size=1))
def test_a_mix_is_between_its_cleanest_and_its_dirtiest_type(mix: dict[str, float]) -> None:
    points = intensity([Generated(name, 0.0, HOUR_S, power) for name, power in mix.items()], LIFECYCLE, "ES")

    running = [LIFECYCLE[name] for name, power in mix.items() if power > 0]
    assert len(points) == (1 if running else 0)
    for point in points:
        assert min(running) - 1e-6 <= point.intensity_g_per_kwh <= max(running) + 1e-6


def test_the_tables_cover_the_same_types_and_direct_is_never_more() -> None:
    assert LIFECYCLE.keys() == DIRECT.keys()
    assert not STORAGE & LIFECYCLE.keys()
    assert factors_g_per_kwh(EmissionFactor.DIRECT) is DIRECT
    assert DIRECT["B02"] == pytest.approx(957, abs=1)
    assert DIRECT["B04"] < LIFECYCLE["B04"]
