import pytest

from heliotrope_sim.sidecar.config import ECConnector, SidecarConfig
from heliotrope_sim.sidecar.endpoint import host_of, is_host_port, port_of
from heliotrope_sim.sidecar.errors import SidecarError
from heliotrope_sim.sidecar.routes import Route, route

OPEN = SidecarConfig(decoder_url="http://d:1", ec_connector=ECConnector.NIXL, enable_p2p_pull=True)
CLOSED = OPEN.model_copy(update={"allowed_targets": frozenset({"10.0.0.1", "p:8000"})})


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([], Route()),
        ([("X-Prefiller-Host-Port", "10.0.0.1:8000")], Route(prefiller="10.0.0.1:8000")),
        # Candidates in the order of preference: the first is taken.
        ([("x-prefiller-host-port", "a:1, b:2")], Route(prefiller="a:1")),
        ([("x-prefiller-host-port", "http://a:1"), ("x-prefiller-host-port", "b:2")], Route(prefiller="a:1")),
        ([("x-prefiller-host-port", " ")], Route()),
        (
            [("x-encoder-hosts-ports", "a:1,b:2"), ("x-encoder-hosts-ports", "c:3")],
            Route(encoders=("a:1", "b:2", "c:3")),
        ),
        ([("x-kv-cache-source-host-port", "a:1")], Route(kv_source="a:1")),
        ([("x-kv-cache-source-host-port", "a")], Route()),
    ],
)
def test_headers_name_the_engines_that_take_part(headers: list[tuple[str, str]], expected: Route) -> None:
    assert route(headers, OPEN) == expected
    assert expected.direct == (expected == Route())


def test_headers_of_stages_that_are_switched_off_are_ignored() -> None:
    headers = [("x-encoder-hosts-ports", "a:1"), ("x-kv-cache-source-host-port", "a:1")]
    assert route(headers, SidecarConfig(decoder_url="http://d:1")).direct


@pytest.mark.parametrize(
    "target", ["10.0.0.2:8000", "p:9000", "p", "10.0.0.1:0", "10.0.0.1:8000/x", "10.0.0.1:8000@e:1"]
)
def test_a_prefiller_that_is_not_allowed_is_refused(target: str) -> None:
    with pytest.raises(SidecarError) as refused:
        route([("x-prefiller-host-port", target)], CLOSED)
    assert refused.value.status == 403


def test_sources_and_encoders_that_are_not_allowed_are_left_out() -> None:
    headers = [("x-encoder-hosts-ports", "p:8000,e:1,10.0.0.1:7"), ("x-kv-cache-source-host-port", "e:1")]
    assert route(headers, CLOSED) == Route(encoders=("p:8000", "10.0.0.1:7"))


def test_without_a_list_a_target_must_still_be_a_host_and_a_port() -> None:
    with pytest.raises(SidecarError):
        route([("x-prefiller-host-port", "metadata.internal")], OPEN)


@pytest.mark.parametrize(
    ("target", "host", "port"),
    [
        ("a:1", "a", 1),
        ("[::1]:8000", "::1", 8000),
        ("::1", "::1", None),
        ("a", "a", None),
        (":1", "", None),
        ("a:65536", "a", None),
        ("a:-1", "a", None),
        ("a:٣", "a", None),
    ],
)
def test_hosts_and_ports(target: str, host: str, port: int | None) -> None:
    assert (host_of(target), port_of(target)) == (host, port)
    assert is_host_port(target) == (port is not None)


@pytest.mark.parametrize("url", ["https://d:1", "http://d:1/v1", "d:1"])
def test_a_decoder_is_an_http_address(url: str) -> None:
    with pytest.raises(ValueError, match="decoder_url"):
        SidecarConfig(decoder_url=url)


def test_a_list_of_targets_is_split_at_commas() -> None:
    assert SidecarConfig.named("a:1, b ,") == {"a:1", "b"}
    assert SidecarConfig.named(None) is None
    assert SidecarConfig.named("") == frozenset()
