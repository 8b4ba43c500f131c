"""`heliotrope trainer`: several pickers send their samples here and fetch the models that all of them earned.

Plain HTTP in the spirit of llm-d's latency predictor: bulk samples in, a model out. Two ports: one for pickers, one
that shows metrics and health and changes nothing.
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from heliotrope.predict.bundle import Bundle
from heliotrope.predict.features import FloatColumn
from heliotrope.predict.models import LearnedModels
from heliotrope.predict.targets import REQUESTS, STEPS, Table
from heliotrope.unknown import finite_or_none
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning import wire
from heliotrope_epp.learning.client import MODEL_PATH, SAMPLES_PATH, etag_of
from heliotrope_epp.learning.drift import DriftWatch
from heliotrope_epp.learning.folder import StateFolder
from heliotrope_epp.learning.holder import ModelHolder
from heliotrope_epp.learning.keeper import ModelKeeper
from heliotrope_epp.learning.metrics import LearningCollector
from heliotrope_epp.learning.settings import TrainerSettings
from heliotrope_epp.learning.store import Store
from heliotrope_epp.learning.trainer import Trainer
from heliotrope_epp.learning.view import LearningView, Progress, bundle_document, data_document, document

MAX_BODIES = 8
"""Bodies that are read and checked at once; more get a 503, and pickers try again."""

_log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class TrainerPorts:
    """Where a started trainer listens."""

    port: int
    metrics_port: int


def run(settings: TrainerSettings, announce: Callable[[TrainerPorts], None] | None = None) -> None:
    """Run a trainer until SIGTERM or SIGINT.

    Args:
        settings: places and limits.
        announce: called with the ports once samples are taken.

    Raises:
        OSError: if a port cannot be bound.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signalled(settings, announce))


async def _until_signalled(settings: TrainerSettings, announce: Callable[[TrainerPorts], None] | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop, announce)


