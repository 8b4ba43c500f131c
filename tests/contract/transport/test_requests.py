"""How a request reaches the decider, and what its answer makes of it (raw gRPC)."""

import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import GET, POST, Stream, destination, removed_headers, set_headers
from tests.contract.transport.recorder import ENDPOINT, Recorder

from heliotrope_epp.transport.interface import MAX_CHUNK_BYTES, ROUTING_HEADERS, Request


async def finish(running: Running, stream: Stream) -> None:
    await stream.respond()
    await running.settled()


async def test_headers_are_answered_only_when_the_body_has_ended(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b'{"model":')
    await stream.nothing()
    assert running.recorder.requests == []
    stream.call.cancel()


async def test_route_sets_header_and_metadata_and_sends_the_body_on(running: Running) -> None:
    stream = running.client.open()
    reply, body = await stream.post(b'{"model": "m"}')
    assert reply.request_headers.response.clear_route_cache
    assert set_headers(reply) == {"x-gateway-destination-endpoint": ENDPOINT}
    assert destination(reply) == ENDPOINT
    assert body == b'{"model": "m"}'
    (request,) = running.recorder.requests
    assert (request.method, request.path) == ("POST", "/v1/chat/completions")
    assert request.header("content-type") == "application/json"
    await finish(running, stream)


async def test_body_of_a_request_is_there_until_the_answer_and_freed_after(serve: Serve) -> None:
    bodies: list[bytes] = []

    def answer(request: Request) -> None:
        bodies.append(request.body)
        recorder.route(request)
        bodies.append(request.body)

    recorder = Recorder(answer)
    running = await serve(recorder)
    stream = running.client.open()
    await stream.post(b"text")
    assert bodies == [b"text", b""]
    await finish(running, stream)


@pytest.mark.parametrize("cut", range(1, 5))
async def test_body_split_inside_a_character_arrives_whole(serve: Serve, cut: int) -> None:
    text = "a😀".encode()
    bodies: list[bytes] = []
    recorder = Recorder(lambda request: (bodies.append(request.body), recorder.route(request)))
    running = await serve(recorder)
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(text[:cut])
    await stream.request_body(text[cut:], end=True)
    _, sent_on = await stream.read_request_replies()
    assert bodies == [text]
    assert sent_on == text
    await finish(running, stream)


async def test_an_empty_last_piece_ends_the_body(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"abc")
    await stream.request_body(b"", end=True)
    _, sent_on = await stream.read_request_replies()
    assert sent_on == b"abc"
    await finish(running, stream)


async def test_an_empty_body_is_one_empty_piece(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"", end=True)
    assert (await stream.read()).WhichOneof("response") == "request_headers"
    piece = (await stream.read()).request_body.response.body_mutation.streamed_response
    assert piece.body == b""
    assert piece.end_of_stream
    await finish(running, stream)


async def test_a_request_without_a_body_is_decided_at_its_headers(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers(GET, end=True)
    reply = await stream.read()
    assert destination(reply) == ENDPOINT
    (request,) = running.recorder.requests
    assert (request.method, request.path, request.body) == ("GET", "/v1/models", b"")
    await finish(running, stream)


async def test_a_body_that_ends_with_trailers_is_decided_and_the_trailers_answered(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"abc")
    await stream.request_trailers()
    assert destination(await stream.read()) == ENDPOINT
    piece = (await stream.read()).request_body.response.body_mutation.streamed_response
    assert piece.body == b"abc"
    assert not piece.end_of_stream
    assert (await stream.read()).WhichOneof("response") == "request_trailers"
    await finish(running, stream)


@pytest.mark.parametrize("size", [MAX_CHUNK_BYTES, MAX_CHUNK_BYTES + 1, 2 * MAX_CHUNK_BYTES, 10_000_000])
async def test_large_bodies_go_on_in_pieces_that_fit(running: Running, size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    stream = running.client.open()
    await stream.request_headers()
    for start in range(0, size, 64_000):
        await stream.request_body(body[start : start + 64_000], end=start + 64_000 >= size)
    assert destination(await stream.read()) == ENDPOINT
    pieces = []
    while not pieces or not pieces[-1].end_of_stream:
        pieces.append((await stream.read()).request_body.response.body_mutation.streamed_response)
    assert [len(piece.body) for piece in pieces[:-1]] == [MAX_CHUNK_BYTES] * (len(pieces) - 1)
    assert 0 < len(pieces[-1].body) <= MAX_CHUNK_BYTES
    assert b"".join(piece.body for piece in pieces) == body
    await finish(running, stream)


async def test_a_replaced_body_comes_with_its_length(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, body=b"other", ctx=1)))
    stream = running.client.open()
    reply, body = await stream.post(b"original")
    assert body == b"other"
    assert set_headers(reply)["content-length"] == "5"
    await finish(running, stream)


