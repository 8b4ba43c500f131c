"""Start, health, drain, shutdown and TLS (raw gRPC)."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.contract.transport.conftest import Running, Serve, ServerFactory
from tests.contract.transport.rawclient import GET, connected
from tests.contract.transport.recorder import ENDPOINT, Recorder, eventually

from heliotrope.errors import InvalidInputError
from heliotrope_epp.transport.certificates import self_signed
from heliotrope_epp.transport.interface import Cause, SelfSigned, Server, TlsFiles

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
READINESS = ("", "readiness", "inference-extension", "envoy.service.ext_proc.v3.ExternalProcessor")


async def check(channel: Any, name: str) -> Any:
    reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
    return reply.status


@pytest.fixture
async def server(implementation: ServerFactory) -> AsyncIterator[Server]:
    """A server that the test starts itself."""
    server = implementation(Recorder())
    yield server
    await server.shutdown(0.0)


@pytest.mark.parametrize("name", READINESS)
async def test_readiness_is_what_the_picker_says(running: Running, name: str) -> None:
    channel = running.client.channel
    assert await check(channel, name) == SERVING
    running.server.set_serving(False)
    assert await check(channel, name) == NOT_SERVING
    assert await check(channel, "liveness") == SERVING
    running.server.set_serving(True)
    assert await check(channel, name) == SERVING


async def test_a_server_starts_alive_and_not_ready(server: Server) -> None:
    bound = await server.start("127.0.0.1:0")
    async with connected(f"127.0.0.1:{bound.port}") as client:
        assert await check(client.channel, "liveness") == SERVING
        assert await check(client.channel, "readiness") == NOT_SERVING


async def test_an_unknown_name_is_not_found(running: Running) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await check(running.client.channel, "other")
    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def test_watch_tells_every_change(running: Running) -> None:
    stub = health_pb2_grpc.HealthStub(running.client.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service="readiness"))
    unknown = stub.Watch(health_pb2.HealthCheckRequest(service="other"))
    assert (await watch.read()).status == SERVING
    assert (await unknown.read()).status == UNKNOWN
    running.server.set_serving(False)
    assert (await watch.read()).status == NOT_SERVING
    running.server.set_serving(True)
    assert (await watch.read()).status == SERVING
    watch.cancel()
    unknown.cancel()


async def test_watchers_do_not_hold_up_the_shutdown(running: Running) -> None:
    stub = health_pb2_grpc.HealthStub(running.client.channel)
    watch = stub.Watch(health_pb2.HealthCheckRequest(service=""))
    await watch.read()
    last = asyncio.ensure_future(watch.read())
    began = time.monotonic()
    await running.server.shutdown(15.0)
    assert time.monotonic() - began < 10.0
    assert (await last).status == NOT_SERVING


async def test_health_has_its_own_port_if_asked_for(server: Server) -> None:
    bound = await server.start("127.0.0.1:0", tls=SelfSigned(), health_address="127.0.0.1:0")
    server.set_serving(True)
    async with connected(f"127.0.0.1:{bound.health_port}") as client:
        assert await check(client.channel, "readiness") == SERVING
        stream = client.open()
        assert await stream.failure() == grpc.StatusCode.UNIMPLEMENTED


async def test_draining_keeps_serving(running: Running) -> None:
    old = running.client.open()
    await old.post()
    drain = asyncio.ensure_future(running.server.drain(0.5))
    await asyncio.sleep(0.05)
    assert await check(running.client.channel, "readiness") == NOT_SERVING
    new = running.client.open()
    await new.post()
    await new.respond()
    assert not drain.done()
    await drain
    await old.respond()
    assert all(report.complete for report in running.recorder.reports.values())


async def test_shutdown_lets_requests_in_flight_end(running: Running) -> None:
    stream = running.client.open()
    await stream.post()
    shutdown = asyncio.ensure_future(running.server.shutdown(15.0))
    await asyncio.sleep(0.1)
    await stream.respond()
    began = time.monotonic()
    await shutdown
    assert time.monotonic() - began < 10.0
    assert (await running.recorder.report()).complete


async def test_a_client_that_leaves_during_the_grace_is_not_blamed_on_the_server(running: Running) -> None:
    stream = running.client.open()
    await stream.post()
    shutdown = asyncio.ensure_future(running.server.shutdown(15.0))
    await asyncio.sleep(0.1)
    stream.call.cancel()
    await shutdown
    assert (await running.recorder.report()).cause is Cause.DISCONNECTED


async def test_shutdown_refuses_new_streams(running: Running) -> None:
    stream = running.client.open()
    await stream.post()
    shutdown = asyncio.ensure_future(running.server.shutdown(15.0))
    await asyncio.sleep(0.2)
    async with connected(f"127.0.0.1:{running.port}") as client:
        late = client.open()
        assert await late.failure() == grpc.StatusCode.UNAVAILABLE
    await stream.respond()
    await shutdown


async def test_shutdown_cuts_what_does_not_end(serve: Serve) -> None:
    def answer(request: Any) -> None:
        if len(recorder.requests) == 1:
            request.route(ENDPOINT, ctx=1)

    recorder = Recorder(answer)
    running = await serve(recorder)
    routed, undecided, half = (running.client.open() for _ in range(3))
    await routed.post()
    await undecided.request_headers(GET, end=True)
    await recorder.request(2)
    await half.request_headers()
    await half.request_body(b"half")
    await eventually(lambda: running.server.stats().open_streams == 3)
    await running.server.shutdown(0.2)
    assert recorder.reports[1].cause is Cause.SHUTDOWN
    assert len(recorder.cancellations) == 1
    assert running.server.stats().open_streams == 0
    await running.server.shutdown(0.2)


async def test_an_address_in_use(running: Running, server: Server) -> None:
    with pytest.raises(OSError, match=str(running.port)):
        await server.start(f"127.0.0.1:{running.port}")


async def test_a_health_address_in_use(implementation: ServerFactory, server: Server) -> None:
    bound = await server.start("127.0.0.1:0", health_address="127.0.0.1:0")
    other = implementation(Recorder())
    with pytest.raises(OSError, match=str(bound.health_port)):
        await other.start("127.0.0.1:0", health_address=f"127.0.0.1:{bound.health_port}")
    await other.shutdown(0.0)


async def test_a_unix_socket(server: Server, tmp_path: Path) -> None:
    address = f"unix:{tmp_path / 'picker.sock'}"
    bound = await server.start(address)
    assert bound.port is None
    async with connected(address) as client:
        stream = client.open()
        await stream.post()
        await stream.respond()


def write_pair(folder: Path, name: str) -> tuple[TlsFiles, bytes]:
    pair = self_signed(SelfSigned(("localhost", name)))
    files = TlsFiles(folder / "tls.crt", folder / "tls.key")
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)
    return files, pair.certificate


async def exchange(port: int | None, root: bytes) -> None:
    credentials = grpc.ssl_channel_credentials(root)
    async with connected(f"localhost:{port}", credentials) as client:
        stream = client.open()
        await stream.post()
        await stream.respond()


async def test_tls_from_files_that_change(server: Server, tmp_path: Path) -> None:
    files, first = write_pair(tmp_path, "first.example")
    bound = await server.start("localhost:0", tls=files)
    await exchange(bound.port, first)
    _, second = write_pair(tmp_path, "second.example")
    await exchange(bound.port, second)
    files.key.write_bytes(b"rotten")
    await exchange(bound.port, second)


async def test_a_self_signed_certificate(server: Server) -> None:
    bound = await server.start("127.0.0.1:0", tls=SelfSigned(("localhost", "127.0.0.1")))
    assert bound.port is not None
    presented = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", bound.port))
    certificate = x509.load_pem_x509_certificate(presented.encode())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    await exchange(bound.port, presented.encode())


async def test_certificates_that_cannot_be_read(server: Server, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nowhere"):
        await server.start("127.0.0.1:0", tls=TlsFiles(tmp_path / "nowhere.crt", tmp_path / "nowhere.key"))


async def test_plaintext_is_refused_on_a_tls_port(server: Server) -> None:
    bound = await server.start("127.0.0.1:0", tls=SelfSigned())
    async with connected(f"127.0.0.1:{bound.port}") as client:
        stream = client.open()
        assert await stream.failure() == grpc.StatusCode.UNAVAILABLE
