"""Waiting until a picker counts energy."""

import asyncio

import httpx


async def metering_has_begun(debug_url: str, seconds: float = 30.0) -> None:
    """Wait until energy is counted everywhere: what was drawn before the first interval is never claimed.

    Args:
        debug_url: of the picker's `/debug/state`.
        seconds: to wait at most.
    """
    async with asyncio.timeout(seconds), httpx.AsyncClient(trust_env=False) as client:
        while True:
            rows = [row["energy"] for row in (await client.get(debug_url)).json()["endpoints"]]
            if all(row is not None and row["millijoules"]["opened_at"] is not None for row in rows):
                return
            await asyncio.sleep(0.1)
