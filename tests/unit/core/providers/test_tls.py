"""Private authorities: trusted where they are named, refused where they are not, and exchanged while it runs."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.upstream import Upstream, of_json, upstream

from heliotrope.errors import SignalUnavailableError
from heliotrope.providers.http import Network
from heliotrope.providers.prometheus_api import Access, PrometheusApi
from heliotrope_epp.transport.certificates import Pair, SelfSigned, self_signed

ANSWER = of_json({"status": "success", "data": {"resultType": "scalar", "result": [1, "5"]}})


def served(pair: Pair, folder: Path) -> ssl.SSLContext:
    for name, data in (("crt", pair.certificate), ("key", pair.key)):
        (folder / f"tls.{name}").write_bytes(data)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    return context


@pytest.fixture
def pair() -> Pair:
    return self_signed(SelfSigned(("127.0.0.1",)))


@pytest.fixture
def server(pair: Pair, tmp_path: Path) -> Iterator[Upstream]:
    with upstream(lambda _: ANSWER, served(pair, tmp_path)) as running:
        yield running


async def test_a_private_authority_is_trusted_where_it_is_named_and_only_there(server: Upstream, pair: Pair) -> None:
    network, trusted = Network(), pair.certificate.decode()
    other = self_signed(SelfSigned(("127.0.0.1",))).certificate.decode()
    given = iter([trusted, other, None, trusted])

    async def access() -> Access:
        return Access(ca_pem=next(given))

    api = PrometheusApi(network, server.url, access)

    assert (await api.query("x")).samples[0].value == 5.0
    for _ in ("another authority", "the system's"):
        with pytest.raises(SignalUnavailableError, match="CERTIFICATE_VERIFY_FAILED"):
            await api.query("x")
    assert (await api.query("x")).samples[0].value == 5.0
    assert len(server.asked) == 2


async def test_contexts_of_authorities_are_bounded(server: Upstream) -> None:
    network = Network()
    for _ in range(12):
        pem = self_signed(SelfSigned(("127.0.0.1",))).certificate.decode()

        async def access(pem: str = pem) -> Access:
            return Access(ca_pem=pem)

        with pytest.raises(SignalUnavailableError):
            await PrometheusApi(network, server.url, access).query("x")
    assert len(network._tls) == 8
