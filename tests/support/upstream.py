"""A real HTTP server for tests of clients: a function answers, every request is kept, and it can misbehave."""

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request as it came."""

    path: str
    query: dict[str, list[str]]
    headers: Mapping[str, str]
    """Names in lower case."""

    def one(self, name: str) -> str | None:
        values = self.query.get(name)
        return None if values is None else values[0]


@dataclass(frozen=True)
class Reply:
    """An answer, or a way of failing to give one."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    hang: bool = False
    """Sends half of the body and then nothing until the server closes."""
    cut: bool = False
    """Closes the connection after half of the body."""


def of_json(document: Any, status: int = 200, **headers: str) -> Reply:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps(document).encode(), {"Content-Type": "application/json"} | names)


class Upstream:
    """The server; `answer` may be exchanged at any time."""

    def __init__(self, answer: Callable[[Asked], Reply], tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.port = self._server.server_address[1]
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextlib.contextmanager
def upstream(answer: Callable[[Asked], Reply], tls: ssl.SSLContext | None = None) -> Iterator[Upstream]:
    server = Upstream(answer, tls)
    try:
        yield server
    finally:
        server.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are what some tests are about."""


def _handler(server: Upstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(parts.path, parse_qs(parts.query, keep_blank_values=True), headers)
            server.asked.append(asked)
            reply = server.answer(asked)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if reply.hang or reply.cut:
                self.wfile.write(reply.body[: len(reply.body) // 2])
                self.close_connection = True
                if reply.hang:
                    server.closing.wait()
                return
            self.wfile.write(reply.body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
            """Tests look at `asked`."""

    return Handler
