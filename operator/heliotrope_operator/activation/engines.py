"""vLLM's endpoints for sleep, of its development mode; they know no authentication (docs/activation.md)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import aiohttp

from heliotrope.errors import HeliotropeError

LOOK_TIMEOUT_S = 3.0
MOVE_TIMEOUT_S = 120.0
"""Of sleeping and waking, which vLLM answers when it is done: weights of some hundred gigabytes move."""
SLEEP_LEVEL = 1
"""Weights go to the host's memory and come back from there; level 2 would drop them for good."""
MAX_PAGE_BYTES = 4 * 1024 * 1024
_COUNTS = re.compile(rb"^vllm:num_requests_(?:running|waiting)(?:\{[^}]*\})? +(\S+)", re.MULTILINE)


class EngineError(HeliotropeError):
    """An engine gave no answer, or not the one that was asked for."""


@dataclass(frozen=True, slots=True)
class Looked:
    """What an engine says of itself."""

    asleep: bool
    requests: float | None
    """Running and waiting; None: it does not say."""


class Engines:
    """One HTTP session for all; `close` ends it. Addresses are `host:port`."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def look(self, address: str) -> Looked:
        """Whether it sleeps, and how many requests it has.

        Raises:
            EngineError: if it does not say whether it sleeps; one without the development mode does not.
        """
        document = await self._json("GET", address, "/is_sleeping", LOOK_TIMEOUT_S)
        asleep = document.get("is_sleeping")
        if not isinstance(asleep, bool):
            raise EngineError(f"{address}/is_sleeping does not say whether the engine sleeps")
        counts = [
            _number(text) for text in _COUNTS.findall(await self._read("GET", address, "/metrics", LOOK_TIMEOUT_S))
        ]
        known = [count for count in counts if count is not None]
        return Looked(asleep, sum(known) if known and len(known) == len(counts) else None)

    async def sleep(self, address: str) -> None:
        """Put it to sleep, and see that it sleeps.

        Raises:
            EngineError: if it does not.
        """
        await self._read("POST", address, f"/sleep?level={SLEEP_LEVEL}", MOVE_TIMEOUT_S)
        if not (await self._json("GET", address, "/is_sleeping", LOOK_TIMEOUT_S)).get("is_sleeping"):
            raise EngineError(f"{address} answered /sleep and does not sleep")

    async def wake(self, address: str) -> None:
        """Wake it, and see that it is awake; nothing happens to one that is.

        Raises:
            EngineError: if it does not wake.
        """
        if (await self._json("GET", address, "/is_sleeping", LOOK_TIMEOUT_S)).get("is_sleeping") is False:
            return
        await self._read("POST", address, "/wake_up", MOVE_TIMEOUT_S)
        if (await self._json("GET", address, "/is_sleeping", LOOK_TIMEOUT_S)).get("is_sleeping") is not False:
            raise EngineError(f"{address} answered /wake_up and still sleeps")

    async def _json(self, method: str, address: str, path: str, timeout_s: float) -> Mapping[str, Any]:
        body = await self._read(method, address, path, timeout_s)
        try:
            document = json.loads(body)
        except ValueError:
            raise EngineError(f"{address}{path}: the answer is not JSON") from None
        if not isinstance(document, dict):
            raise EngineError(f"{address}{path}: the answer is not an object")
        return document

    async def _read(self, method: str, address: str, path: str, timeout_s: float) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, f"http://{address}{path}", timeout=timeout) as response:
                body = await response.content.read(MAX_PAGE_BYTES)
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise EngineError(f"{address}{path}: {str(error) or type(error).__name__}") from error
        if status == 404:
            raise EngineError(
                f"{address}{path}: not found; the engine needs VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode"
            )
        if status >= 400:
            raise EngineError(f"{address}{path}: HTTP {status}")
        return body


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None