async def serve(
    settings: TrainerSettings, stop: asyncio.Event, announce: Callable[[TrainerPorts], None] | None = None
) -> None:
    """Run a trainer on the running loop until `stop` is set; arguments and errors as for `run`."""
    service = TrainerService(settings, Clock(), Random())
    async with contextlib.AsyncExitStack() as stack:
        learning = asyncio.create_task(service.learn(), name="learning")
        stack.push_async_callback(_cancelled, learning)
        ports = await service.listen(stack)
        _log.info("listening", extra={"fields": {"port": ports.port, "metrics_port": ports.metrics_port}})
        if announce is not None:
            announce(ports)
        stopped = asyncio.create_task(stop.wait(), name="stop")
        stack.push_async_callback(_cancelled, stopped)
        await asyncio.wait({learning, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if learning.done():
            learning.result()
            raise RuntimeError("learning ended")
        _log.info("stopping")


async def _cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TrainerService:
    """The trainer and its HTTP interface."""

    def __init__(self, settings: TrainerSettings, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._progress = Progress()
        self._folder = StateFolder(settings.state_dir)
        self._keeper = ModelKeeper(ModelHolder(), Store(self._folder))
        watch = DriftWatch(self._keeper.holder)
        self._trainer = Trainer(settings.training, self._keeper, watch, clock=clock, random=random)
        self._view = LearningView(self._progress, self._keeper, watch, clock, trainer=self._trainer)
        self._registry = CollectorRegistry()
        self._registry.register(LearningCollector(self._view))
        self._bodies = 0
        self._download: tuple[Bundle, bytes, str] | None = None
        """Text and entity tag of the models that were asked for last."""

    async def learn(self) -> None:
        """Load, train and save until cancelled."""
        self._progress.running = True
        try:
            await self._trainer.run()
        finally:
            self._progress.running = False
            self._folder.close()

    async def listen(self, stack: contextlib.AsyncExitStack) -> TrainerPorts:
        """Open both ports; `stack` closes them again.

        Raises:
            OSError: if one cannot be bound.
        """
        watching = [
            web.get("/metrics", self._metrics),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
        ]
        learning = [
            web.post(SAMPLES_PATH, self._one_of_few(self._add)),
            web.get("/model/info", self._info),
            web.get(MODEL_PATH, self._model),
            web.post("/predict", self._one_of_few(self._predict)),
            web.post("/flush", self._flush),
            web.get("/data/status", self._status),
            web.get("/debug/state", self._state),
        ]
        s = self._settings
        return TrainerPorts(
            port=await self._open(stack, s.port, [*learning, *watching]),
            metrics_port=await self._open(stack, s.metrics_port, watching),
        )

    async def _open(self, stack: contextlib.AsyncExitStack, port: int, routes: list[web.RouteDef]) -> int:
        app = web.Application(client_max_size=self._settings.max_body_bytes)
        app.router.add_routes(routes)
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=self._settings.grace_s, keepalive_timeout=75.0
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, self._settings.host, port).start()
        return int(runner.addresses[0][1])

    def _one_of_few(self, handler: Handler) -> Handler:
        """So that the memory for bodies is bounded."""

        async def limited(request: web.Request) -> web.StreamResponse:
            if self._bodies >= MAX_BODIES:
                return _error(503, "too many requests at once; try again", {"Retry-After": "1"})
            self._bodies += 1
            try:
                return await handler(request)
            except wire.WireError as error:
                return _error(422, str(error))
            finally:
                self._bodies -= 1

        return limited

    async def _add(self, request: web.Request) -> web.Response:
        body = await request.read()
        received = await asyncio.to_thread(wire.decode, body, self._clock.unix())
        self._trainer.add(received.samples)
        self._progress.accepted += len(received.samples)
        self._progress.steps += sum(sample.table is STEPS for sample in received.samples)
        self._progress.refused.update(received.refused)
        return web.json_response({"accepted": len(received.samples), "refused": received.refused})

    async def _info(self, _: web.Request) -> web.Response:
        bundle = self._keeper.current
        if not bundle.created_unix_s:
            return _error(404, "no models yet")
        return web.json_response(bundle_document(bundle, self._clock.unix()))

    async def _model(self, request: web.Request) -> web.Response:
        bundle = self._keeper.current
        if not bundle.created_unix_s:
            return _error(404, "no models yet")
        if self._download is None or self._download[0] is not bundle:
            text = bundle.to_text().encode()
            self._download = (bundle, text, etag_of(text))
        _, text, etag = self._download
        headers = {"ETag": etag, "Cache-Control": "no-cache"}
        if etag in (tag.strip() for tag in request.headers.get("If-None-Match", "").split(",")):
            return web.Response(status=304, headers=headers)
        return web.Response(body=text, content_type="text/plain", charset="utf-8", headers=headers)

    async def _predict(self, request: web.Request) -> web.Response:
        table, rows = await asyncio.to_thread(wire.matrix, await request.read())
        return web.json_response(await asyncio.to_thread(_predictions, self._keeper.holder.current, table, rows))

    async def _flush(self, request: web.Request) -> web.Response:
        forgotten = self._trainer.flush()
        await self._trainer.save_windows()
        models = request.query.get("models") == "true"
        if models:
            await self._keeper.reset(self._clock.unix())
        _log.info("samples are forgotten on demand", extra={"fields": {"samples": forgotten, "models": models}})
        return web.json_response({"forgotten_samples": forgotten, "forgotten_models": models})

    async def _status(self, _: web.Request) -> web.Response:
        counts = {"accepted": self._progress.accepted, "refused": dict(self._progress.refused)}
        return web.json_response(counts | {"windows": data_document(self._trainer)})

    async def _state(self, _: web.Request) -> web.Response:
        return web.json_response(document(self._view))

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self._trainer.loaded.is_set():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="what was learned before is still being read\n")


def _predictions(models: LearnedModels, table: Table, rows: FloatColumn) -> dict[str, Any]:
    """By target and row; None where no model answers."""
    found = models.predict(rows) if table is REQUESTS else models.predict_steps(rows)
    return {
        "predictions": {
            target.value: {
                "mean": [finite_or_none(value) for value in found.mean[i]],
                "q90": [finite_or_none(value) for value in found.q90[i]],
                "relative_error": [finite_or_none(value) for value in found.relative_error[i]],
            }
            for i, target in enumerate(found.targets)
        }
    }


def _error(status: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": message}, status=status, headers=headers)
