"""The standard gRPC health service, answering for the names that gateways, kubelets and llm-d's chart ask for."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

SERVICE = "grpc.health.v1.Health"
LIVENESS = "liveness"
READINESS = (
    "",
    "readiness",
    "inference-extension",
    "envoy.service.ext_proc.v3.ExternalProcessor",
)

_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
_UNKNOWN = health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Health:
    """Liveness holds as long as the loop turns; readiness is what `set_serving` says."""

    def __init__(self) -> None:
        self._serving = False
        self._closed = False
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """What readiness answers from now on."""
        self._serving = serving
        self._announce()

    def close(self) -> None:
        """Readiness is over for good; watchers are told and their streams end."""
        self._serving = False
        self._closed = True
        self._announce()

    def _announce(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _status(self, name: str) -> Any:
        if name == LIVENESS:
            return _SERVING
        if name in READINESS:
            return _SERVING if self._serving else _NOT_SERVING
        return None

    async def check(self, request: Any, context: Any) -> Any:
        """`Check`: NOT_FOUND for an unknown name, as the protocol wants."""
        status = self._status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"unknown service {request.service!r}")
        return status

    async def watch(self, request: Any, context: Any) -> None:
        """`Watch`: the status now and at each change."""
        last: Any = None
        while True:
            # Taken before the write, during which either may change.
            changed, closed = self._changed, self._closed
            status = self._status(request.service) or _UNKNOWN
            if status is not last:
                await context.write(status)
                last = status
            if closed:
                return
            await changed.wait()

    def handler(self) -> Any:
        """To be added to a gRPC server."""
        codec = {
            "request_deserializer": health_pb2.HealthCheckRequest.FromString,
            "response_serializer": health_pb2.HealthCheckResponse.SerializeToString,
        }
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.unary_unary_rpc_method_handler(self.check, **codec),
                "Watch": grpc.unary_stream_rpc_method_handler(self.watch, **codec),
            },
        )
