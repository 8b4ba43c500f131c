"""The engine as its clients see it: the OpenAI API with vLLM's extensions, and its metrics page."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import httpx

from heliotrope.errors import InvalidInputError
from heliotrope_agent.calibrate.errors import CalibrationError, EngineUnreachableError
from heliotrope_agent.calibrate.pace import Pace
from heliotrope_agent.calibrate.page import Page, read_page

CONNECT_SECONDS = 5.0
PAGE_SECONDS = 10.0
ANSWER_SECONDS = 900.0
"""Wall-clock time for one answer: the longest at the lowest clock takes minutes."""
MAX_PAGE_BYTES = 16 * 1024 * 1024
_LEAST_VOCABULARY = 32
_WORDS = (
    "the sun turns and every plant in this garden follows its light from early morning until late evening while rain "
    "wind snow cold heat night river mountain forest city train music number letter green blue seven twelve quickly "
    "never under between question answer machine energy carbon clock measure repeat again because however although"
)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself."""

    model: str
    version: str | None
    max_model_len: int | None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer, as the engine counts them."""

    prompt_tokens: int
    answer_tokens: int


class EngineClient:
    """Talks to one engine.

    Args:
        url: its base address, such as `http://127.0.0.1:8000`, with or without `/v1`.
        pace: the clock that pages are stamped with.
        model: as requests name it; None: the only one that it serves.
        api_key: for `Authorization: Bearer`; None: none.
        rng: for prompts that no cache has seen.
    """

    def __init__(
        self, url: str, pace: Pace, *, model: str | None = None, api_key: str | None = None, rng: random.Random
    ) -> None:
        self.url = _base(url)
        self._pace = pace
        self._model = model
        self._rng = rng
        self._vocabulary: tuple[int, ...] = ()
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={"authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(PAGE_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None),
            trust_env=False,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def facts(self) -> EngineFacts:
        """Ask what it serves, and learn its vocabulary.

        Raises:
            EngineUnreachableError: if it does not answer as an engine does.
            InvalidInputError: if it does not serve the model, or several and none is named.
        """
        cards = (await self._json("GET", "/v1/models")).get("data") or []
        served = {str(card.get("id")): card for card in cards if isinstance(card, dict)}
        if self._model is None:
            if len(served) != 1:
                raise InvalidInputError("--model", f"say which; the engine serves {', '.join(served) or 'none'}")
            (self._model,) = served
        if self._model not in served:
            raise InvalidInputError(
                "--model", f"the engine at {self.url} does not serve {self._model}; it serves {', '.join(served)}"
            )
        length = served[self._model].get("max_model_len")
        version: str | None = None
        try:
            version = str((await self._json("GET", "/version")).get("version"))
        except EngineUnreachableError:
            version = None
        await self._learn_vocabulary()
        return EngineFacts(self._model, version, length if isinstance(length, int) else None)

    async def _learn_vocabulary(self) -> None:
        """Token ids that certainly mean something to the model: those of a text."""
        answer = await self._json("POST", "/tokenize", {"model": self._model, "prompt": _WORDS})
        tokens = answer.get("tokens")
        if not isinstance(tokens, list) or not all(isinstance(each, int) for each in tokens):
            raise EngineUnreachableError(f"{self.url}/tokenize answers without tokens; vLLM's does")
        self._vocabulary = tuple(sorted({*tokens[1:]}))
        if len(self._vocabulary) < _LEAST_VOCABULARY:
            raise EngineUnreachableError(f"{self.url}/tokenize knows {len(self._vocabulary)} tokens of a long text")

    def prompt(self, tokens: int) -> list[int]:
        """A prompt of random tokens, so that no prefix of it is in a cache."""
        return self._rng.choices(self._vocabulary, k=tokens)

    async def page(self) -> Page:
        """Read its metrics.

        Raises:
            EngineUnreachableError: if there are none, or they lack what is needed.
        """
        asked_s = self._pace.now_s()
        response = await self._send("GET", "/metrics")
        took_s = self._pace.now_s() - asked_s
        if len(response.content) > MAX_PAGE_BYTES:
            raise EngineUnreachableError(f"{self.url}/metrics is longer than {MAX_PAGE_BYTES} bytes")
        return read_page(response.text, asked_s + took_s / 2.0, took_s)

    async def answer(self, prompt: Sequence[int], tokens: int) -> Usage:
        """Have a prompt answered with exactly so many tokens.

        Raises:
            EngineUnreachableError: if it refuses or does not answer.
            CalibrationError: if the answer has another length.
        """
        body = {
            "model": self._model,
            "prompt": list(prompt),
            "max_tokens": tokens,
            "min_tokens": tokens,
            "ignore_eos": True,
            "temperature": 0.0,
            "stream": False,
        }
        found = await self._json("POST", "/v1/completions", body, timeout_s=ANSWER_SECONDS)
        usage = found.get("usage")
        if not isinstance(usage, dict):
            raise EngineUnreachableError(f"{self.url} answers without usage; it is needed to count tokens")
        counted = Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))
        if counted.answer_tokens != tokens or counted.prompt_tokens < len(prompt):
            raise CalibrationError(
                f"asked for {tokens} tokens after a prompt of {len(prompt)}, the engine counted "
                f"{counted.answer_tokens} after {counted.prompt_tokens}: it must honour ignore_eos and min_tokens, "
                "as vLLM does"
            )
        return counted

    async def _json(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        response = await self._send(method, path, body, timeout_s=timeout_s)
        try:
            found = response.json()
        except ValueError:
            raise EngineUnreachableError(f"{self.url}{path} answers no JSON: it is no OpenAI API") from None
        if not isinstance(found, dict):
            raise EngineUnreachableError(f"{self.url}{path} answers no JSON object: it is no OpenAI API")
        return found

    async def _send(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> httpx.Response:
        timeout = httpx.USE_CLIENT_DEFAULT if timeout_s is None else httpx.Timeout(timeout_s, connect=CONNECT_SECONDS)
        try:
            response = await self._http.request(method, path, json=body, timeout=timeout)
        except httpx.TimeoutException as error:
            raise EngineUnreachableError(f"{self.url}{path} did not answer in time ({type(error).__name__})") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise EngineUnreachableError(
                f"{self.url}{path} cannot be reached: {str(error) or type(error).__name__}; is the engine up?"
            ) from error
        if response.status_code >= 400:
            raise EngineUnreachableError(f"{self.url}{path} answers {response.status_code}: {_reason(response)}")
        return response


def _base(url: str) -> str:
    base = url.rstrip("/").removesuffix("/v1").rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise InvalidInputError("ENGINE", f"{url} must begin with http:// or https://, such as http://127.0.0.1:8000")
    return base


def _reason(response: httpx.Response) -> str:
    """What the engine says is wrong, short; it never holds a prompt, as errors of ours are logged."""
    try:
        found = response.json()
    except ValueError:
        return response.reason_phrase
    error = found.get("error", found) if isinstance(found, dict) else {}
    message = error.get("message") if isinstance(error, dict) else None
    return str(message)[:200] if message else response.reason_phrase
