import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.sidecar import Sidecar, SidecarConfig

Serve = Callable[..., Awaitable[ServedEngine]]
Front = Callable[..., Awaitable[httpx.AsyncClient]]

# Loading the certificates of all authorities takes longer than most tests.
NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
PROFILE = "llama-3.1-70b-h100-tp4"


@pytest.fixture
def model() -> EngineModel:
    """The shipped profile with little memory: 256 blocks of 16 tokens."""
    return replace(profiles.load(PROFILE), kv_capacity_tokens=4096, block_size=16, max_num_seqs=8)


@pytest.fixture
async def serve(model: EngineModel) -> AsyncIterator[Serve]:
    """Start an engine, by default fifty times faster than real time."""
    async with AsyncExitStack() as stack:

        async def start(name: str = "d", **settings: Any) -> ServedEngine:
            chosen = settings.pop("engine_model", model)
            if "kv_transfer" in settings:
                # A minute on the wall: a machine that stands still for a moment ends no lease.
                settings["kv_transfer"] = {"kv_lease_duration": 3000} | settings["kv_transfer"]
            config = EngineConfig.model_validate({"name": name, "profile": PROFILE, "time_scale": 50} | settings)
            emulator = Emulator(EmulatorConfig(engines=(config,)), models={config.name: chosen})
            await stack.enter_async_context(emulator)
            return emulator.engines[config.name]

        yield start


@pytest.fixture
async def front() -> AsyncIterator[Front]:
    """Start a sidecar in front of an engine, and a client of it."""
    async with AsyncExitStack() as stack:

        async def start(decoder_url: str, **settings: Any) -> httpx.AsyncClient:
            sidecar = await stack.enter_async_context(Sidecar(SidecarConfig(decoder_url=decoder_url, **settings)))
            client = httpx.AsyncClient(base_url=sidecar.url, timeout=60, verify=NO_TLS)
            return await stack.enter_async_context(client)

        yield start


@pytest.fixture
def connect() -> Callable[[str], httpx.AsyncClient]:
    """A client for the engine at an address."""
    return lambda url: httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS)


@pytest.fixture
def nobody() -> str:
    """A host and port where nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{free.getsockname()[1]}"
