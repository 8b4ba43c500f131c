"""Messages to and from the gateway."""

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.interface import MAX_CHUNK_BYTES


def parse(raw: bytes) -> pb.ProcessingResponse:
    return pb.ProcessingResponse.FromString(raw)


@given(st.integers(0, 3 * MAX_CHUNK_BYTES + 7), st.booleans())
def test_request_chunks_carry_the_whole_body_and_one_end(size: int, ends: bool) -> None:
    body = bytes(size)
    pieces = [
        parse(raw).request_body.response.body_mutation.streamed_response for raw in wire.request_chunks(body, ends)
    ]
    assert b"".join(piece.body for piece in pieces) == body
    assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [ends]
    assert len(pieces) == max(1, -(-size // MAX_CHUNK_BYTES))


@given(st.integers(0, 3 * MAX_CHUNK_BYTES + 7), st.booleans())
def test_response_chunks_carry_the_whole_piece_and_at_most_one_end(size: int, ends: bool) -> None:
    body = bytes(size)
    pieces = [
        parse(raw).response_body.response.body_mutation.streamed_response for raw in wire.response_chunks(body, ends)
    ]
    assert b"".join(piece.body for piece in pieces) == body
    assert [piece.end_of_stream for piece in pieces] == [False] * (len(pieces) - 1) + [ends]


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        (wire.REQUEST_HEADERS_CONTINUE, "request_headers"),
        (wire.REQUEST_BODY_CONTINUE, "request_body"),
        (wire.REQUEST_TRAILERS_CONTINUE, "request_trailers"),
        (wire.RESPONSE_HEADERS_CONTINUE, "response_headers"),
        (wire.RESPONSE_BODY_CONTINUE, "response_body"),
        (wire.RESPONSE_TRAILERS_CONTINUE, "response_trailers"),
    ],
)
def test_constant_replies_change_nothing(raw: bytes, field: str) -> None:
    reply = parse(raw)
    assert reply.WhichOneof("response") == field
    assert getattr(reply, field).ByteSize() == 0


def test_the_destination_wins_over_what_a_decider_adds_to_its_namespace() -> None:
    merged = wire.destination_metadata(
        "10.0.0.1:80", {"envoy.lb": {"x-gateway-destination-endpoint": "other", "scores": 1}, "mine": {"a": "b"}}
    )
    assert merged == {"envoy.lb": {"x-gateway-destination-endpoint": "10.0.0.1:80", "scores": 1}, "mine": {"a": "b"}}


def test_without_a_destination_only_the_deciders_metadata_is_sent() -> None:
    assert wire.destination_metadata(None, None) == {}
    assert wire.destination_metadata(None, {"mine": {"a": "b"}}) == {"mine": {"a": "b"}}


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_malformed(raw: bytes) -> None:
    try:
        message = wire.decode(raw)
    except wire.MalformedMessageError:
        return
    assert isinstance(message, pb.ProcessingRequest)


values = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(max_size=5), st.dictionaries(st.text(max_size=5), values, max_size=3), max_size=3))
def test_metadata_survives_both_directions(metadata: dict[str, dict[str, object]]) -> None:
    message = pb.ProcessingRequest()
    for namespace, fields in metadata.items():
        message.metadata_context.filter_metadata[namespace].update(fields)
    assert wire.filter_metadata(message) == metadata
    reply = parse(wire.routed_reply("request_headers", wire.common_response((), (), True), metadata, None))
    for namespace, fields in metadata.items():
        back = pb.ProcessingRequest()
        back.metadata_context.filter_metadata[namespace].CopyFrom(reply.dynamic_metadata.fields[namespace].struct_value)
        assert wire.filter_metadata(back)[namespace] == fields


def test_without_a_protocol_config_the_mode_is_full_duplex() -> None:
    assert wire.modes(pb.ProcessingRequest()) == wire.Modes(wire.FULL_DUPLEX_STREAMED, wire.FULL_DUPLEX_STREAMED)
    message = pb.ProcessingRequest()
    message.protocol_config.request_body_mode = wire.BUFFERED
    assert wire.modes(message) == wire.Modes(wire.BUFFERED, wire.NONE)
