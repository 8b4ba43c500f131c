"""A member's requests to its hub: over TLS, bounded in time and size, without redirects."""

import asyncio
import json
import ssl
from http import HTTPStatus
from typing import Any

import httpx

import heliotrope
from heliotrope.errors import HeliotropeError
from heliotrope.scale.ceilings import MAX_BYTES
from heliotrope_operator.hub.settings import MemberSettings


class HubError(HeliotropeError):
    """The hub gave no usable answer; ceilings hold until they expire."""


class HubClient:
    """Tells needs and pulls ceilings. Authorities and token are read anew for each round, as they are rotated."""

    def __init__(self, settings: MemberSettings) -> None:
        self._settings = settings
        self._etag: str | None = None

    def forget(self) -> None:
        """Pull the whole document next time, changed or not."""
        self._etag = None

    async def exchange(self, summary: dict[str, Any]) -> bytes | None:
        """Tell the needs, then pull the ceilings; None if they are what was pulled last.

        Raises:
            HubError: if the hub cannot be reached, refuses, or answers too much; the message says what to do.
        """
        settings = self._settings
        try:
            context, token = await asyncio.to_thread(self._credentials)
        except (OSError, ValueError) as error:
            raise HubError(f"cannot use the files of the hub's flags: {error}") from None
        headers = {"User-Agent": f"heliotrope/{heliotrope.__version__}", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            async with (
                asyncio.timeout(settings.timeout_s),
                httpx.AsyncClient(verify=context, timeout=settings.timeout_s, headers=headers) as client,
            ):
                await self._tell(client, summary)
                return await self._pull(client)
        except TimeoutError:
            raise HubError(f"no answer within {settings.timeout_s:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise HubError(str(error) or type(error).__name__) from None

    async def _tell(self, client: httpx.AsyncClient, summary: dict[str, Any]) -> None:
        content = json.dumps(summary).encode()
        url = f"{self._settings.url.rstrip('/')}/v1/summaries/{self._settings.name}"
        await self._answer(client, client.build_request("PUT", url, content=content))

    async def _pull(self, client: httpx.AsyncClient) -> bytes | None:
        url = f"{self._settings.url.rstrip('/')}/v1/ceilings/{self._settings.name}"
        conditional = {} if self._etag is None else {"If-None-Match": self._etag}
        status, headers, body = await self._answer(client, client.build_request("GET", url, headers=conditional))
        if status == HTTPStatus.NOT_MODIFIED:
            return None
        self._etag = headers.get("ETag")
        return body

    async def _answer(self, client: httpx.AsyncClient, request: httpx.Request) -> tuple[int, httpx.Headers, bytes]:
        response = await client.send(request, stream=True)
        try:
            pieces, size = [], 0
            async for piece in response.aiter_raw():
                size += len(piece)
                if size > MAX_BYTES:
                    raise HubError(f"the answer is larger than {MAX_BYTES} bytes")
                pieces.append(piece)
        finally:
            await response.aclose()
        status = response.status_code
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise HubError(f"the hub refuses the token of member {self._settings.name} ({status})")
        if status == HTTPStatus.NOT_FOUND:
            raise HubError(f"the hub's plan has no member {self._settings.name}")
        if status not in (HTTPStatus.OK, HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
            raise HubError(f"the hub answers {status}")
        return status, response.headers, b"".join(pieces)

    def _credentials(self) -> tuple[ssl.SSLContext, str | None]:
        settings = self._settings
        context = ssl.create_default_context(cafile=None if settings.ca is None else str(settings.ca))
        token = None if settings.token is None else settings.token.read_text(encoding="ascii").strip()
        if token is not None and (not token or not token.isprintable()):
            raise ValueError(f"{settings.token} holds no token")
        return context, token
