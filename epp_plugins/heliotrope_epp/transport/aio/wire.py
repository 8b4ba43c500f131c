"""The `ext_proc` messages, read and written. Nothing else here knows protobuf.

Replies are encoded at once into bytes; those that never differ are encoded once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.filters.http.ext_proc.v3 import processing_mode_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from google.protobuf import struct_pb2
from google.protobuf.message import DecodeError

from heliotrope_epp.transport.interface import DESTINATION_HEADER, MAX_CHUNK_BYTES, Headers

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
METHOD = "Process"
LB_NAMESPACE = "envoy.lb"

NONE = processing_mode_pb2.ProcessingMode.NONE
STREAMED = processing_mode_pb2.ProcessingMode.STREAMED
BUFFERED = processing_mode_pb2.ProcessingMode.BUFFERED
BUFFERED_PARTIAL = processing_mode_pb2.ProcessingMode.BUFFERED_PARTIAL
GRPC = processing_mode_pb2.ProcessingMode.GRPC
FULL_DUPLEX_STREAMED = processing_mode_pb2.ProcessingMode.FULL_DUPLEX_STREAMED

_OVERWRITE = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD


class MalformedMessageError(Exception):
    """Bytes from the gateway that are no `ProcessingRequest`, or one at the wrong time."""


@dataclass(frozen=True, slots=True)
class Modes:
    """How this gateway sends bodies (values of `ProcessingMode.BodySendMode`)."""

    request: int = FULL_DUPLEX_STREAMED
    response: int = FULL_DUPLEX_STREAMED


_FULL_DUPLEX = Modes()


def decode(raw: bytes) -> Any:
    """A `ProcessingRequest`.

    Raises:
        MalformedMessageError: if it is none.
    """
    try:
        return pb.ProcessingRequest.FromString(raw)
    except DecodeError as error:
        raise MalformedMessageError(f"not a ProcessingRequest: {error}") from error


def modes(message: Any) -> Modes:
    """The body modes that the first message of a stream announces; full duplex if it announces none."""
    if not message.HasField("protocol_config"):
        return _FULL_DUPLEX
    config = message.protocol_config
    return Modes(config.request_body_mode, config.response_body_mode)


def header_pairs(message: Any) -> Iterator[tuple[str, str]]:
    """Names in lower case and values of an `HttpHeaders`, in order."""
    for header in message.headers.headers:
        raw = header.raw_value
        yield header.key.lower(), raw.decode("utf-8", "replace") if raw else header.value


def filter_metadata(message: Any) -> dict[str, dict[str, Any]]:
    """The `filter_metadata` of a message as plain values."""
    return {name: _struct(fields) for name, fields in message.metadata_context.filter_metadata.items()}


def common_response(
    set_headers: Iterable[tuple[str, str]], remove_headers: Iterable[str], clear_route_cache: bool
) -> Any:
    """The part that header and buffered-body replies share.

    Raises:
        TypeError, ValueError: if a header is no text.
    """
    common = pb.CommonResponse(clear_route_cache=clear_route_cache)
    mutation = common.header_mutation
    _set_headers(mutation, set_headers)
    mutation.remove_headers.extend(remove_headers)
    return common


def routed_reply(field: str, common: Any, metadata: Mapping[str, Mapping[str, Any]], body: bytes | None) -> bytes:
    """The reply that carries a decision.

    Args:
        field: `request_headers` or, where the body came in one message, `request_body`.
        common: of `common_response`.
        metadata: dynamic metadata by namespace.
        body: a replacement for a body that came in one message.
    """
    reply = pb.ProcessingResponse()
    part = getattr(reply, field).response
    part.CopyFrom(common)
    if body is not None:
        part.body_mutation.body = body
    for namespace, fields in metadata.items():
        _fill(reply.dynamic_metadata.fields[namespace].struct_value, fields)
    return reply.SerializeToString()  # type: ignore[no-any-return]


def immediate_reply(status: int, body: bytes, headers: Headers) -> bytes:
    """The reply that answers the client without an engine."""
    reply = pb.ProcessingResponse()
    immediate = reply.immediate_response
    immediate.status.code = status
    immediate.body = body
    _set_headers(immediate.headers, headers)
    return reply.SerializeToString()  # type: ignore[no-any-return]


def request_chunks(body: bytes, ends: bool) -> Iterator[bytes]:
    """Full-duplex replies that send a body on; an empty one is one empty piece.

    Args:
        body: the whole body.
        ends: whether the last piece ends the request (it does not where trailers follow).
    """
    if len(body) <= MAX_CHUNK_BYTES:
        yield _streamed("request_body", body, ends)
        return
    view = memoryview(body)
    for start in range(0, len(body), MAX_CHUNK_BYTES):
        piece = bytes(view[start : start + MAX_CHUNK_BYTES])
        yield _streamed("request_body", piece, ends and start + MAX_CHUNK_BYTES >= len(body))


def response_chunks(body: bytes, ends: bool) -> Sequence[bytes]:
    """Full-duplex replies that pass one piece of the response on; almost always one."""
    if len(body) <= MAX_CHUNK_BYTES:
        return (_streamed("response_body", body, ends),)
    pieces = [body[start : start + MAX_CHUNK_BYTES] for start in range(0, len(body), MAX_CHUNK_BYTES)]
    last = len(pieces) - 1
    return [_streamed("response_body", piece, ends and index == last) for index, piece in enumerate(pieces)]


def response_headers_reply(headers: Headers) -> bytes:
    """The reply to response headers that sets some of them."""
    if not headers:
        return RESPONSE_HEADERS_CONTINUE
    return routed_reply("response_headers", common_response(headers, (), clear_route_cache=False), {}, None)


def destination_metadata(
    endpoint: str | None, extra: Mapping[str, Mapping[str, Any]] | None
) -> Mapping[str, Mapping[str, Any]]:
    """Dynamic metadata of a decision: the destination, and what the decider adds."""
    own = {} if endpoint is None else {LB_NAMESPACE: {DESTINATION_HEADER: endpoint}}
    if not extra:
        return own
    return {name: {**extra.get(name, {}), **own.get(name, {})} for name in (*own, *(n for n in extra if n not in own))}


def _constant(field: str) -> bytes:
    reply = pb.ProcessingResponse()
    getattr(reply, field).SetInParent()
    return reply.SerializeToString()  # type: ignore[no-any-return]


REQUEST_HEADERS_CONTINUE = _constant("request_headers")
REQUEST_BODY_CONTINUE = _constant("request_body")
REQUEST_TRAILERS_CONTINUE = _constant("request_trailers")
RESPONSE_HEADERS_CONTINUE = _constant("response_headers")
RESPONSE_BODY_CONTINUE = _constant("response_body")
RESPONSE_TRAILERS_CONTINUE = _constant("response_trailers")


def _streamed(field: str, body: bytes, ends: bool) -> bytes:
    reply = pb.ProcessingResponse()
    streamed = getattr(reply, field).response.body_mutation.streamed_response
    streamed.body = body
    streamed.end_of_stream = ends
    return reply.SerializeToString()  # type: ignore[no-any-return]


def _set_headers(mutation: Any, headers: Iterable[tuple[str, str]]) -> None:
    for name, value in headers:
        option = mutation.set_headers.add(append_action=_OVERWRITE)
        option.header.key = name
        option.header.raw_value = value.encode()


def _struct(struct: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in struct.fields.items()}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _struct(value.struct_value)
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    return None if kind in ("null_value", None) else getattr(value, kind)


def _fill(struct: struct_pb2.Struct, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        if isinstance(value, str):
            struct.fields[name].string_value = value
        else:
            struct[name] = value
