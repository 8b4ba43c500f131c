"""An external scorer of quality over HTTP. Requests wait for it outside the loop's way, never long, never many.

    POST URL  {"group": "chat", "task": "code", "models": ["large", "small"], "prompt": "…"}
    200       {"quality": {"large": 0.9, "small": 0.8}}

While it does not answer, the table does: a request waits at most the timeout, and after failures in a row the scorer is
left alone for a while, so that a dead one costs no request anything.
"""

import asyncio
import contextlib
import json
import math
from collections import Counter
from dataclasses import dataclass, field
from random import Random

import aiohttp

from heliotrope.decide.quality import Group, Prediction, Predictor
from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.backoff import Backoff
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.plugins.models.predictor import Then, stated

MAX_PROMPT_BYTES = 16_384
"""Of the prompt's end."""
_JSON = {"Content-Type": "application/json"}
MAX_ANSWER_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class ScorerSettings:
    """How a scorer is asked."""

    url: str
    timeout_s: float = 0.2
    max_waiting: int = 256
    """Requests at once; more are answered by the table."""
    connections: int = 32
    first_rest_s: float = 0.5
    longest_rest_s: float = 30.0


@dataclass(slots=True)
class ScorerState:
    """Where it stands."""

    waiting: int = 0
    results: Counter[str] = field(default_factory=Counter)
    """By `scored`, `failed`, `timeout`, `full`, `resting`, `no-text`."""


class HttpScorer:
    """A `QualityPredictor`. Enter it before requests come; leaving it answers what waits by the table."""

    def __init__(self, settings: ScorerSettings, clock: Clock, random: Random) -> None:
        self._settings = settings
        self._clock = clock
        self._backoff = Backoff(settings.first_rest_s, settings.longest_rest_s, random)
        self._rests_until_s = -math.inf
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.state = ScorerState()

    async def __aenter__(self) -> "HttpScorer":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_s),
            connector=aiohttp.TCPConnector(limit=self._settings.connections),
            headers={"User-Agent": "heliotrope-epp"},
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def predict(self, request: LlmRequest, group: Group, task: str, then: Then) -> None:
        """Asks, or answers by the table at once where it cannot."""
        why = self._why_not(request)
        if why is not None or self._session is None:
            result, text = why or ("failed", "the scorer is not running")
            self.state.results[result] += 1
            then(_table(group, task, text))
            return
        question = {
            "group": group.name,
            "task": task,
            "models": [member.model for member in group.members],
            "prompt": request.prompt[-MAX_PROMPT_BYTES:].decode("utf-8", "ignore"),
        }
        body = json.dumps(question).encode()
        self.state.waiting += 1
        running = asyncio.get_running_loop().create_task(self._ask(self._session, body, group, task, then))
        self._tasks.add(running)
        running.add_done_callback(self._tasks.discard)

    def _why_not(self, request: LlmRequest) -> tuple[str, str] | None:
        if request.token_ids:
            return "no-text", "the prompt is no text"
        if self._clock.monotonic() < self._rests_until_s:
            return "resting", "the scorer has failed and is left alone"
        if self.state.waiting >= self._settings.max_waiting:
            return "full", "too many requests wait for the scorer"
        return None

    async def _ask(self, session: aiohttp.ClientSession, body: bytes, group: Group, task: str, then: Then) -> None:
        prediction = _table(group, task, "the picker is stopping")
        try:
            prediction = await self._scored(session, body, group, task)
            self._backoff.succeeded()
            self.state.results["scored"] += 1
        except TimeoutError:
            prediction = self._failed("timeout", "the scorer did not answer in time", group, task)
        except (aiohttp.ClientError, OSError, ValueError):
            prediction = self._failed("failed", "the scorer gave no usable answer", group, task)
        finally:
            self.state.waiting -= 1
            then(prediction)

    async def _scored(self, session: aiohttp.ClientSession, body: bytes, group: Group, task: str) -> Prediction:
        async with session.post(self._settings.url, data=body, headers=_JSON, allow_redirects=False) as answer:
            if answer.status != 200:
                raise ValueError("status")
            text = bytearray()
            async for piece in answer.content.iter_any():
                text += piece
                if len(text) > MAX_ANSWER_BYTES:
                    raise ValueError("length")
        return Prediction(_read(bytes(text), group, task), Predictor.HTTP, task)

    def _failed(self, result: str, why: str, group: Group, task: str) -> Prediction:
        self.state.results[result] += 1
        # Requests that were under way together are one failure.
        if self._clock.monotonic() >= self._rests_until_s:
            self._rests_until_s = self._clock.monotonic() + self._backoff.failed()
        return _table(group, task, why)


def _table(group: Group, task: str, why: str) -> Prediction:
    return Prediction(stated(group, task), Predictor.TABLE, task, why)


def _read(text: bytes, group: Group, task: str) -> dict[str, float]:
    """The answer's qualities; the table's where it leaves a member out.

    Raises:
        ValueError: if it is no such answer.
    """
    with contextlib.suppress(RecursionError):
        document = json.loads(text)
        given = document.get("quality") if isinstance(document, dict) else None
        if isinstance(given, dict):
            quality = dict(stated(group, task))
            for model in quality:
                value = given.get(model)
                if value is None:
                    continue
                if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value <= 1.0:
                    raise ValueError("quality")
                quality[model] = float(value)
            return quality
    raise ValueError("quality")
