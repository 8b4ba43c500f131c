"""A small HTTP server for pages and liveness. Plain HTTP: it shows names and numbers, and takes nothing in."""

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_log = logging.getLogger(__name__)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MAX_CONNECTIONS = 32
IDLE_S = 30.0
"""A connection on which nothing comes for so long is closed."""


class MetricsServer:
    """Serves `pages` by path, and `/healthz`.

    Connections are kept and bounded: when there are too many, the one that was used longest ago makes room.
    """

    def __init__(
        self,
        host: str,
        port: int,
        pages: Mapping[str, Callable[[], bytes]],
        healthy: Callable[[], str | None],
        *,
        max_connections: int = MAX_CONNECTIONS,
        idle_s: float = IDLE_S,
    ) -> None:
        """Nothing is opened or read before `start`.

        Args:
            host: address to listen on; `::` takes IPv4 too.
            port: 0: chosen by the system.
            pages: by path.
            healthy: None, or the reason why not.
            max_connections: how many are open at once.
            idle_s: after how long without a request a connection is closed.
        """
        self._address = host, port
        self._pages = dict(pages)
        self._healthy = healthy
        self._max_connections = max_connections
        self._idle_s = idle_s
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        return self._address[1] if self._server is None else int(self._server.server_address[1])

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: if the address cannot be bound.
        """
        self._server = _Server(self._address, self._answer, self._idle_s, self._max_connections)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.5}, name="metrics", daemon=True
        )
        self._thread.start()

    def _answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        """Status and body."""
        if path == "/healthz":
            reason = self._healthy()
            return (HTTPStatus.OK, b"ok\n") if reason is None else (_UNAVAILABLE, f"{reason}\n".encode())
        if path not in self._pages:
            return HTTPStatus.NOT_FOUND, f"try {', '.join((*self._pages, '/healthz'))}\n".encode()
        return HTTPStatus.OK, self._pages[path]()

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server.close_connections()
            self._server = self._thread = None


_UNAVAILABLE = HTTPStatus.SERVICE_UNAVAILABLE


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        answer: Callable[[str], tuple[HTTPStatus, bytes]],
        idle_s: float,
        max_connections: int,
    ) -> None:
        self.answer = answer
        self.idle_s = idle_s
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._max_connections = max_connections
        self._connections: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer's own would look the host's name up.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            while len(self._connections) >= self._max_connections:
                _end(self._connections, min(self._connections, key=self._connections.__getitem__))
            self._connections[request] = time.monotonic()
        super().process_request(request, client_address)

    def used(self, connection: socket.socket) -> None:
        """A whole request has come on it."""
        with self._lock:
            if connection in self._connections:
                self._connections[connection] = time.monotonic()

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        if isinstance(sys.exc_info()[1], OSError):
            _log.debug("a connection from %s ended early", client_address[0], exc_info=True)
        else:
            _log.exception("a page could not be made")

    def close_connections(self) -> None:
        """Close all that are open."""
        with self._lock:
            for connection in tuple(self._connections):
                _end(self._connections, connection)


def _end(connections: dict[socket.socket, float], connection: socket.socket) -> None:
    """Wake the thread that waits on it; that closes it."""
    del connections[connection]
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        _log.debug("a connection had ended already")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "heliotrope-agent"
    sys_version = ""
    # Head and body leave together, and at once.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.connection.settimeout(self.server.idle_s)

    def do_GET(self) -> None:
        self.server.used(self.connection)
        if self.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in self.headers:
            # A body would be read as the next request.
            self.close_connection = True
        status, body = self.server.answer(self.path.partition("?")[0])
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        _log.debug(format, *args)
