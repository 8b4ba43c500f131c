import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine

Serve = Callable[..., Awaitable[ServedEngine]]

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

        async def start(**settings: Any) -> ServedEngine:
            chosen = settings.pop("engine_model", model)
            config = EngineConfig.model_validate({"name": "a", "profile": PROFILE, "time_scale": 50} | settings)
            emulator = Emulator(EmulatorConfig(engines=(config,)), models={config.name: chosen})
            await stack.enter_async_context(emulator)
            return emulator.engines[config.name]

        yield start


@pytest.fixture
async def engine(serve: Serve) -> ServedEngine:
    return await serve()


@pytest.fixture
async def client(engine: ServedEngine) -> AsyncIterator[AsyncOpenAI]:
    http = DefaultAsyncHttpxClient(verify=NO_TLS)
    async with AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0, http_client=http) as client:
        yield client


@pytest.fixture
def connect() -> Callable[[str], httpx.AsyncClient]:
    """A client for the engine at an address."""
    return lambda url: httpx.AsyncClient(base_url=url, timeout=60, verify=NO_TLS)


@pytest.fixture
async def http(engine: ServedEngine, connect: Callable[[str], httpx.AsyncClient]) -> AsyncIterator[httpx.AsyncClient]:
    async with connect(engine.url) as http:
        yield http
