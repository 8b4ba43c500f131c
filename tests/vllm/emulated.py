"""An emulated engine beside the real one, to compare what they say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from tests.vllm.engine import MAX_NUM_SEQS, MODEL

from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig

PROFILE = "llama-3.1-8b-h100"


@asynccontextmanager
async def emulated_engine(max_model_len: int) -> AsyncIterator[str]:
    """The URL of an emulated engine with the real one's limits."""
    config = EngineConfig(
        name="emulated", profile=PROFILE, model=MODEL, max_model_len=max_model_len, max_num_seqs=MAX_NUM_SEQS
    )
    async with Emulator(EmulatorConfig(engines=(config,))) as emulator:
        yield emulator.engines[config.name].url


async def emulated_page(max_model_len: int) -> str:
    """Its page of metrics."""
    async with emulated_engine(max_model_len) as url, httpx.AsyncClient(trust_env=False) as http:
        return (await http.get(f"{url}/metrics")).text
