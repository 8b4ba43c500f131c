import http.client
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from heliotrope_agent.telemetry.server import MetricsServer


@pytest.fixture
def serve() -> Iterator[Callable[..., MetricsServer]]:
    started: list[MetricsServer] = []

    def start(*, host: str = "127.0.0.1", healthy: str | None = None, **settings: float) -> MetricsServer:
        pages = {"/metrics": lambda: b"x 1\n", "/broken": lambda: bytes(1 // int(not settings))}
        server = MetricsServer(host, 0, pages, lambda: healthy, **settings)  # type: ignore[arg-type]
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def get(server: MetricsServer, path: str, host: str = "127.0.0.1") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, server.port, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed it."""
    connection.settimeout(10)
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_pages_and_liveness(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    assert get(server, "/metrics") == (200, b"x 1\n")
    assert get(server, "/metrics?name=y") == (200, b"x 1\n")
    assert get(server, "/healthz") == (200, b"ok\n")
    assert get(server, "/") == (404, b"try /metrics, /broken, /healthz\n")
    assert get(serve(healthy="no GPU was sampled yet"), "/healthz") == (503, b"no GPU was sampled yet\n")


def test_a_connection_is_kept(serve: Callable[..., MetricsServer]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serve().port, timeout=10)
    for _ in range(3):
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        assert response.read() == b"x 1\n"
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert connection.sock is not None
    connection.close()


def test_both_families_of_addresses(serve: Callable[..., MetricsServer]) -> None:
    try:
        server = serve(host="::")
    except OSError:
        pytest.skip("no IPv6 here")
    assert get(server, "/metrics", "::1")[0] == get(server, "/metrics", "127.0.0.1")[0] == 200


def test_only_reading(serve: Callable[..., MetricsServer]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", serve().port, timeout=10)
    connection.request("POST", "/metrics", b"x" * 1000)
    assert connection.getresponse().status == 501
    connection.close()


def test_a_body_is_not_taken_for_a_request(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        hidden = b"GET /broken HTTP/1.1\r\nHost: x\r\n\r\n"
        sock.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(hidden) + hidden)
        sock.settimeout(10)
        answer = b""
        try:
            while piece := sock.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    assert answer.count(b"HTTP/1.1 ") == 1


def test_too_many_connections_close_the_one_unused_for_longest(serve: Callable[..., MetricsServer]) -> None:
    server = serve(max_connections=3)
    lazy = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    kept.request("GET", "/metrics")
    assert kept.getresponse().read() == b"x 1\n"
    for _ in range(2):
        assert get(server, "/metrics") == (200, b"x 1\n")
        # A busy server may not have seen yet that this connection has ended, and it was used later than ours.
        kept.request("GET", "/metrics")
        assert kept.getresponse().read() == b"x 1\n"
    more = socket.create_connection(("127.0.0.1", server.port))
    assert ended(lazy[0])
    kept.request("GET", "/metrics")
    assert kept.getresponse().read() == b"x 1\n"
    for each in (*lazy, more):
        each.close()
    kept.close()


def test_one_on_which_nothing_comes_is_closed(serve: Callable[..., MetricsServer]) -> None:
    server = serve(idle_s=0.2)
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        silent.sendall(b"GET /metr")
        started_s = time.monotonic()
        assert ended(silent)
        assert time.monotonic() - started_s < 9


def test_a_page_that_cannot_be_made_is_told_and_ends_nothing(
    serve: Callable[..., MetricsServer], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(max_connections=8)
    with pytest.raises((http.client.HTTPException, OSError)):
        get(server, "/broken")
    assert get(server, "/metrics")[0] == 200
    assert "a page could not be made" in caplog.text


def test_stopping_frees_the_port(serve: Callable[..., MetricsServer]) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as waiting:
        port = server.port
        time.sleep(0.05)
        server.stop()
        assert ended(waiting)
    again = MetricsServer("127.0.0.1", port, {}, lambda: None)
    again.start()
    again.stop()
