"""What the relay counts and keeps of a response."""

from itertools import count

import pytest
from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.transport.aio import wire
from heliotrope_epp.transport.aio.response import ResponseRelay

FULL_DUPLEX = wire.Modes(wire.FULL_DUPLEX_STREAMED, wire.FULL_DUPLEX_STREAMED)
STREAMED = wire.Modes(wire.STREAMED, wire.STREAMED)


def body(piece: bytes, end: bool = False) -> pb.ProcessingRequest:
    return pb.ProcessingRequest(response_body=pb.HttpBody(body=piece, end_of_stream=end))


@given(st.lists(st.binary(max_size=40), max_size=30), st.integers(0, 50))
def test_the_tail_is_the_end_of_all_pieces(pieces: list[bytes], limit: int) -> None:
    relay = ResponseRelay(STREAMED, iter(count()).__next__, tail_limit=limit)
    for piece in pieces:
        relay.handle(body(piece))
    whole = b"".join(pieces)
    assert relay.tail() == (whole[-limit:] if limit else b"")
    assert relay.body_bytes == len(whole)
    assert relay.chunks == sum(bool(piece) for piece in pieces)


def test_empty_pieces_are_no_progress() -> None:
    relay = ResponseRelay(FULL_DUPLEX, iter(count(5)).__next__, tail_limit=10)
    relay.handle(body(b""))
    assert (relay.first_s, relay.last_s, relay.chunks) == (None, None, 0)
    relay.handle(body(b"a"))
    relay.handle(body(b""))
    relay.handle(body(b"b"))
    assert (relay.first_s, relay.last_s, relay.chunks) == (5, 6, 2)


@pytest.mark.parametrize("status", ["", "abc", "-1", "²"])
def test_a_status_that_is_no_number_is_unknown(status: str) -> None:
    message = pb.ProcessingRequest()
    message.response_headers.headers.headers.add(key=":status", raw_value=status.encode())
    relay = ResponseRelay(FULL_DUPLEX, float)
    relay.handle(message)
    assert relay.status is None


def test_request_headers_have_no_place_here() -> None:
    message = pb.ProcessingRequest()
    message.request_headers.SetInParent()
    with pytest.raises(wire.MalformedMessageError, match="request_headers"):
        ResponseRelay(FULL_DUPLEX, float).handle(message)
    with pytest.raises(wire.MalformedMessageError):
        ResponseRelay(FULL_DUPLEX, float).handle(pb.ProcessingRequest())
