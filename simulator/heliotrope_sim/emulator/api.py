"""The OpenAI API of one engine, as vLLM serves it."""

import asyncio
import hashlib
import itertools
import json
import time
import uuid
from functools import partial
from http import HTTPStatus

from aiohttp import HttpVersion11, web

from heliotrope_sim.emulator.answers import plan_answer, prompt_key
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import ApiError, bad_request, unknown_model
from heliotrope_sim.emulator.faults import Fault, FaultInjector, FaultKind
from heliotrope_sim.emulator.generation import Generation
from heliotrope_sim.emulator.protocol import (
    OUTPUT_TOKENS_HEADER,
    ChatRequest,
    CompletionRequest,
    TokenizeRequest,
    parse,
)
from heliotrope_sim.emulator.sse import ChunkWriter, Identity, full_response
from heliotrope_sim.emulator.tokens import block_hashes
from heliotrope_sim.engine import Request

VLLM_VERSION = "0.32.0"
ENGINE_HEADER = "x-inference-pod"


class OpenAIApi:
    """The routes of one engine."""

    def __init__(self, driver: EngineDriver, faults: FaultInjector) -> None:
        self._driver = driver
        self._faults = faults
        self._serial = itertools.count(1)
        self._created = int(time.time())
        digest = hashlib.blake2b(repr(driver.engine.model).encode(), digest_size=4).hexdigest()
        self._fingerprint = f"vllm-{VLLM_VERSION}-emulated-{digest}"

    def routes(self) -> list[web.RouteDef]:
        """What to serve."""
        return [
            web.post("/v1/chat/completions", self.chat_completions),
            web.post("/v1/completions", self.completions),
            web.get("/v1/models", self.models),
            web.post("/tokenize", self.tokenize),
            web.get("/health", self.health),
            web.get("/ping", self.health),
            web.post("/ping", self.health),
            web.get("/version", self.version),
            web.get("/metrics", self.metrics),
        ]

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        """Answer a conversation."""
        body = parse(ChatRequest, request.content_type, await request.read())
        return await self._generate(request, body, chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Continue a text."""
        body = parse(CompletionRequest, request.content_type, await request.read())
        return await self._generate(request, body, chat=False)

    async def models(self, _request: web.Request) -> web.Response:
        """The one model that is served."""
        driver = self._driver
        card = {
            "id": driver.served_model,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": driver.served_model,
            "parent": None,
            "max_model_len": driver.max_model_len,
        }
        return web.json_response({"object": "list", "data": [card]})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Tokens of a prompt or a conversation."""
        body = parse(TokenizeRequest, request.content_type, await request.read())
        self._check_model(body.model)
        tokens = body.tokens()
        return web.json_response(
            {
                "count": len(tokens),
                "max_model_len": self._driver.max_model_len,
                "tokens": tokens.tolist(),
                "token_strs": None,
            }
        )

    async def health(self, _request: web.Request) -> web.Response:
        """200 while the engine lives."""
        return web.Response(status=200 if self._driver.running and self._faults.healthy else 503)

    async def version(self, _request: web.Request) -> web.Response:
        """The version of vLLM whose API this is."""
        return web.json_response({"version": f"{VLLM_VERSION}+emulated"})

    async def metrics(self, _request: web.Request) -> web.Response:
        """The Prometheus page."""
        page = self._driver.metrics.page(self._driver.meter_ns(self._driver.clock.now_ns()))
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _check_model(self, model: str | None) -> None:
        if model and model != self._driver.served_model:
            raise unknown_model(model, self._driver.served_model)

    async def _generate(
        self, request: web.Request, body: ChatRequest | CompletionRequest, *, chat: bool
    ) -> web.StreamResponse:
        self._check_model(body.model)
        body.check()
        generation = self._plan(request, body, chat=chat)
        fault = self._faults.strike()
        if fault is not None:
            await self._suffer(fault, generation)
        self._driver.admit()
        if body.stream:
            if request.version < HttpVersion11:
                raise ApiError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Streams need HTTP/1.1.")
            return await self._stream(request, generation)
        return await self._answer(generation, chat=chat)

    def _plan(self, request: web.Request, body: ChatRequest | CompletionRequest, *, chat: bool) -> Generation:
        driver = self._driver
        prompt = body.prompt_tokens()
        if not len(prompt):
            raise bad_request("The decoder prompt cannot be empty", "prompt")
        room = driver.max_model_len - len(prompt)
        if room < 1:
            raise bad_request(
                f"This model's maximum context length is {driver.max_model_len} tokens. However, your prompt "
                f"contains {len(prompt)} input tokens, which exceeds this limit even without any output tokens. "
                f"Please reduce the length of the input prompt.",
                "input_tokens",
            )
        if body.token_limit is not None and body.token_limit > driver.max_model_len:
            raise bad_request(
                f"max_tokens={body.token_limit} cannot be greater than max_model_len={driver.max_model_len}. "
                f"Please request fewer output tokens.",
                "max_tokens",
            )
        limit = room if body.token_limit is None else min(room, body.token_limit)
        answer = plan_answer(
            prompt_key(prompt, driver.config.seed, body.seed),
            driver.config.output_length,
            limit=limit,
            ignore_eos=body.ignore_eos,
            min_tokens=body.min_tokens,
            fixed_tokens=body.fixed_tokens(request.headers.get(OUTPUT_TOKENS_HEADER)),
        )
        hashes = block_hashes(prompt, answer.token_ids(), driver.engine.kv.block_size, body.cache_salt or "")
        identity = Identity(
            response_id=("chatcmpl-" if chat else "cmpl-") + (request.headers.get("x-request-id") or uuid.uuid4().hex),
            created=int(time.time()),
            model=driver.served_model,
            fingerprint=self._fingerprint,
        )
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        return Generation(
            request=Request(str(next(self._serial)), len(prompt), answer.tokens, hashes),
            answer=answer,
            identity=identity,
            transport=transport,
            done=asyncio.get_running_loop().create_future(),
            chunks=ChunkWriter(identity, answer, chat=chat, include_usage=body.include_usage) if body.stream else None,
        )

    async def _suffer(self, fault: Fault, generation: Generation) -> None:
        if fault.kind is FaultKind.ERROR:
            raise ApiError(HTTPStatus(fault.status), "Injected fault")
        if fault.kind is FaultKind.CUT:
            generation.cut_after_tokens = fault.after_tokens
        elif fault.kind is FaultKind.SLOW:
            await asyncio.sleep(fault.delay_seconds)
        elif fault.kind is FaultKind.HANG:
            # Until the client goes, which cancels this handler.
            await asyncio.Event().wait()

    async def _answer(self, generation: Generation, *, chat: bool) -> web.Response:
        await self._finish(generation)
        body = full_response(
            generation.identity,
            generation.text(),
            generation.finish_reason or "",
            generation.usage(),
            chat=chat,
        )
        return web.json_response(
            body,
            dumps=partial(json.dumps, separators=(",", ":")),
            headers={ENGINE_HEADER: self._driver.config.name},
        )

    async def _stream(self, request: web.Request, generation: Generation) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                ENGINE_HEADER: self._driver.config.name,
            }
        )
        response.enable_chunked_encoding()
        await response.prepare(request)
        await self._finish(generation)
        await response.write_eof()
        return response

    async def _finish(self, generation: Generation) -> None:
        """Submit and wait for the end; a client that goes cancels this and aborts the request."""
        self._driver.submit(generation)
        try:
            await generation.done
        finally:
            self._driver.abort(generation)
