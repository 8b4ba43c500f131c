"""An API server that misbehaves on demand: it hangs, falls silent, forgets versions, and breaks off."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

Document = dict[str, Any]


class Misbehaving:
    """Lists one object of one collection, and does with watches what `watch` says."""

    def __init__(self) -> None:
        self.items: list[Document] = []
        self.hang = threading.Event()
        """While set, nothing is answered."""
        self.watch: Callable[[Misbehaving], Iterator[bytes]] = lambda _: iter(())
        """The pieces of each watch's answer."""
        self.requests: list[tuple[str, str]] = []
        self.ended = threading.Event()
        self.code = 200

    def lists(self) -> int:
        return sum(kind == "LIST" for kind, _ in self.requests)

    def watches(self) -> int:
        return sum(kind == "WATCH" for kind, _ in self.requests)

    def silence(self) -> Iterator[bytes]:
        """A connection that is open and says nothing."""
        while not self.ended.wait(0.02):
            yield b""

    @contextmanager
    def serving(self) -> Iterator[str]:
        served = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = parse_qs(urlsplit(self.path).query)
                served.requests.append(("WATCH" if "watch" in query else "LIST", self.path))
                while served.hang.is_set() and not served.ended.is_set():
                    time.sleep(0.01)
                if "watch" in query and served.code == 200:
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    for piece in served.watch(served):
                        if piece:
                            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    self.wfile.write(b"0\r\n\r\n")
                else:
                    self._answer({"metadata": {"resourceVersion": "7"}, "items": served.items})

            def do_PATCH(self) -> None:
                length = int(self.headers["Content-Length"])
                served.requests.append(("PATCH", self.rfile.read(length).decode()))
                while served.hang.is_set() and not served.ended.is_set():
                    time.sleep(0.01)
                self._answer({"metadata": {"name": "n1", "resourceVersion": "8"}})

            def _answer(self, document: Document) -> None:
                body = json.dumps(document).encode()
                self.send_response(served.code)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, client_address: object) -> None:
                pass  # clients that hang up are what is tested

        server = Server(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            self.ended.set()
            server.shutdown()
            server.server_close()
            thread.join()


def line(kind: str, **document: Any) -> bytes:
    """An event of a watch."""
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"
