"""The demo's clients: open-loop OpenAI requests through the gateway, and conversations that wait for their answers."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import aiohttp

from heliotrope_sim.demo.answer import Answer
from heliotrope_sim.demo.plan import Message, PlannedRequest

REQUEST_TIMEOUT_SECONDS = 120.0
ENGINE_HEADER = "x-inference-pod"
"""Engines name themselves in it, as llm-d's simulator does."""
TURN_BEFORE_FAILED = "the turn before it failed"


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
    conversation: str | None = None
    turn: int = 0
    prompt_tokens: int = 0
    """As the engine counted."""
    cached_tokens: int = 0
    """Of them, what the engine had cached."""
    history_tokens: int = 0
    """Of them, about what earlier turns had computed somewhere."""

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


@dataclass(slots=True)
class _Talk:
    """A conversation while it goes on."""

    messages: list[Message] = field(default_factory=list)
    last: asyncio.Task[bool] | None = None
    """Its newest turn; whether it got its whole answer."""
    ended_s: float = 0.0


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
            talks: dict[str, _Talk] = {}
            for position, request in enumerate(planned):
                await asyncio.sleep(max(start_s + request.arrival_seconds - loop.time(), 0.0))
                self.started += 1
                if request.conversation is None:
                    group.create_task(self._send(session, position, request, _Talk()))
                else:
                    talk = talks.setdefault(request.conversation, _Talk())
                    talk.last = group.create_task(self._take_turn(session, position, request, talk, talk.last))

    async def _take_turn(
        self,
        session: aiohttp.ClientSession,
        position: int,
        request: PlannedRequest,
        talk: _Talk,
        before: asyncio.Task[bool] | None,
    ) -> bool:
        """Wait for the turn before and its pause, then send everything that was said and the new message."""
        if before is not None:
            if not await before:
                self._on_result(_never_sent(request))
                return False
            await asyncio.sleep(max(talk.ended_s + request.pause_seconds - asyncio.get_running_loop().time(), 0.0))
        return await self._send(session, position, request, talk)

    async def _send(self, session: aiohttp.ClientSession, position: int, request: PlannedRequest, talk: _Talk) -> bool:
        headers = {
            "content-type": "application/json",
            "x-request-id": request.request_id,
            **self._headers_for(position),
        }
        body = request.body(talk.messages)
        loop = asyncio.get_running_loop()
        sent_s = loop.time()
        answer = Answer(keep_text=request.conversation is not None)
        status: int | None = None
        engine: str | None = None
        error = ""
        try:
            async with session.post(self._url, data=body, headers=headers) as response:
                status = response.status
                engine = response.headers.get(ENGINE_HEADER)
                if status == 200 and request.streaming:
                    await answer.read_stream(response.content, loop.time)
                else:
                    answer.read_whole(await response.read(), status)
        except (aiohttp.ClientError, TimeoutError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        talk.ended_s = loop.time()
        talk.messages += [*request.messages, {"role": "assistant", "content": answer.text}]
        result = RequestResult(
            request_id=request.request_id,
            arrival_seconds=request.arrival_seconds,
            streaming=request.streaming,
            status=status,
            output_tokens=answer.tokens,
            ttft_seconds=None if answer.first_s is None else answer.first_s - sent_s,
            tpot_seconds=answer.tpot_seconds(),
            e2e_seconds=talk.ended_s - sent_s,
            engine=engine,
            error=error or answer.problem,
            response_id=answer.response_id,
            conversation=request.conversation,
            turn=request.turn,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            history_tokens=request.history_tokens,
        )
        self._on_result(result)
        return not result.failed


def _never_sent(request: PlannedRequest) -> RequestResult:
    return RequestResult(
        request_id=request.request_id,
        arrival_seconds=request.arrival_seconds,
        streaming=request.streaming,
        status=None,
        output_tokens=0,
        ttft_seconds=None,
        tpot_seconds=None,
        e2e_seconds=0.0,
        error=TURN_BEFORE_FAILED,
        conversation=request.conversation,
        turn=request.turn,
        history_tokens=request.history_tokens,
    )
