"""The demo's clients: open-loop OpenAI requests through the gateway, half of them streamed."""

import asyncio
import json
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from heliotrope_sim.workload.prompts import prompt_of
from heliotrope_sim.workload.trace import TraceRequest

REQUEST_TIMEOUT_SECONDS = 120.0
MAX_OUTPUT_TOKENS = 2_048
ENGINE_HEADER = "x-inference-pod"
"""Engines name themselves in it, as llm-d's simulator does."""


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of an arm; both arms send the same ones at the same times."""

    request_id: str
    arrival_seconds: float
    prompt_tokens: int
    output_tokens: int
    streaming: bool
    body: bytes


@dataclass(frozen=True, slots=True)
class RequestResult:
    """What a client saw of one request; times in seconds from its arrival."""

    request_id: str
    arrival_seconds: float
    streaming: bool
    status: int | None
    """None: the connection failed."""
    output_tokens: int
    ttft_seconds: float | None
    """Only streamed answers show it."""
    tpot_seconds: float | None
    e2e_seconds: float
    engine: str | None = None
    """Which engine served it, by its own word."""
    error: str = ""
    response_id: str | None = None
    """The engine's name of its answer."""

    @property
    def failed(self) -> bool:
        """Whether the client did not get its whole answer."""
        return self.status != 200 or bool(self.error)

    def violates(self, ttft_slo_seconds: float, tpot_slo_seconds: float) -> bool:
        """Whether it broke its promise. An answer in one piece must come by when a streamed one would have ended."""
        if self.failed:
            return True
        if self.ttft_seconds is not None and self.tpot_seconds is not None:
            return self.ttft_seconds > ttft_slo_seconds or self.tpot_seconds > tpot_slo_seconds
        return self.e2e_seconds > ttft_slo_seconds + max(self.output_tokens - 1, 0) * tpot_slo_seconds


def plan(requests: Sequence[TraceRequest], *, model: str, stream_share: float, seed: int) -> list[PlannedRequest]:
    """Turn a stretch of a trace into OpenAI requests; every `1 / stream_share`-th is streamed, evenly spread."""
    planned = []
    streamed = 0.0
    for index, request in enumerate(requests):
        streamed += stream_share
        streaming = streamed >= 1.0 - 1e-9
        if streaming:
            streamed -= 1.0
        planned.append(
            PlannedRequest(
                request_id=f"demo-{index:05d}",
                arrival_seconds=request.arrival_seconds,
                prompt_tokens=request.prompt_tokens,
                output_tokens=request.output_tokens,
                streaming=streaming,
                body=_body(request, model=model, streaming=streaming, seed=seed * 1_000_003 + index),
            )
        )
    return planned


def _body(request: TraceRequest, *, model: str, streaming: bool, seed: int) -> bytes:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": prompt_of(request.prompt_tokens, seed)}],
        "max_tokens": MAX_OUTPUT_TOKENS,
        # How long the answer gets is the emulated engine's secret, as a real engine's is: only it reads this.
        "vllm_xargs": {"output_tokens": request.output_tokens},
        "stream": streaming,
    }
    if streaming:
        body["stream_options"] = {"include_usage": True}
    return json.dumps(body).encode()


class LoadGenerator:
    """Sends each planned request at its time, whether or not earlier ones have been answered."""

    def __init__(
        self,
        url: str,
        *,
        headers_for: Callable[[int], Mapping[str, str]],
        on_result: Callable[[RequestResult], None],
    ) -> None:
        """`headers_for` gives further headers by the request's position."""
        self._url = f"{url}/v1/chat/completions"
        self._headers_for = headers_for
        self._on_result = on_result
        self.started = 0

    async def run(self, planned: Sequence[PlannedRequest], start_s: float) -> None:
        """Send all requests; `start_s` is the loop's time of arrival 0. Returns when the last one has ended."""
        loop = asyncio.get_running_loop()
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_SECONDS)
        connector = aiohttp.TCPConnector(limit=0)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False) as session,
            asyncio.TaskGroup() as group,
        ):
            for position, request in enumerate(planned):
                await asyncio.sleep(max(start_s + request.arrival_seconds - loop.time(), 0.0))
                self.started += 1
                group.create_task(self._send(session, position, request))

    async def _send(self, session: aiohttp.ClientSession, position: int, request: PlannedRequest) -> None:
        headers = {
            "content-type": "application/json",
            "x-request-id": request.request_id,
            **self._headers_for(position),
        }
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        answer = _Answer()
        status: int | None = None
        engine: str | None = None
        error = ""
        try:
            async with session.post(self._url, data=request.body, headers=headers) as response:
                status = response.status
                engine = response.headers.get(ENGINE_HEADER)
                if status == 200 and request.streaming:
                    await answer.read_stream(response.content, loop.time)
                else:
                    answer.read_whole(await response.read(), status)
        except (aiohttp.ClientError, TimeoutError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        ended_s = loop.time()
        self._on_result(
            RequestResult(
                request_id=request.request_id,
                arrival_seconds=request.arrival_seconds,
                streaming=request.streaming,
                status=status,
                output_tokens=answer.tokens,
                ttft_seconds=None if answer.first_s is None else answer.first_s - sent_s,
                tpot_seconds=answer.tpot_seconds(),
                e2e_seconds=ended_s - sent_s,
                engine=engine,
                error=error or answer.problem,
                response_id=answer.response_id,
            )
        )


class _Answer:
    """Collects what an answer shows while it arrives."""

    def __init__(self) -> None:
        self.tokens = 0
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.problem = ""
        self.response_id: str | None = None

    def tpot_seconds(self) -> float | None:
        if self.first_s is None or self.last_s is None:
            return None
        return (self.last_s - self.first_s) / max(self.tokens - 1, 1)

    async def read_stream(self, lines: AsyncIterable[bytes], clock: Callable[[], float]) -> None:
        """Server-sent events: content chunks, a usage chunk, `[DONE]`."""
        done = False
        async for line in lines:
            if not line.startswith(b"data: "):
                continue
            payload = line[6:].strip()
            if payload == b"[DONE]":
                done = True
            elif b'"usage":{' in payload or b'"usage": {' in payload:
                self._usage(payload)
            elif b'"content":"' in payload or b'"content": "' in payload:
                self._content(payload, clock())
        if not done:
            self.problem = "stream ended without [DONE]"

    def _content(self, payload: bytes, now_s: float) -> None:
        if b'"content":""' in payload or b'"content": ""' in payload:
            return
        if self.first_s is None:
            self.first_s = now_s
        self.last_s = now_s

    def read_whole(self, body: bytes, status: int) -> None:
        """An answer in one piece."""
        if status != 200:
            self.problem = f"HTTP {status}"
            return
        self._usage(body)

    def _usage(self, document: bytes) -> None:
        answer = json.loads(document)
        self.tokens = int(answer["usage"]["completion_tokens"])
        self.response_id = answer.get("id")
