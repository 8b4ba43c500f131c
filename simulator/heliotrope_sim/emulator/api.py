"""The OpenAI API of one engine, as vLLM serves it."""

import asyncio
import hashlib
import json
import time
import uuid
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import HttpVersion11, web

from heliotrope.errors import InvalidInputError
from heliotrope_sim.emulator.answers import Answer
from heliotrope_sim.emulator.config import Role
from heliotrope_sim.emulator.driver import EngineDriver
from heliotrope_sim.emulator.errors import ApiError, bad_request, load_failed, unknown_model
from heliotrope_sim.emulator.faults import Fault, FaultInjector, FaultKind
from heliotrope_sim.emulator.generation import ABORTED, FAILED, Generation
from heliotrope_sim.emulator.intake import Intake
from heliotrope_sim.emulator.messages import Prompt
from heliotrope_sim.emulator.protocol import (
    OUTPUT_TOKENS_HEADER,
    ChatRequest,
    CompletionRequest,
    GenerationRequest,
    TokenizeRequest,
    parse,
)
from heliotrope_sim.emulator.sse import ChunkWriter, Identity, encoder_response, full_response, usage
from heliotrope_sim.emulator.transfer.node import TransferNode
from heliotrope_sim.emulator.transfer.page import shared_page
from heliotrope_sim.emulator.transfer.pulls import Pull

VLLM_VERSION = "0.32.0"
ENGINE_HEADER = "x-inference-pod"


class OpenAIApi:
    """The routes of one engine."""

    def __init__(self, driver: EngineDriver, faults: FaultInjector, transfer: TransferNode | None = None) -> None:
        self._driver = driver
        self._faults = faults
        self._transfer = transfer
        self._intake = Intake(driver, transfer)
        encoder = driver.config.encoder
        self._visual = None if encoder is None else encoder.visual_tokens
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
        tokens = body.tokens(self._visual)
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
        page = self._driver.page()
        page += shared_page(self._driver, self._transfer)
        return web.Response(body=page.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    def _check_model(self, model: str | None) -> None:
        if model and model != self._driver.served_model:
            raise unknown_model(model, self._driver.served_model)

    async def _generate(self, request: web.Request, body: GenerationRequest, *, chat: bool) -> web.StreamResponse:
        self._check_model(body.model)
        body.check(body.token_limit)
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has gone")
        identity = self._identity(request, chat=chat)
        prompt = body.prompt(self._visual)
        if self._driver.config.role is Role.ENCODE:
            return await self._encode(transport, body, prompt, identity)
        if body.stream and request.version < HttpVersion11:
            raise ApiError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "Streams need HTTP/1.1.")
        fixed_tokens = body.fixed_tokens(request.headers.get(OUTPUT_TOKENS_HEADER))
        try:
            answer = self._intake.plan(body, prompt, fixed_tokens)
            cut_after_tokens = await self._suffer(self._faults.strike())
            self._driver.admit()
        except ApiError:
            self._intake.decline(body, identity.response_id)
            raise
        engine_request, pull = await self._intake.request(body, prompt, answer, identity.response_id)
        generation = Generation(
            request=engine_request,
            answer=answer,
            identity=identity,
            transport=transport,
            done=asyncio.get_running_loop().create_future(),
            chunks=ChunkWriter(identity, answer, chat=chat, include_usage=body.include_usage) if body.stream else None,
            cut_after_tokens=cut_after_tokens,
        )
        if body.stream:
            return await self._stream(request, generation, pull)
        return await self._answer(generation, pull, chat=chat)

    def _identity(self, request: web.Request, *, chat: bool) -> Identity:
        return Identity(
            response_id=("chatcmpl-" if chat else "cmpl-") + (request.headers.get("x-request-id") or uuid.uuid4().hex),
            created=int(time.time()),
            model=self._driver.served_model,
            fingerprint=self._fingerprint,
        )

    async def _encode(
        self, transport: asyncio.WriteTransport, body: GenerationRequest, prompt: Prompt, identity: Identity
    ) -> web.Response:
        """Encode the images of a prompt and say where the embeddings are."""
        if body.stream:
            raise bad_request("This engine only encodes and does not stream.", "stream")
        if not prompt.images:
            raise bad_request("This engine only encodes: the prompt must hold images.", "messages")
        cut_after_tokens = await self._suffer(self._faults.strike())
        self._driver.admit()
        generation = Generation(
            request=self._intake.encoding(prompt),
            answer=Answer(0, 1, "length"),
            identity=identity,
            transport=transport,
            done=asyncio.get_running_loop().create_future(),
            cut_after_tokens=cut_after_tokens,
        )
        await self._finish(generation, None)
        if generation.finish_reason == ABORTED or self._transfer is None:
            raise ApiError(HTTPStatus.SERVICE_UNAVAILABLE, "The engine dropped the request.")
        held = self._transfer.embedded(generation.request.images)
        return self._json(encoder_response(identity, usage(len(prompt.tokens), 0, 0), held))

    async def _suffer(self, fault: Fault | None) -> int | None:
        """Let a fault strike before the engine sees the request; the tokens after which it cuts the connection."""
        if fault is None:
            return None
        if fault.kind is FaultKind.ERROR:
            raise ApiError(HTTPStatus(fault.status), "Injected fault")
        if fault.kind is FaultKind.SLOW:
            await asyncio.sleep(fault.delay_seconds)
        elif fault.kind is FaultKind.HANG:
            # Until the client goes, which cancels this handler.
            await asyncio.Event().wait()
        return fault.after_tokens if fault.kind is FaultKind.CUT else None

    async def _answer(self, generation: Generation, pull: Pull | None, *, chat: bool) -> web.Response:
        await self._finish(generation, pull)
        if generation.finish_reason == FAILED:
            raise load_failed()
        handed_over = None
        if self._transfer is not None and generation.request.hold_ns is not None and generation.complete:
            handed_over = self._transfer.handed_over(generation)
        return self._json(
            full_response(
                generation.identity,
                generation.text(),
                generation.finish_reason or "",
                generation.usage(),
                chat=chat,
                kv_transfer_params=handed_over,
            )
        )

    def _json(self, body: dict[str, Any]) -> web.Response:
        return web.json_response(
            body,
            dumps=partial(json.dumps, separators=(",", ":")),
            headers={ENGINE_HEADER: self._driver.config.name},
        )

    async def _stream(self, request: web.Request, generation: Generation, pull: Pull | None) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                ENGINE_HEADER: self._driver.config.name,
            }
        )
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
        except BaseException:
            if pull is not None and self._transfer is not None:
                self._transfer.pulls.let_go(pull)
            raise
        await self._finish(generation, pull)
        await response.write_eof()
        return response

    async def _finish(self, generation: Generation, pull: Pull | None) -> None:
        """Submit and wait for the end; a client that goes cancels this and aborts the request."""
        if pull is not None:
            generation.kv_settled = asyncio.get_running_loop().create_future()
        try:
            self._driver.submit(generation)
        except InvalidInputError:
            if pull is not None and self._transfer is not None:
                self._transfer.pulls.let_go(pull)
            raise
        if pull is not None and self._transfer is not None:
            self._transfer.pulls.follow(pull, generation)
        try:
            await generation.done
        finally:
            self._driver.abort(generation)
