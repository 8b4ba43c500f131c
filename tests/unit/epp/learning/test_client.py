import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from tests.unit.epp.learning.builders import NOW_UNIX, samples

from heliotrope_epp.learning import wire
from heliotrope_epp.learning.client import ClientSettings, TrainerClient, etag_of

FAST: dict[str, Any] = {
    "batch_interval_s": 0.01,
    "poll_interval_s": 0.02,
    "first_retry_s": 0.01,
    "longest_retry_s": 0.02,
    "timeout_s": 0.5,
}


@dataclass
class FakeTrainer:
    """An HTTP server that answers as it is told, and remembers."""

    status: int = 200
    model: bytes | None = None
    etag: str | None = None
    """In the place of the true one."""
    hang: bool = False
    keys: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    downloads: int = 0
    asked: int = 0

    async def add(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.hang:
            await asyncio.sleep(60)
        received = wire.decode(await request.read(), NOW_UNIX)
        if self.status == 200:
            self.keys += [sample.key for sample in received.samples]
            self.batches.append(len(received.samples))
        return web.Response(status=self.status, text="said so")

    async def download(self, request: web.Request) -> web.Response:
        if self.model is None:
            return web.Response(status=404)
        etag = self.etag or etag_of(self.model)
        if request.headers.get("If-None-Match") == etag:
            return web.Response(status=304)
        self.downloads += 1
        return web.Response(body=self.model, headers={"ETag": etag})


@dataclass
class Accepting:
    """The picker's side: what it was offered, and what it says."""

    refusal: str | None = None
    texts: list[bytes] = field(default_factory=list)

    async def __call__(self, text: bytes) -> str | None:
        self.texts.append(text)
        return self.refusal


@contextlib.asynccontextmanager
async def serving(trainer: FakeTrainer, port: int = 0) -> AsyncIterator[int]:
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post("/add_training_data_bulk", trainer.add)
    app.router.add_get("/model/download", trainer.download)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


@contextlib.asynccontextmanager
async def client_of(port: int, accept: Accepting | None = None, **changes: Any) -> AsyncIterator[TrainerClient]:
    settings = ClientSettings(f"http://127.0.0.1:{port}/", **FAST | changes)
    client = TrainerClient(settings, accept=accept or Accepting())
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(condition: Any, seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)


async def test_samples_go_out_in_batches_and_each_once() -> None:
    trainer, sent = FakeTrainer(), samples(25)
    async with serving(trainer) as port, client_of(port, max_batch=10) as client:
        for each in sent:
            client.add(each)
        await until(lambda: client.counts.sent == 25)
    assert trainer.keys == [each.key for each in sent]
    assert max(trainer.batches) <= 10


@pytest.mark.parametrize("fault", ["status", "hang", "away"])
async def test_a_trainer_that_fails_gets_the_samples_later_and_the_oldest_are_dropped(fault: str) -> None:
    trainer = FakeTrainer(status=500 if fault == "status" else 200, hang=fault == "hang")
    sent = samples(30)
    async with contextlib.AsyncExitStack() as stack:
        port = 1 if fault == "away" else await stack.enter_async_context(serving(trainer))
        client = await stack.enter_async_context(client_of(port, max_queue=10, max_batch=5, timeout_s=0.1))
        for each in sent[:5]:
            client.add(each)
        await until(lambda: "samples" in client.problems)
        for each in sent[5:]:
            client.add(each)
        assert client.waiting == 15
        assert client.counts.dropped == 15
        if fault == "away":
            return
        trainer.status, trainer.hang = 200, False
        await until(lambda: client.waiting == 0)
        assert client.problems == {}
    assert trainer.keys == [each.key for each in [*sent[:5], *sent[20:]]]


async def test_what_a_trainer_will_never_take_does_not_block_what_comes_after() -> None:
    trainer = FakeTrainer(status=422)
    async with serving(trainer) as port, client_of(port) as client:
        client.add(samples(1)[0])
        await until(lambda: client.counts.undeliverable == 1)
        assert "HTTP 422 to samples: said so" in client.problems["samples"]
        trainer.status = 200
        client.add(samples(1, seed=2)[0])
        await until(lambda: client.counts.sent == 1)
        assert client.problems == {}


async def test_what_still_waits_is_sent_at_shutdown() -> None:
    trainer = FakeTrainer()
    async with serving(trainer) as port:
        async with client_of(port, batch_interval_s=60.0) as client:
            await asyncio.sleep(0.02)
            client.add(samples(1)[0])
        assert len(trainer.keys) == 1


async def test_shutdown_does_not_wait_for_a_trainer_that_hangs() -> None:
    trainer = FakeTrainer(hang=True)
    async with serving(trainer) as port:
        async with client_of(port, batch_interval_s=60.0, last_send_s=0.05, timeout_s=30.0) as client:
            client.add(samples(1)[0])
            await asyncio.sleep(0.02)
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < 5.0


async def test_a_model_is_taken_once_and_again_when_it_changes() -> None:
    trainer, accept = FakeTrainer(), Accepting()
    async with serving(trainer) as port, client_of(port, accept) as client:
        await until(lambda: client.polls["none"] >= 2)
        trainer.model = b"one"
        await until(lambda: client.polls["unchanged"] >= 2)
        trainer.model = b"two"
        await until(lambda: client.polls["new"] == 2)
    assert accept.texts == [b"one", b"two"]
    assert trainer.downloads == 2


async def test_a_model_that_was_changed_on_its_way_is_not_taken_and_asked_for_again() -> None:
    trainer, accept = FakeTrainer(model=b"poison", etag=etag_of(b"model")), Accepting()
    async with serving(trainer) as port, client_of(port, accept) as client:
        await until(lambda: client.polls["failed"] >= 2)
        assert "digest" in client.problems["model"]
        assert accept.texts == []
        trainer.model, trainer.etag = b"model", None
        await until(lambda: client.polls["new"] == 1)


async def test_a_model_that_cannot_be_used_is_refused_once() -> None:
    trainer, accept = FakeTrainer(model=b"nonsense"), Accepting(refusal="not a model")
    async with serving(trainer) as port, client_of(port, accept) as client:
        await until(lambda: client.polls["unchanged"] >= 2)
    assert client.polls["refused"] == 1
    assert accept.texts == [b"nonsense"]


async def test_a_model_without_end_is_cut() -> None:
    trainer, accept = FakeTrainer(model=b"x" * 100_000), Accepting()
    async with serving(trainer) as port, client_of(port, accept, max_model_bytes=1_000) as client:
        await until(lambda: client.polls["failed"] >= 1)
        assert "exceeds 1000 bytes" in client.problems["model"]
    assert accept.texts == []
