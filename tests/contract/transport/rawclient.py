"""A gateway's side of an `ext_proc` stream, message by message, on grpc.aio and the published stubs."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import grpc
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
TIMEOUT_SECONDS = 20.0
Mode = processing_mode_pb2.ProcessingMode

POST = (
    (":method", "POST"),
    (":path", "/v1/chat/completions"),
    (":authority", "gateway"),
    (":scheme", "http"),
    ("content-type", "application/json"),
    ("x-request-id", "req-1"),
)
GET = ((":method", "GET"), (":path", "/v1/models"), (":authority", "gateway"), (":scheme", "http"))
OK = ((":status", "200"), ("content-type", "application/json"))


Pairs = Iterable[tuple[str, str | bytes]]


def header_map(pairs: Pairs, *, raw: bool = True) -> Any:
    headers = pb.HttpHeaders()
    for name, value in pairs:
        entry = headers.headers.headers.add(key=name)
        if raw:
            entry.raw_value = value if isinstance(value, bytes) else value.encode()
        else:
            entry.value = value
    return headers


class Stream:
    """One `Process` call. The first message carries the modes, as Envoy's does."""

    def __init__(
        self, call: Any, request_mode: int = Mode.FULL_DUPLEX_STREAMED, response_mode: int = Mode.FULL_DUPLEX_STREAMED
    ) -> None:
        self.call = call
        self._modes = (request_mode, response_mode)
        self._first = True

    async def send(self, message: Any) -> None:
        if self._first:
            self._first = False
            message.protocol_config.request_body_mode, message.protocol_config.response_body_mode = self._modes
        await asyncio.wait_for(self.call.write(message), TIMEOUT_SECONDS)

    async def read(self) -> Any:
        """The next reply; None at the end of the stream."""
        reply = await asyncio.wait_for(self.call.read(), TIMEOUT_SECONDS)
        return None if reply is grpc.aio.EOF else reply

    async def failure(self) -> Any:
        """The status code of a stream that fails without a further reply."""
        code = await asyncio.wait_for(self.call.code(), TIMEOUT_SECONDS)
        assert code != grpc.StatusCode.OK
        return code

    async def nothing(self, seconds: float = 0.15) -> None:
        """Asserts that no reply comes for a while. The stream can only be cancelled afterwards."""
        read = asyncio.ensure_future(self.call.read())
        done, _ = await asyncio.wait({read}, timeout=seconds)
        assert not done, f"unexpected reply: {read.result()}"
        self.pending = read

    async def request_headers(
        self, pairs: Pairs = POST, *, end: bool = False, raw: bool = True, metadata: Any = None
    ) -> None:
        headers = header_map(pairs, raw=raw)
        headers.end_of_stream = end
        message = pb.ProcessingRequest(request_headers=headers)
        for namespace, fields in (metadata or {}).items():
            message.metadata_context.filter_metadata[namespace].update(fields)
        await self.send(message)

    async def request_body(self, body: bytes, *, end: bool = False) -> None:
        await self.send(pb.ProcessingRequest(request_body=pb.HttpBody(body=body, end_of_stream=end)))

    async def request_trailers(self) -> None:
        await self.send(pb.ProcessingRequest(request_trailers=pb.HttpTrailers()))

    async def response_headers(self, pairs: Pairs = OK, *, end: bool = False, served: str | None = None) -> None:
        headers = header_map(pairs)
        headers.end_of_stream = end
        message = pb.ProcessingRequest(response_headers=headers)
        if served is not None:
            message.metadata_context.filter_metadata["envoy.lb"].update(
                {"x-gateway-destination-endpoint-served": served}
            )
        await self.send(message)

    async def response_body(self, body: bytes, *, end: bool = False) -> None:
        await self.send(pb.ProcessingRequest(response_body=pb.HttpBody(body=body, end_of_stream=end)))

    async def response_trailers(self) -> None:
        await self.send(pb.ProcessingRequest(response_trailers=pb.HttpTrailers()))

    async def post(self, body: bytes = b"{}") -> tuple[Any, bytes]:
        """A whole request in full duplex; the reply to its headers and the body that goes to the engine."""
        await self.request_headers()
        await self.request_body(body, end=True)
        return await self.read_request_replies()

    async def read_request_replies(self) -> tuple[Any, bytes]:
        headers = await self.read()
        body = b""
        while True:
            piece = (await self.read()).request_body.response.body_mutation.streamed_response
            body += piece.body
            if piece.end_of_stream:
                return headers, body

    async def respond(self, body: bytes = b"ok") -> None:
        """A whole response, with every reply read up to the end of the stream."""
        await self.response_headers()
        assert (await self.read()).WhichOneof("response") == "response_headers"
        await self.response_body(body, end=True)
        piece = (await self.read()).response_body.response.body_mutation.streamed_response
        assert piece.body == body
        assert piece.end_of_stream
        assert await self.read() is None


def set_headers(reply: Any, field: str = "request_headers") -> dict[str, str]:
    mutation = getattr(reply, field).response.header_mutation
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}


def removed_headers(reply: Any, field: str = "request_headers") -> set[str]:
    return set(getattr(reply, field).response.header_mutation.remove_headers)


def destination(reply: Any) -> str:
    return str(reply.dynamic_metadata.fields["envoy.lb"].struct_value["x-gateway-destination-endpoint"])


class Client:
    """Opens streams on one connection, as Envoy does."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self._method = channel.stream_stream(
            METHOD,
            request_serializer=pb.ProcessingRequest.SerializeToString,
            response_deserializer=pb.ProcessingResponse.FromString,
        )
        self._raw = channel.stream_stream(METHOD)

    def open(self, *, call_headers: tuple[tuple[str, str | bytes], ...] = (), **modes: int) -> Stream:
        return Stream(self._method(metadata=call_headers), **modes)

    def open_raw(self) -> Any:
        """A call that carries bytes as they are."""
        return self._raw()


@asynccontextmanager
async def connected(target: str, credentials: Any = None) -> AsyncIterator[Client]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channel = (
        grpc.aio.insecure_channel(target, options=options)
        if credentials is None
        else grpc.aio.secure_channel(target, credentials, options=options)
    )
    try:
        yield Client(channel)
    finally:
        await channel.close()
