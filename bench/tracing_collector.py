"""A process that takes every span over gRPC and forgets it, for bench/tracing.py."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any

import grpc


class _TakesEverything(grpc.GenericRpcHandler):  # type: ignore[misc]
    def service(self, call: Any) -> Any:  # noqa: ARG002 - every method is answered alike
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


def serve(pipe: Connection) -> None:
    """Tell the URL, then serve until the other end closes."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((_TakesEverything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    pipe.send(f"http://127.0.0.1:{port}")
    pipe.poll(None)
    server.stop(0).wait()
