"""A decider that raises hurts one client and nobody else (raw gRPC)."""

import asyncio
import logging
from typing import Any

import pytest
from tests.contract.transport.conftest import Running, Serve
from tests.contract.transport.rawclient import Stream
from tests.contract.transport.recorder import ENDPOINT, Recorder, eventually

from heliotrope_epp.transport.interface import Report, Request

SECRET = "the patient's diagnosis"


def fail_on_secret(request: Request) -> None:
    if SECRET.encode() in request.body:
        raise ValueError(f"cannot parse {request.body!r}")
    request.route(ENDPOINT, ctx=request.header("x-request-id"))


async def post(running: Running, body: bytes) -> Stream:
    stream = running.client.open()
    await stream.request_headers()
    await stream.request_body(body, end=True)
    return stream


async def test_an_exception_is_a_500_for_that_client_alone(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    running = await serve(Recorder(fail_on_secret))
    other = await post(running, b"{}")
    await other.read_request_replies()
    stream = await post(running, SECRET.encode())
    answer = (await stream.read()).immediate_response
    assert answer.status.code == 500
    assert await stream.read() is None
    await other.respond()
    stats = running.server.stats()
    assert (stats.failed_total, stats.routed_total) == (1, 1)
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "req-1" in record.getMessage()
    assert "ValueError" in record.getMessage()
    assert "fail_on_secret" in record.getMessage()
    assert "diagnosis" not in caplog.text
    assert b"diagnosis" not in answer.body


async def test_an_exception_after_the_answer_leaves_the_answer(serve: Serve) -> None:
    def answer(request: Request) -> None:
        request.route(ENDPOINT, ctx=1)
        raise RuntimeError

    running = await serve(Recorder(answer))
    stream = running.client.open()
    await stream.post()
    await stream.respond()
    assert (await running.recorder.report()).complete
    assert running.server.stats().failed_total == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"set_headers": [("name", 1)]},
        {"endpoint": 7},
        {"dynamic_metadata": {"a": {"b": object()}}},
        {"response_headers": [("x", "\ud800")]},
    ],
)
async def test_a_decision_that_cannot_be_sent_is_the_deciders_error(serve: Serve, wrong: dict[str, Any]) -> None:
    running = await serve(Recorder(lambda request: request.route(**{"endpoint": ENDPOINT, "ctx": 1, **wrong})))
    stream = await post(running, b"{}")
    assert (await stream.read()).immediate_response.status.code == 500
    await running.settled()
    assert running.recorder.reports == {}


class FailingEnds(Recorder):
    def cancelled(self, request: Request) -> None:
        super().cancelled(request)
        raise RuntimeError("cancelled")

    def done(self, ctx: Any, report: Report) -> None:
        super().done(ctx, report)
        raise RuntimeError("done")


async def test_an_exception_in_done_hurts_nobody(serve: Serve) -> None:
    running = await serve(FailingEnds())
    for ctx in (1, 2):
        stream = running.client.open()
        await stream.post()
        await stream.respond()
        assert (await running.recorder.report(ctx)).complete


async def test_an_exception_in_cancelled_hurts_nobody(serve: Serve) -> None:
    running = await serve(FailingEnds(lambda request: None))
    stream = await post(running, b"{}")
    await running.recorder.request()
    stream.call.cancel()
    await eventually(lambda: len(running.recorder.cancellations) == 1)
    await running.settled()
    again = await post(running, b"{}")
    request = await running.recorder.request(2)
    request.reject(503)
    assert (await again.read()).immediate_response.status.code == 503


async def test_no_prompt_reaches_the_log(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    running = await serve(Recorder(lambda request: request.route(ENDPOINT, body=request.body, ctx=1)))
    stream = await post(running, SECRET.encode())
    await stream.read_request_replies()
    await stream.response_headers()
    await stream.read()
    await stream.response_body(SECRET.encode())
    await stream.read()
    stream.call.cancel()
    await running.recorder.report()
    await asyncio.sleep(0)
    assert "diagnosis" not in caplog.text