async def test_a_replaced_body_before_trailers_has_no_length(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, body=b"other", ctx=1)))
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"original")
    await stream.request_trailers()
    assert "content-length" not in set_headers(await stream.read())
    await stream.read()
    await stream.read()
    await finish(running, stream)


async def test_everything_a_decision_can_carry_is_in_the_reply(serve: Serve) -> None:
    def answer(request: Request) -> None:
        request.route(
            "10.0.0.1:8000,10.0.0.2:8000",
            set_headers=[("traceparent", "00-ab"), ("x-prefiller-host-port", "10.0.0.3:8000")],
            remove_headers=["x-secret"],
            dynamic_metadata={"envoy.lb": {"scores": {"10.0.0.1:8000": 0.5}}, "heliotrope": {"region": "NO", "n": 2}},
            response_headers=[("x-region", "NO")],
            ctx=1,
        )

    running = await serve(Recorder(answer))
    stream = running.client.open()
    reply, _ = await stream.post()
    assert set_headers(reply) == {
        "x-gateway-destination-endpoint": "10.0.0.1:8000,10.0.0.2:8000",
        "traceparent": "00-ab",
        "x-prefiller-host-port": "10.0.0.3:8000",
    }
    assert removed_headers(reply) == {"x-secret"}
    metadata = reply.dynamic_metadata.fields
    assert destination(reply) == "10.0.0.1:8000,10.0.0.2:8000"
    assert metadata["envoy.lb"].struct_value["scores"]["10.0.0.1:8000"] == 0.5
    assert metadata["heliotrope"].struct_value["region"] == "NO"
    assert metadata["heliotrope"].struct_value["n"] == 2
    await stream.response_headers()
    assert set_headers(await stream.read(), "response_headers") == {"x-region": "NO"}
    await stream.response_body(b"", end=True)
    await stream.read()


async def test_without_an_endpoint_the_routes_decide(serve: Serve) -> None:
    running = await serve(Recorder(lambda request: request.route(None, set_headers=[("x-region", "NO")], ctx=1)))
    stream = running.client.open()
    reply, _ = await stream.post()
    assert set_headers(reply) == {"x-region": "NO"}
    assert reply.request_headers.response.clear_route_cache
    assert not reply.HasField("dynamic_metadata")
    await finish(running, stream)


async def test_a_client_cannot_steer_engines(running: Running) -> None:
    stream = running.client.open()
    hostile = [(name.title(), "evil:1") for name in sorted(ROUTING_HEADERS)]
    await stream.request_headers([*POST, *hostile], end=True)
    reply = await stream.read()
    assert removed_headers(reply) == ROUTING_HEADERS
    (request,) = running.recorder.requests
    assert not ROUTING_HEADERS & request.headers().keys()
    assert all(request.header(name) is None for name in ROUTING_HEADERS)
    await finish(running, stream)


async def test_headers_of_the_gateways_own_call_are_apart_from_the_requests(running: Running) -> None:
    stream = running.client.open(call_headers=(("traceparent", "of-the-gateway"), ("x-only-bin", b"\xff")))
    await stream.request_headers((*POST, ("traceparent", "of-the-client")))
    await stream.request_body(b"{}", end=True)
    await stream.read()
    (request,) = running.recorder.requests
    assert request.call_header("traceparent") == "of-the-gateway"
    assert request.header("traceparent") == request.headers()["traceparent"] == "of-the-client"
    assert request.call_header("x-only-bin") is None
    assert request.call_header("x-absent") is None
    stream.call.cancel()


