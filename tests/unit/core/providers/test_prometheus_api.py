"""The Prometheus client against a server that speaks its HTTP API, well and badly."""

from collections.abc import Iterator
from math import nan
from typing import Any

import numpy as np
import pytest
from tests.support.upstream import Reply, Upstream, of_json, upstream

from heliotrope.errors import (
    BadAnswerError,
    CredentialsRefusedError,
    InvalidInputError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope.providers import prometheus_api
from heliotrope.providers.http import Limits, Network
from heliotrope.providers.prometheus_api import MAX_STEPS, Access, PrometheusApi
from heliotrope.providers.secrets import Secret, basic, bearer


def success(kind: str, result: Any, **more: Any) -> Reply:
    return of_json({"status": "success", "data": {"resultType": kind, "result": result}} | more)


@pytest.fixture
def server() -> Iterator[Upstream]:
    with upstream(lambda _: success("vector", [])) as running:
        yield running


def api(server: Upstream, access: Access | None = None, path: str = "", limits: Limits | None = None) -> PrometheusApi:
    async def given() -> Access:
        return access or Access()

    return PrometheusApi(Network(limits), server.url + path, given)


async def test_an_instant_query_gives_samples_and_none_for_what_is_no_number(server: Upstream) -> None:
    result = [
        {"metric": {"model": "a"}, "value": [1_700_000_000.5, "1.5"]},
        {"metric": {"model": "b"}, "value": [1_700_000_000.5, "NaN"]},
        {"metric": {"model": "c"}, "value": [1_700_000_000.5, "+Inf"]},
        {"metric": {"model": "d"}, "value": [1_700_000_000.5, "0"]},
    ]
    server.answer = lambda _: success("vector", result)

    vector = await api(server).query('sum by (model) (rate(x{a="b+c"}[5m]))', 1_700_000_000.5)

    assert [(s.labels["model"], s.time_unix_s, s.value) for s in vector.samples] == [
        ("a", 1_700_000_000.5, 1.5),
        ("b", 1_700_000_000.5, None),
        ("c", 1_700_000_000.5, None),
        ("d", 1_700_000_000.5, 0.0),
    ]
    assert vector.warnings == ()
    assert server.asked[0].path == "/api/v1/query"
    assert server.asked[0].one("query") == 'sum by (model) (rate(x{a="b+c"}[5m]))'
    assert server.asked[0].one("time") == "1700000000.500"


async def test_no_series_are_no_samples_and_a_scalar_is_one_without_labels(server: Upstream) -> None:
    assert (await api(server).query("absent_series")).samples == ()
    assert server.asked[0].one("time") is None
    server.answer = lambda _: success("scalar", [1.0, "7"])

    (sample,) = (await api(server).query("scalar(x)")).samples

    assert (sample.labels, sample.value) == ({}, 7.0)


async def test_a_range_is_on_the_grid_with_nan_in_gaps(server: Upstream) -> None:
    result = [{"metric": {"m": "x"}, "values": [[100, "1"], [130, "NaN"], [160, "3"]]}]
    server.answer = lambda _: success("matrix", result)

    matrix = await api(server).query_range("x", 100.0, 175.0, 15.0)

    assert matrix.times_unix_s.tolist() == [100.0, 115.0, 130.0, 145.0, 160.0, 175.0]
    np.testing.assert_array_equal(matrix.series[0].values, [1.0, nan, nan, nan, 3.0, nan])
    asked = server.asked[0]
    assert (asked.path, asked.one("start"), asked.one("end"), asked.one("step")) == (
        "/api/v1/query_range",
        "100.000",
        "175.000",
        "15.000",
    )


async def test_samples_have_the_times_of_their_scrapes_in_order(server: Upstream) -> None:
    result = [{"metric": {"pod": "a"}, "values": [[101.5, "2"], [86.5, "1"], [116.5, "NaN"]]}]
    server.answer = lambda _: success("matrix", result)

    raw = await api(server).samples("x[5m]", 120.0)

    assert raw.series[0].labels == {"pod": "a"}
    assert raw.series[0].times_unix_s == (86.5, 101.5, 116.5)
    np.testing.assert_array_equal(raw.series[0].values, [1.0, 2.0, nan])
    asked = server.asked[0]
    assert (asked.path, asked.one("query"), asked.one("time")) == ("/api/v1/query", "x[5m]", "120.000")


@pytest.mark.parametrize("result", [[{"metric": {}, "values": [["x", "1"]]}], [{"metric": {}}], [{"values": []}], [1]])
async def test_samples_of_another_shape_are_no_answer(server: Upstream, result: Any) -> None:
    server.answer = lambda _: success("matrix", result)
    with pytest.raises(BadAnswerError, match="not one of the Prometheus API"):
        await api(server).samples("x[5m]", 120.0)
    server.answer = lambda _: success("vector", [])
    with pytest.raises(BadAnswerError, match="not one of the Prometheus API"):
        await api(server).samples("x[5m]", 120.0)


async def test_a_range_without_series_has_none(server: Upstream) -> None:
    server.answer = lambda _: success("matrix", [])

    assert (await api(server).query_range("x", 0.0, 60.0, 15.0)).series == ()


@pytest.mark.parametrize(("start", "end", "step"), [(0, MAX_STEPS, 1), (10, 0, 1), (0, 10, 0), (0, 10, nan)])
async def test_a_grid_that_no_server_gives_is_refused_before_it_is_asked_for(
    server: Upstream, start: float, end: float, step: float
) -> None:
    with pytest.raises(InvalidInputError, match="range"):
        await api(server).query_range("x", start, end, step)
    assert server.asked == []


async def test_warnings_are_told_and_infos_are_not(server: Upstream) -> None:
    server.answer = lambda _: success("vector", [], warnings=["store a is\n gone"], infos=["name ends in _total"])
    assert (await api(server).query("x")).warnings == ("store a is gone",)

    server.answer = lambda _: success("vector", [], isPartial=True)
    assert (await api(server).query("x")).warnings == ("the answer is partial",)


async def test_credentials_are_read_anew_for_each_query(server: Upstream) -> None:
    tokens = iter(["one", "two"])

    async def access() -> Access:
        return Access(bearer(Secret(next(tokens))))

    client = PrometheusApi(Network(), f"{server.url}/prefix/?tenant=7", access)
    await client.query("x")
    await client.query("x")

    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer one", "Bearer two"]
    assert server.asked[0].path == "/prefix/api/v1/query"
    assert (server.asked[0].one("tenant"), server.asked[0].one("query")) == ("7", "x")


async def test_basic_credentials_and_those_of_the_url(server: Upstream) -> None:
    await api(server, Access(basic(Secret("me"), Secret("pä:ss"), "prometheus"))).query("x")
    await PrometheusApi(Network(), server.url.replace("http://", "http://me:pw@")).query("x")

    assert [asked.headers["authorization"] for asked in server.asked] == ["Basic bWU6cMOkOnNz", "Basic bWU6cHc="]


@pytest.mark.parametrize(
    ("reply", "kind", "says"),
    [
        (of_json({"status": "error", "errorType": "bad_data", "error": "parse error"}, 400), BadAnswerError, "parse"),
        (of_json({"status": "error", "errorType": "execution", "error": "too many"}, 422), BadAnswerError, "too many"),
        (of_json({"status": "error", "error": "timed out"}, 503), SignalUnavailableError, "timed out"),
        (Reply(401, b"Unauthorized"), CredentialsRefusedError, "401"),
        (Reply(403), CredentialsRefusedError, "403"),
        (Reply(404, b"page not found"), NoDataError, "set url to the server's root"),
        (Reply(429, headers={"Retry-After": "7"}), ThrottledError, "429"),
        (Reply(302, headers={"Location": "https://other/?token=x"}), SignalUnavailableError, "it moved"),
        (Reply(599), SignalUnavailableError, "599"),
        (Reply(200, b"<html>login</html>"), BadAnswerError, "not JSON"),
        (of_json(["no", "object"]), BadAnswerError, "check the address"),
        (of_json({"status": "error", "error": "with 200"}), BadAnswerError, "check the address"),
        (success("matrix", []), BadAnswerError, "gives a matrix"),
        (success("string", [1, "a"]), BadAnswerError, "gives a string"),
        (success("vector", [{"metric": {}, "value": [1]}]), BadAnswerError, "check the address"),
        (success("vector", [{"metric": {}, "value": [1, "x"]}]), BadAnswerError, "check the address"),
        (success("vector", [{"metric": []}]), BadAnswerError, "check the address"),
        (success("vector", 5), BadAnswerError, "check the address"),
        (Reply(200, b'{"status":"success"}', {"Content-Encoding": "gzip"}), BadAnswerError, "compressed"),
        (Reply(200, b"x" * 100, cut=True), SignalUnavailableError, "prometheus"),
    ],
)
async def test_each_failure_has_its_error_and_tells_the_host(
    server: Upstream, reply: Reply, kind: type[Exception], says: str
) -> None:
    server.answer = lambda _: reply

    with pytest.raises(kind, match=says) as raised:
        await api(server).query("x")

    assert f"prometheus (127.0.0.1:{server.port})" in str(raised.value)
    assert isinstance(raised.value, SignalUnavailableError)
    if isinstance(raised.value, ThrottledError):
        assert raised.value.retry_after_s == 7.0


async def test_a_range_off_the_grid_is_no_answer(server: Upstream) -> None:
    server.answer = lambda _: success("matrix", [{"metric": {}, "values": [[500, "1"]]}])

    with pytest.raises(BadAnswerError):
        await api(server).query_range("x", 0.0, 60.0, 15.0)


async def test_too_much_is_refused(server: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus_api, "MAX_SERIES", 2)
    server.answer = lambda _: success("vector", [{"metric": {"n": str(n)}, "value": [1, "1"]} for n in range(3)])

    with pytest.raises(BadAnswerError, match="3 series, more than 2; aggregate it"):
        await api(server).query("x")
    with pytest.raises(BadAnswerError, match="larger than 50 bytes"):
        await api(server, limits=Limits(body_bytes=50)).query("x")


async def test_silence_and_slowness_end(server: Upstream) -> None:
    server.answer = lambda _: Reply(200, b"x" * 100, hang=True)

    with pytest.raises(SignalUnavailableError, match="ReadTimeout"):
        await api(server, limits=Limits(silence_s=0.05)).query("x")
    with pytest.raises(SignalUnavailableError, match="no answer within 0 s"):
        await api(server, limits=Limits(total_s=0.05)).query("x")


async def test_a_proxy_of_the_environment_is_used_but_not_for_its_exceptions(
    server: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server.url)
    monkeypatch.setenv("no_proxy", "direct.invalid,127.0.0.1")
    assert (await PrometheusApi(Network(), "http://prometheus.invalid/p").query("x")).samples == ()
    assert (server.asked[0].path, server.asked[0].headers["host"]) == ("/p/api/v1/query", "prometheus.invalid")

    with pytest.raises(SignalUnavailableError, match=r"direct\.invalid"):
        await PrometheusApi(Network(), "http://direct.invalid").query("x")
    assert len(server.asked) == 1


async def test_nobody_there() -> None:
    with pytest.raises(SignalUnavailableError, match=r"prometheus \(127\.0\.0\.1:1\)"):
        await PrometheusApi(Network(), "http://127.0.0.1:1").query("x")


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://x", "http://", "http://x:port"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError, match="is not of the form https"):
        PrometheusApi(Network(), url)
