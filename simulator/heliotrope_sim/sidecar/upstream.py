"""Calls to other engines, and answers passed through piece by piece."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
from aiohttp import web

from heliotrope_sim.sidecar.errors import decoder_down, timed_out, unreachable
from heliotrope_sim.sidecar.routes import ROUTING_HEADERS
from heliotrope_sim.sidecar.usage import CachedTokens

# Of one connection each (RFC 9110 §7.6.1), or made anew for a changed body.
_HOP_BY_HOP = frozenset(
    (
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
        "upgrade", "host", "content-length",
    )
)  # fmt: skip
_RETRYABLE = frozenset((HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT))

REQUEST_ID = "x-request-id"

Headers = list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Whole:
    """An answer that was read to its end."""

    status: int
    headers: Headers
    body: bytes

    @property
    def failed(self) -> bool:
        """Whether it is no success."""
        return not HTTPStatus.OK <= self.status < HTTPStatus.MULTIPLE_CHOICES

    @property
    def worth_a_retry(self) -> bool:
        """Whether the same host may well answer next time."""
        return self.status in _RETRYABLE

    def response(self) -> web.Response:
        """The same answer again."""
        return web.Response(status=self.status, body=self.body, headers=self.headers)


def forwarded(headers: Mapping[str, str]) -> Headers:
    """The headers of a request that goes to the engine as it is."""
    return [(k, v) for k, v in headers.items() if k.lower() not in _HOP_BY_HOP | ROUTING_HEADERS]


def steered(headers: Mapping[str, str], request_id: str) -> Headers:
    """The headers of one of the requests that are made of a client's; their answers are read, so not compressed."""
    kept = [(k, v) for k, v in forwarded(headers) if k.lower() not in ("accept-encoding", REQUEST_ID)]
    return [*kept, ("accept-encoding", "identity"), (REQUEST_ID, request_id)]


class Upstreams:
    """Connections to engines.

    Args:
        session: the client to call with; it neither follows redirects nor decompresses.
        decoder_url: the sidecar's own engine.
        timeout: for whole answers.
    """

    def __init__(self, session: aiohttp.ClientSession, decoder_url: str, timeout: aiohttp.ClientTimeout) -> None:
        self._session = session
        self._decoder_url = decoder_url
        self._timeout = timeout

    async def whole(self, stage: str, target: str, path: str, headers: Headers, body: bytes) -> Whole:
        """Post to an engine and read its whole answer; an engine that does not answer is a 502 or 504."""
        try:
            async with self._session.post(
                f"http://{target}{path}", data=body, headers=headers, timeout=self._timeout, allow_redirects=False
            ) as answer:
                return Whole(answer.status, _answer_headers(answer.headers), await answer.read())
        except TimeoutError:
            error = timed_out(stage)
        except aiohttp.ClientError as failure:
            error = unreachable(stage, type(failure).__name__)
        response = error.response()
        text = response.text or ""
        return Whole(response.status, [("Content-Type", "application/json")], text.encode())

    async def through(
        self, request: web.Request, headers: Headers, body: bytes | None, cached: int | None = None
    ) -> web.StreamResponse:
        """Send a request to the sidecar's engine and its answer on to the client as it comes.

        Args:
            request: the client's.
            headers: what the engine gets.
            body: what the engine gets; None: the client's body as it comes.
            cached: see `CachedTokens`; None: the answer is passed on as it is.

        Raises:
            SidecarError: 502 or 503 if the engine cannot be reached.
        """
        data = body if body is not None else (request.content if request.can_read_body else None)
        try:
            answer = await self._session.request(
                request.method,
                self._decoder_url + request.raw_path,
                data=data,
                headers=headers,
                allow_redirects=False,
                skip_auto_headers=("Content-Type", "User-Agent", "Accept"),
            )
        except aiohttp.ClientConnectorError:
            raise decoder_down() from None
        except (aiohttp.ClientError, TimeoutError) as failure:
            raise unreachable("decode", type(failure).__name__) from None
        async with answer:
            return await _pass_on(request, answer, cached)


async def _pass_on(request: web.Request, answer: aiohttp.ClientResponse, cached: int | None) -> web.StreamResponse:
    response = web.StreamResponse(status=answer.status, headers=_answer_headers(answer.headers))
    if cached is None and answer.content_length is not None:
        response.content_length = answer.content_length
    rewriter = None
    if cached is not None and answer.status == HTTPStatus.OK:
        rewriter = CachedTokens(cached, stream=answer.content_type == "text/event-stream")
    await response.prepare(request)
    try:
        async for piece in answer.content.iter_any():
            await response.write(piece if rewriter is None else rewriter.feed(piece))
    except aiohttp.ClientError:
        # The client must see that the answer is not whole.
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the engine broke off its answer") from None
    if rewriter is not None:
        await response.write(rewriter.finish())
    await response.write_eof()
    return response


def _answer_headers(headers: Mapping[str, str]) -> Headers:
    return [(k, v) for k, v in headers.items() if k.lower() not in _HOP_BY_HOP and k.lower() not in ("date", "server")]
