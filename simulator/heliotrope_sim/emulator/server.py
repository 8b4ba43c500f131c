"""Several engines in one process, each on its own port."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self

from aiohttp import web

from heliotrope.engine.model import EngineModel
from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.admin import AdminApi
from heliotrope_sim.emulator.api import OpenAIApi
from heliotrope_sim.emulator.clock import EngineClock
from heliotrope_sim.emulator.config import EmulatorConfig, EngineConfig, GpuConfig, load_model
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import ApiError
from heliotrope_sim.emulator.faults import FaultInjector
from heliotrope_sim.emulator.gpus import Group
from heliotrope_sim.emulator.transfer.node import TransferNode
from heliotrope_sim.engine.network import Network

logger = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024 * 1024
SHUTDOWN_SECONDS = 0.2

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ApiError as error:
        return error.response()
    except InvalidInputError as error:
        return ApiError(HTTPStatus.BAD_REQUEST, str(error), kind="BadRequestError", param=error.path).response()
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        return ApiError(HTTPStatus(error.status), error.reason).response()
    except (ConnectionResetError, ConnectionAbortedError):
        raise
    except Exception:
        # The path alone: requests hold prompts.
        logger.exception("%s %s failed", request.method, request.path)
        return ApiError(
            HTTPStatus.INTERNAL_SERVER_ERROR, "Internal server error", kind="InternalServerError"
        ).response()


@dataclass(frozen=True, slots=True)
class ServedEngine:
    """A running engine and where it listens."""

    config: EngineConfig
    driver: EngineDriver
    faults: FaultInjector
    host: str
    port: int

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://{self.host}:{self.port}"


class Emulator:
    """Serves the engines of a configuration; an async context manager.

    Args:
        config: which engines.
        models: engine models by engine name, instead of the profiles that the configuration names.

    Raises:
        InvalidInputError: if an engine's profile or limits are wrong; the path names the engine.
    """

    def __init__(self, config: EmulatorConfig, models: dict[str, EngineModel] | None = None) -> None:
        self._config = config
        self._models = {e.name: (models or {}).get(e.name) or _model_of(i, e) for i, e in enumerate(config.engines)}
        self._engines: dict[str, ServedEngine] = {}
        self._running: list[tuple[EngineDriver, web.AppRunner]] = []
        self._nodes: list[TransferNode] = []
        self._networks: dict[float, tuple[Network, EngineClock]] = {}
        """By time scale: engines whose clocks are equally fast share links."""

    @property
    def engines(self) -> dict[str, ServedEngine]:
        """The running engines by name."""
        return dict(self._engines)

    async def __aenter__(self) -> Self:
        try:
            for index, config in enumerate(self._config.engines):
                self._engines[config.name] = await self._start(index, config)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._stop()

    async def _stop(self) -> None:
        """End what is in flight and close, all engines at once."""
        running = self._running
        self._running, self._engines = [], {}
        await asyncio.gather(*(driver.stop() for driver, _ in running))
        nodes, self._nodes = self._nodes, []
        await asyncio.gather(*(node.close() for node in nodes))
        await asyncio.gather(*(runner.cleanup() for _, runner in running))

    async def _start(self, index: int, config: EngineConfig) -> ServedEngine:
        path = f"engines.{index}"
        with ExitStack() as undo:
            try:
                gpus = None if config.gpu is None else _gpus(config.gpu, self._models[config.name])
                if gpus is not None:
                    undo.callback(gpus.close)
                driver = EngineDriver(config, self._models[config.name], gpus)
            except InvalidInputError as error:
                raise InvalidInputError(f"{path}.{error.path}", error.problem) from None
            scale = config.time_scale
            driver.share_links(*self._networks.setdefault(scale, (Network(), EngineClock(scale))))
            faults = FaultInjector(config.seed)
            try:
                listener = socket.create_server((config.host, config.port), backlog=1024)
            except OSError as error:
                raise InvalidInputError(
                    f"{path}.port", f"cannot listen on {config.host}:{config.port}: {error.strerror}"
                ) from None
            port = listener.getsockname()[1]
            node = None
            if config.kv_transfer is not None:
                node = TransferNode.of(driver, config, config.kv_transfer, port)
                self._nodes.append(node)
            app = web.Application(middlewares=[_errors_as_json], client_max_size=MAX_BODY_BYTES)
            app.add_routes([*OpenAIApi(driver, faults, node).routes(), *AdminApi(driver, faults).routes()])
            if node is not None:
                app.add_routes(node.api(config).routes())
            # A client that goes cancels its handler, which aborts its request.
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_SECONDS)
            await runner.setup()
            self._running.append((driver, runner))
            undo.pop_all()  # from here on the driver lets go of its GPUs when it stops
        await web.SockSite(runner, listener).start()
        driver.start()
        return ServedEngine(config, driver, faults, config.host, port)


def _gpus(config: GpuConfig, model: EngineModel) -> Group:
    """Attach to the GPUs of a configuration.

    Raises:
        InvalidInputError: if they are not as many as the engine has, or the driver cannot have an engine on them.
    """
    if len(config.uuids) != model.tensor_parallel:
        raise InvalidInputError(
            "gpu.uuids", f"{len(config.uuids)} GPUs; {model.name} runs on {model.tensor_parallel}, name each of them"
        )
    # Whoever names no GPU needs no driver's library.
    from heliotrope_sim.emulator.nvml import NvmlGroup

    return NvmlGroup(config.uuids)


def _model_of(index: int, config: EngineConfig) -> EngineModel:
    try:
        return load_model(config)
    except InvalidInputError as error:
        raise InvalidInputError(f"engines.{index}.{error.path}", error.problem) from None


def addresses(engines: Sequence[ServedEngine]) -> dict[str, list[dict[str, str | int | None]]]:
    """What a starter of the process needs to know, as plain data."""
    return {
        "engines": [
            {
                "name": e.config.name,
                "region": e.config.region,
                "model": e.driver.served_model,
                "host": e.host,
                "port": e.port,
                "url": e.url,
            }
            for e in engines
        ]
    }
