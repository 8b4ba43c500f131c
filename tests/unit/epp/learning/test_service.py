import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import aiohttp
import pytest
from tests.unit.epp.learning.builders import NOW_UNIX, samples

from heliotrope.predict.bundle import Bundle, parse_bundle
from heliotrope.predict.features import FEATURE_COUNT
from heliotrope.predict.targets import REQUESTS
from heliotrope.predict.training import TrainingConfig, train
from heliotrope.predict.trainingset import TrainingSet
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning import wire
from heliotrope_epp.learning.client import etag_of
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.service import TrainerService
from heliotrope_epp.learning.settings import TrainerSettings, TrainingSettings
from heliotrope_epp.learning.store import Store


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return train([TrainingSet.of(REQUESTS, samples(200))], 1, NOW_UNIX - 50.0, TrainingConfig(trees=3))


@dataclass
class Service:
    session: aiohttp.ClientSession
    url: str
    metrics_url: str

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.get(self.url + path, **options) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, body: bytes) -> tuple[int, Any]:
        async with self.session.post(self.url + path, data=body) as answer:
            return answer.status, await answer.json(content_type=None)


@contextlib.asynccontextmanager
async def running(state_dir: Path | None = None, **changes: Any) -> AsyncIterator[Service]:
    settings = TrainerSettings(
        host="127.0.0.1", port=0, metrics_port=0, state_dir=state_dir, training=TrainingSettings(tick_s=0.01), **changes
    )
    service = TrainerService(settings, Clock(unix=lambda: NOW_UNIX), Random(1))
    async with contextlib.AsyncExitStack() as stack:
        learning = asyncio.create_task(service.learn())
        ports = await service.listen(stack)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        yield Service(session, f"http://127.0.0.1:{ports.port}", f"http://127.0.0.1:{ports.metrics_port}")
        learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)


def left_behind(path: Path, bundle: Bundle) -> None:
    store = Store(StateFolder(path))
    store.save_models(bundle, None, ())
    store.folder.close()


async def ready(service: Service) -> None:
    async with asyncio.timeout(10):
        while True:
            async with service.session.get(service.metrics_url + "/readyz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.01)


async def text(service: Service, url: str) -> str:
    async with service.session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_samples_are_taken_and_lies_are_counted() -> None:
    lie = samples(1, seed=9)[0]
    lie.labels[0] = 1e9
    async with running() as service:
        await ready(service)
        status, said = await service.post("/add_training_data_bulk", wire.encode([*samples(7), lie]))
        assert (status, said) == (200, {"accepted": 7, "refused": {"absurd": 1}})
        async with asyncio.timeout(10):
            while (await service.get("/data/status"))[1]["windows"]["requests"]["samples"] != 7:
                await asyncio.sleep(0.01)
        status, said = await service.get("/data/status")
        assert (said["accepted"], said["refused"]) == (7, {"absurd": 1})
        page = await text(service, service.metrics_url + "/metrics")
        assert "heliotrope_learning_samples_total 7.0" in page
        assert 'heliotrope_learning_dropped_samples_total{reason="absurd"} 1.0' in page
        assert page == await text(service, service.url + "/metrics")


@pytest.mark.parametrize("path", ["/add_training_data_bulk", "/predict"])
async def test_bodies_that_are_not_ours(path: str) -> None:
    async with running(max_body_bytes=1_000) as service:
        status, said = await service.post(path, b"{")
        assert status == 422
        assert "not a list of" in said["error"]
        async with service.session.post(service.url + path, data=b"x" * 2_000) as answer:
            assert answer.status == 413


async def test_only_so_many_bodies_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliotrope_epp.learning.service.MAX_BODIES", 1)
    go_on = asyncio.Event()

    async def slow_body() -> AsyncIterator[bytes]:
        yield b'{"rows": '
        await go_on.wait()
        yield b"[]}"

    async def slow(service: Service) -> int:
        async with service.session.post(f"{service.url}/predict", data=slow_body()) as answer:
            return answer.status

    async with running() as service:
        first = asyncio.create_task(slow(service))
        await asyncio.sleep(0.3)
        assert (await service.post("/predict", b'{"rows": []}'))[0] == 503
        go_on.set()
        assert await first == 200
        assert (await service.post("/predict", b'{"rows": []}'))[0] == 200


async def test_without_models_there_is_nothing_to_fetch() -> None:
    async with running() as service:
        assert (await service.get("/model/info"))[0] == 404
        assert (await service.get("/model/download"))[0] == 404
        status, said = await service.post("/predict", b'{"rows": [[%s]]}' % b",".join([b"1"] * FEATURE_COUNT))
        assert status == 200
        assert said["predictions"]["ttft_seconds"]["mean"] == [None]


async def test_models_of_an_earlier_run_are_given_out_with_their_digest(tmp_path: Path, bundle: Bundle) -> None:
    left_behind(tmp_path, bundle)
    async with running(tmp_path) as service:
        await ready(service)
        status, info = await service.get("/model/info")
        assert status == 200
        assert (info["digest"], info["age_seconds"]) == (bundle.digest, 50.0)
        assert set(info["targets"]) == {"ttft_seconds", "tpot_seconds", "request_joules"}
        async with service.session.get(service.url + "/model/download") as answer:
            body = await answer.read()
            etag = answer.headers["ETag"]
        assert etag == etag_of(body)
        assert parse_bundle(body.decode()).digest == bundle.digest
        for sent, status in ((etag, 304), (f'"other", {etag}', 304), ('"other"', 200)):
            async with service.session.get(service.url + "/model/download", headers={"If-None-Match": sent}) as again:
                assert again.status == status
        rows = b",".join(b"[%s]" % b",".join([b"null"] * FEATURE_COUNT) for _ in range(2))
        _, said = await service.post("/predict", b'{"rows": [%s]}' % rows)
        assert all(value > 0.0 for value in said["predictions"]["ttft_seconds"]["q90"])
        state = (await service.get("/debug/state"))[1]
        assert state["sources"]["ttft_seconds"] == "learned"
        assert state["sources"]["step_joules"] == "analytic"


async def test_flush_forgets_samples_and_on_demand_models(tmp_path: Path, bundle: Bundle) -> None:
    left_behind(tmp_path, bundle)
    async with running(tmp_path) as service:
        await ready(service)
        await service.post("/add_training_data_bulk", wire.encode(samples(5)))
        assert await service.post("/flush", b"") == (200, {"forgotten_samples": 5, "forgotten_models": False})
        assert (await service.get("/model/info"))[1]["digest"] == bundle.digest
        await service.post("/flush?models=true", b"")
        status, info = await service.get("/model/info")
        assert (status, info["targets"]) == (200, {})
    async with running(tmp_path) as service:
        await ready(service)
        assert (await service.get("/model/info"))[1]["targets"] == {}


async def test_the_other_port_shows_and_changes_nothing() -> None:
    async with running() as service:
        await ready(service)
        assert await text(service, service.metrics_url + "/healthz") == "ok\n"
        for path in ("/add_training_data_bulk", "/flush", "/predict"):
            async with service.session.post(service.metrics_url + path, data=b"") as answer:
                assert answer.status == 404
