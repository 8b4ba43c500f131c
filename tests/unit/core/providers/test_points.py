"""Points, forecasts that fit a status, secrets, addresses, times to wait, and how often public services are asked."""

import random
import ssl
from datetime import UTC, datetime
from email.utils import format_datetime
from math import inf

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.core.providers.conftest import Make, sources

from heliotrope.api.documents import parse
from heliotrope.api.v1alpha1 import RegionProfile
from heliotrope.carbon.series import Point, Series
from heliotrope.errors import CredentialsMissingError, CredentialsRefusedError, InvalidInputError
from heliotrope.providers import build, timing
from heliotrope.providers.http import Network, Request, base_url, retry_after_s
from heliotrope.providers.points import forecast_series, in_order
from heliotrope.providers.recorded import FORECAST_POINTS
from heliotrope.providers.secrets import masked, pem_of, secret_of

DAY = 86_400.0


def profile(name: str, url: str | None, **spec: object) -> RegionProfile:
    document = sources(url or "http://x")[name]
    if url is None:
        for source in document["source"].values():
            source.pop("baseUrl", None)
    found = parse(
        {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "RegionProfile",
            "metadata": {"name": "r"},
            "spec": {"zone": "ES"} | document | spec,
        }
    )
    assert isinstance(found, RegionProfile)
    return found


@given(
    st.sampled_from([300.0, 900.0, 1_800.0, 3_600.0]),
    st.integers(2, 900),
    st.integers(0, 3_600),
    st.integers(0, 2**32),
)
def test_a_long_forecast_is_averaged_and_keeps_its_energy(step: float, count: int, offset: int, seed: int) -> None:
    rng = random.Random(seed)
    points = [Point(offset + n * step, rng.uniform(0.0, 1_000.0)) for n in range(count)]
    whole = Series.from_points(points, last_holds_s=step)

    series = forecast_series(points[0], points[1:], inf)

    assert series is not None
    assert len(series.times_unix_s) <= FORECAST_POINTS
    assert series.times_unix_s[0] == offset
    end = series.times_unix_s[-1] + series.last_holds_s
    assert series.average(offset, end) == pytest.approx(whole.average(offset, end), rel=1e-9, abs=1e-9)
    assert end >= offset + count * step - series.last_holds_s - step


def test_the_horizon_cuts_a_forecast() -> None:
    points = [Point(n * 3_600.0, 1.0) for n in range(48)]

    series = forecast_series(points[0], points[1:], 6 * 3_600.0)

    assert series is not None
    assert series.times_unix_s[-1] == 5 * 3_600.0
    assert forecast_series(points[0], points[1:], 0.0) is None


def test_of_two_values_of_a_time_the_later_one_counts() -> None:
    assert in_order([Point(2.0, 1.0), Point(1.0, 5.0), Point(2.0, 3.0)]) == [Point(1.0, 5.0), Point(2.0, 3.0)]


@pytest.mark.parametrize("data", [b"", b" \n", b"a\nb", b"\xff\xfe", b"a\x00b", b"x" * 20_000])
def test_what_cannot_be_a_key_is_told_without_it(data: bytes) -> None:
    with pytest.raises(CredentialsMissingError, match="the file") as raised:
        secret_of(data, "the file")
    assert data.decode("latin-1").strip() == "" or data.decode("latin-1") not in str(raised.value)


def test_the_last_lines_end_is_no_part_of_a_key() -> None:
    assert secret_of(b"  token\r\n", "x").reveal() == "token"
    with pytest.raises(CredentialsMissingError, match="no PEM"):
        pem_of(b"token", "x")


def test_masks_hide_a_value_also_where_it_is_encoded() -> None:
    assert masked("a=p%40ss%2Fw&b=p@ss/w&c=p%40ss/w", ["p@ss/w", ""]) == "a=***&b=***&c=p%40ss/w"


async def test_a_key_that_no_header_can_carry_is_told_without_it() -> None:
    with pytest.raises(CredentialsRefusedError, match="characters that cannot be sent") as raised:
        await Network().get(Request("x", "http://127.0.0.1:1", headers={"auth-token": "naïve"}))
    assert "naïve" not in str(raised.value)


async def test_certificates_that_are_none_are_told() -> None:
    broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    with pytest.raises(CredentialsRefusedError, match="certificates"):
        await Network().get(Request("x", "https://127.0.0.1:1", ca_pem=broken))


async def test_authorities_are_loaded_once_for_all() -> None:
    network = Network()
    contexts = {id(await network._trusted(httpx.URL("https://x"), Request("x", "https://x"))) for _ in "12"}
    assert len(contexts) == 1
    assert isinstance(next(iter(network._tls.values())), ssl.SSLContext)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": " 17 "}, 17.0),
        ({"retry-after": "99999999"}, DAY),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "1.5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": format_datetime(datetime(2026, 1, 1, 0, 5, tzinfo=UTC), usegmt=True)}, None),
        (
            {
                "retry-after": format_datetime(datetime(2026, 1, 1, 0, 5, tzinfo=UTC), usegmt=True),
                "date": format_datetime(datetime(2026, 1, 1, 0, 0, tzinfo=UTC), usegmt=True),
            },
            300.0,
        ),
    ],
)
def test_times_to_wait_are_bounded_and_dates_count_from_the_answers_own(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_s(headers) == seconds


def test_addresses_keep_their_path_and_query() -> None:
    assert base_url("https://h/a/?tenant=1", "/b") == "https://h/a/b?tenant=1"
    with pytest.raises(InvalidInputError) as raised:
        base_url("https://user:hidden@h:port/", "")
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize("name", ["electricityMaps", "wattTime", "neso", "energyCharts", "entsoe"])
def test_public_services_are_asked_once_a_minute_at_most(name: str) -> None:
    assert timing(profile(name, None, pollInterval="1s").spec).poll_s == 60.0
    assert timing(profile(name, "http://own", pollInterval="1s").spec).poll_s == 1.0
    assert timing(profile(name, None, pollInterval="10m").spec).poll_s == 600.0


@pytest.mark.parametrize("name", sorted(sources("")))
def test_an_address_that_is_none_is_refused_when_the_source_is_made(name: str, make: Make) -> None:
    field = "url" if name in ("prometheus", "carbonAwareSdk") else "baseUrl"
    with pytest.raises(InvalidInputError, match=r"spec\.source: the address is not of the form"):
        make(name, {field: "http://host:port"})


@pytest.mark.parametrize("name", sorted(sources("")))
def test_without_a_network_its_sources_are_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"spec\.source\.{name}: cannot be read here"):
        build(profile(name, "http://x"), started_unix_s=0.0)
