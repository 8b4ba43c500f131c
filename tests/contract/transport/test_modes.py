"""Gateways that send bodies in another way than full duplex (raw gRPC)."""

import grpc
import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import POST, Mode, destination, set_headers
from tests.contract.transport.recorder import ENDPOINT, Recorder

from heliotrope_epp.transport.interface import Request


@pytest.mark.parametrize("mode", [Mode.BUFFERED, Mode.BUFFERED_PARTIAL])
async def test_buffered_headers_go_on_at_once_and_the_body_brings_the_decision(serve: Serve, mode: int) -> None:
    bodies: list[bytes] = []
    recorder = Recorder(lambda request: (bodies.append(request.body), recorder.route(request)))
    running = await serve(recorder)
    stream = running.client.open(request_mode=mode, response_mode=Mode.BUFFERED)
    await stream.request_headers()
    reply = await stream.read()
    assert reply.WhichOneof("response") == "request_headers"
    assert not reply.request_headers.response.header_mutation.set_headers
    await stream.request_body(b'{"model": "m"}', end=True)
    reply = await stream.read()
    assert set_headers(reply, "request_body") == {"x-gateway-destination-endpoint": ENDPOINT}
    assert destination(reply) == ENDPOINT
    assert reply.request_body.response.clear_route_cache
    assert not reply.request_body.response.HasField("body_mutation")
    assert bodies == [b'{"model": "m"}']
    await stream.response_headers()
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    await stream.response_body(b"text", end=True)
    reply = await stream.read()
    assert reply.WhichOneof("response") == "response_body"
    assert not reply.response_body.response.HasField("body_mutation")
    assert await stream.read() is None
    report = await recorder.report()
    assert (report.chunks, report.tail, report.complete) == (1, b"text", True)


async def test_a_buffered_body_is_replaced_in_one_message(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, body=b"other", ctx=1)))
    stream = running.client.open(request_mode=Mode.BUFFERED)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"original", end=True)
    reply = await stream.read()
    assert reply.request_body.response.body_mutation.body == b"other"
    assert set_headers(reply, "request_body")["content-length"] == "5"
    await stream.respond()


async def test_a_replaced_buffered_body_before_trailers_has_no_length(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, body=b"other", ctx=1)))
    stream = running.client.open(request_mode=Mode.BUFFERED)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"original")
    assert "content-length" not in set_headers(await stream.read(), "request_body")
    await stream.respond()


async def test_a_buffered_body_before_trailers_is_decided_and_the_trailers_answered(running: Running) -> None:
    stream = running.client.open(request_mode=Mode.BUFFERED)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"abc")
    assert destination(await stream.read()) == ENDPOINT
    await stream.request_trailers()
    assert (await stream.read()).WhichOneof("response") == "request_trailers"
    await stream.respond()


async def test_a_body_that_the_gateway_cut_off_is_too_large(running: Running) -> None:
    stream = running.client.open(request_mode=Mode.BUFFERED_PARTIAL)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"the beginning")
    assert (await stream.read()).immediate_response.status.code == 413
    assert running.recorder.requests == []


async def test_a_rejected_buffered_request(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.reject(429, b"later")))
    stream = running.client.open(request_mode=Mode.BUFFERED)
    await stream.request_headers()
    await stream.read()
    await stream.request_body(b"{}", end=True)
    assert (await stream.read()).immediate_response.status.code == 429
    assert await stream.read() is None


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.STREAMED])
async def test_unseen_bodies_leave_the_decision_to_the_headers(running: Running, mode: int) -> None:
    stream = running.client.open(request_mode=mode)
    await stream.request_headers()
    assert destination(await stream.read()) == ENDPOINT
    if mode == Mode.STREAMED:
        for end in (False, True):
            await stream.request_body(b"abc", end=end)
            reply = await stream.read()
            assert reply.WhichOneof("response") == "request_body"
            assert not reply.request_body.response.HasField("body_mutation")
    (request,) = running.recorder.requests
    assert request.body == b""
    await stream.respond()


async def test_an_unseen_body_cannot_be_replaced(serve: Serve) -> None:
    errors: list[str] = []

    def answer(request: Request) -> None:
        with pytest.raises(ValueError, match="body") as caught:
            request.route(ENDPOINT, body=b"other", ctx=1)
        errors.append(str(caught.value))
        assert request.route(ENDPOINT, ctx=1)

    running = await serve(Recorder(answer))
    stream = running.client.open(request_mode=Mode.NONE)
    await stream.request_headers()
    assert destination(await stream.read()) == ENDPOINT
    assert errors
    await stream.respond()


async def test_streamed_responses_pass_unchanged(running: Running) -> None:
    stream = running.client.open(response_mode=Mode.STREAMED)
    await stream.post()
    await stream.response_headers()
    await stream.read()
    for end in (False, True):
        await stream.response_body(b"abc", end=end)
        reply = await stream.read()
        assert reply.WhichOneof("response") == "response_body"
        assert not reply.response_body.response.HasField("body_mutation")
    assert await stream.read() is None
    report = await running.recorder.report()
    assert (report.chunks, report.body_bytes, report.complete) == (2, 6, True)


async def test_without_response_bodies_the_headers_end_it(running: Running) -> None:
    stream = running.client.open(response_mode=Mode.NONE)
    await stream.post()
    await stream.response_headers()
    assert (await stream.read()).WhichOneof("response") == "response_headers"
    assert await stream.read() is None
    report = await running.recorder.report()
    assert (report.status, report.chunks, report.complete) == (200, 0, True)


@pytest.mark.parametrize("modes", [{"request_mode": Mode.GRPC}, {"response_mode": Mode.GRPC}])
async def test_grpc_bodies_are_refused(running: Running, modes: dict[str, int]) -> None:
    stream = running.client.open(**modes)
    await stream.request_headers(POST)
    assert await stream.failure() == grpc.StatusCode.INVALID_ARGUMENT
    assert running.recorder.requests == []
