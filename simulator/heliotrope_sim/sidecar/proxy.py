"""One request through a sidecar: encoders, then the prefiller, then the sidecar's own engine."""

import asyncio
import json
import logging
import uuid
from typing import Any

from aiohttp import web

from heliotrope_sim.sidecar import bodies
from heliotrope_sim.sidecar.config import ECConnector, SidecarConfig
from heliotrope_sim.sidecar.errors import SidecarError, invalid_json, unreachable
from heliotrope_sim.sidecar.routes import Route, route
from heliotrope_sim.sidecar.upstream import REQUEST_ID, Headers, Upstreams, Whole, forwarded, steered

logger = logging.getLogger(__name__)

CHAT_PATH = "/v1/chat/completions"
GENERATION_PATHS = (CHAT_PATH, "/v1/completions")


class Proxy:
    """Handles the requests of one sidecar."""

    def __init__(self, config: SidecarConfig, upstreams: Upstreams) -> None:
        self._config = config
        self._upstreams = upstreams

    async def passed_through(self, request: web.Request) -> web.StreamResponse:
        """Anything but a generation: metrics, health, the engine's own interfaces."""
        return await self._upstreams.through(request, forwarded(request.headers), None)

    async def generation(self, request: web.Request) -> web.StreamResponse:
        """A completion, over the engines that the headers name."""
        via = route(request.headers.items(), self._config)
        raw = await request.read()
        body = bodies.parsed(raw)
        if body is None:
            if via.direct:
                # The engine knows best what is wrong with it.
                return await self._upstreams.through(request, forwarded(request.headers), raw)
            raise invalid_json()
        unsteered = bodies.cleaned(body)
        request_id = request.headers.get(REQUEST_ID) or str(uuid.uuid4())
        if via.encoders and request.path == CHAT_PATH:
            unsteered |= await self._encoded(via, unsteered, request_id)
            # As in llm-d's sidecar, a cached prefix is not pulled for a prompt that went through encoders.
            via = Route(prefiller=via.prefiller)
        if via.prefiller is not None:
            return await self._disaggregated(request, via.prefiller, via.kv_source, unsteered, request_id)
        if via.kv_source is not None:
            source = bodies.kv_source(via.kv_source, self._config.p2p_connector_port)
            unsteered = bodies.with_kv_source(unsteered, source)
        return await self._decoded(request, unsteered, request_id, None)

    async def _disaggregated(
        self, request: web.Request, prefiller: str, kv_source: str | None, body: bodies.Body, request_id: str
    ) -> web.StreamResponse:
        config = self._config
        # Nothing to pull where the prefix is computed.
        source = bodies.kv_source(kv_source, config.p2p_connector_port) if kv_source not in (None, prefiller) else None
        answer = await self._prefilled(request, prefiller, bodies.prefill(body, source), request_id)
        asked = None if answer.failed else bodies.parsed(answer.body)
        if asked is None:
            logger.warning("prefill at %s failed with status %d", prefiller, answer.status)
            if config.prefill_fallback:
                return await self._decoded(request, body, request_id, None)
            if answer.failed:
                return answer.response()
            raise unreachable("prefill", "the answer is not a JSON object")
        return await self._decoded(request, bodies.decode(body, asked), request_id, bodies.cached_tokens(asked))

    async def _prefilled(self, request: web.Request, prefiller: str, body: bodies.Body, request_id: str) -> Whole:
        headers, data = steered(request.headers, request_id), _dumped(body)
        attempt = 0
        while True:
            answer = await self._upstreams.whole("prefill", prefiller, request.path, headers, data)
            if attempt >= self._config.prefill_max_retries or not answer.worth_a_retry:
                return answer
            attempt += 1
            await asyncio.sleep(self._config.prefill_retry_backoff_seconds)

    async def _encoded(self, via: Route, body: bodies.Body, request_id: str) -> dict[str, Any]:
        """Ask the encoders for all images at once; what they say about where the embeddings are.

        Raises:
            SidecarError: 502 if one of them fails; the others are given up.
        """
        parts = bodies.multimodal_parts(body)
        headers = [("Content-Type", "application/json"), ("accept-encoding", "identity")]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(
                        self._primed(
                            via.encoders[i % len(via.encoders)],
                            [*headers, (REQUEST_ID, f"{request_id}-enc-{i}")],
                            _dumped(bodies.encode(body, part)),
                        )
                    )
                    for i, part in enumerate(parts)
                ]
        except* SidecarError as failures:
            raise _first(failures) from None
        if self._config.ec_connector is not ECConnector.NIXL:
            return {}
        merged = {key: value for task in tasks for key, value in task.result().items()}
        return {bodies.EC_PARAMS: merged} if merged else {}

    async def _primed(self, encoder: str, headers: Headers, body: bytes) -> dict[str, Any]:
        answer = await self._upstreams.whole("encode", encoder, CHAT_PATH, headers, body)
        if answer.failed:
            raise unreachable("encode", f"{encoder} answered with status {answer.status}")
        params = (bodies.parsed(answer.body) or {}).get(bodies.EC_PARAMS)
        return params if isinstance(params, dict) else {}

    async def _decoded(
        self, request: web.Request, body: bodies.Body, request_id: str, cached: int | None
    ) -> web.StreamResponse:
        return await self._upstreams.through(request, steered(request.headers, request_id), _dumped(body), cached)


def _first(failures: ExceptionGroup[SidecarError]) -> SidecarError:
    first = failures.exceptions[0]
    return first if isinstance(first, SidecarError) else _first(first)


def _dumped(body: bodies.Body) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode("utf-8", errors="surrogatepass")