async def test_a_request_without_an_id_gets_one(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers(GET, end=True)
    reply = await stream.read()
    (request,) = running.recorder.requests
    identity = request.header("x-request-id")
    assert identity is not None
    assert len(identity) == 36
    assert set_headers(reply)["x-request-id"] == identity
    await finish(running, stream)


@pytest.mark.parametrize("raw", [True, False], ids=["raw_value", "value"])
async def test_header_values_are_read_from_either_field(running: Running, raw: bool) -> None:
    stream = running.client.open()
    pairs = [*GET, ("X-Mixed", "ü"), ("x-many", "a"), ("x-many", "b"), ("x-empty", "")]
    await stream.request_headers(pairs, end=True, raw=raw)
    await stream.read()
    (request,) = running.recorder.requests
    seen = request.headers()
    del seen["x-request-id"]
    assert seen == {**dict(GET), "x-mixed": "ü", "x-many": "a,b", "x-empty": ""}
    assert request.header("absent") is None
    await finish(running, stream)


async def test_header_values_that_are_no_text_do_not_hurt(running: Running) -> None:
    stream = running.client.open()
    await stream.request_headers([*GET, ("x-odd", b"a\xff")], end=True)
    await stream.read()
    (request,) = running.recorder.requests
    assert request.header("x-odd") == "a\N{REPLACEMENT CHARACTER}"
    await finish(running, stream)


SUBSET = "x-gateway-destination-endpoint-subset"


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({}, None),
        ({"envoy.lb.subset_hint": {"other": "x"}}, None),
        ({"envoy.lb.subset_hint": {SUBSET: ["10.0.0.1", "10.0.0.2:8000"]}}, ("10.0.0.1", "10.0.0.2:8000")),
        ({"envoy.lb.subset_hint": {SUBSET: "10.0.0.1, 10.0.0.2:8000"}}, ("10.0.0.1", "10.0.0.2:8000")),
        ({"envoy.lb.subset_hint": {SUBSET: []}}, ()),
        ({"envoy.lb.subset_hint": {SUBSET: ""}}, ()),
        ({"envoy.lb.subset_hint": {SUBSET: [7, "10.0.0.1"]}}, ("10.0.0.1",)),
        ({"envoy.lb.subset_hint": {SUBSET: 7}}, ()),
    ],
)
async def test_the_gateways_subset_is_read(
    running: Running, metadata: dict[str, dict[str, object]], expected: tuple[str, ...] | None
) -> None:
    stream = running.client.open()
    await stream.request_headers(GET, end=True, metadata=metadata)
    await stream.read()
    (request,) = running.recorder.requests
    assert request.subset == expected
    await finish(running, stream)


async def test_metadata_is_plain_values(running: Running) -> None:
    stream = running.client.open()
    fields = {"a": [1, "b", None, True], "c": {"d": 2.5}}
    await stream.request_headers(GET, end=True, metadata={"any.namespace": fields})
    await stream.read()
    (request,) = running.recorder.requests
    assert request.metadata == {"any.namespace": fields}
    await finish(running, stream)


async def test_a_rejection_is_the_whole_answer(serve: Serve) -> None:
    headers = [("x-llm-d-request-dropped-reason", "rejected-no-endpoints"), ("retry-after", "3")]
    running = await serve(Recorder(lambda request: request.reject(503, b"nobody is there", headers)))
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(b"{}", end=True)
    answer = (await stream.read()).immediate_response
    assert answer.status.code == 503
    assert answer.body == b"nobody is there"
    assert {option.header.key: option.header.raw_value.decode() for option in answer.headers.set_headers} == dict(
        headers
    )
    assert await stream.read() is None
    await running.settled()
    assert running.server.stats().rejected_total == 1


async def test_only_the_first_answer_counts(serve: Serve) -> None:
    given: list[bool] = []

    def answer(request: Request) -> None:
        given.append(request.route(ENDPOINT, ctx=1))
        given.append(request.route("10.0.0.9:1", ctx=2))
        given.append(request.reject(500))

    running = await serve(Recorder(answer))
    stream = running.client.open()
    reply, _ = await stream.post()
    assert given == [True, False, False]
    assert destination(reply) == ENDPOINT
    await finish(running, stream)
    assert list(running.recorder.reports) == [1]
