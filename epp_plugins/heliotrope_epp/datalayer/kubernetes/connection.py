"""Calls to the API server: one connection each, for calls are rare and watches long."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kubernetes.credentials import Access, Credentials
from heliotrope_epp.datalayer.kubernetes.errors import (
    ApiError,
    ExpiredError,
    NotServedError,
    RefusedError,
    UnreachableError,
)

_CONNECT_S = 10.0
_CUT_TURNS = 16  # of the loop; it sees the end of a stream at the next, and takes a few to close it
_MAX_EVENT_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Collection:
    """The objects of one kind, in one namespace or in the cluster."""

    group: str
    """Empty for the core group."""
    version: str
    plural: str
    namespace: str | None = None

    @property
    def path(self) -> str:
        """Its URL path."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        scope = f"/namespaces/{self.namespace}" if self.namespace else ""
        return f"{root}{scope}/{self.plural}"

    def __str__(self) -> str:
        kind = f"{self.plural}.{self.group}" if self.group else self.plural
        return f"{kind} in {self.namespace}" if self.namespace else kind


class Connection:
    """One API server, by default that of the kubeconfig or of the pod.

    Credentials are read again when the server refuses them.
    """

    def __init__(self, *, kubeconfig: Path | None = None, credentials: Credentials | None = None) -> None:
        self._credentials = credentials or Credentials(kubeconfig=kubeconfig)
        self._access: Access | None = None
        self._loading = asyncio.Lock()

    async def get(self, path: str, *, params: Mapping[str, str], timeout_s: float, accept: str = "") -> dict[str, Any]:
        """The JSON object at a path.

        Raises:
            ApiError: one of its kinds.
            InvalidInputError: if there are no credentials at the first call.
        """
        limits = aiohttp.ClientTimeout(total=timeout_s)
        async with self._call(path, params, limits, accept) as response:
            answer = json.loads(await response.read())
            if not isinstance(answer, dict):
                raise UnreachableError(f"{path}: the answer is not an object")
            return answer

    async def watch(
        self, path: str, *, params: Mapping[str, str], silence_s: float
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a watch until the server ends it.

        Raises:
            ApiError: one of its kinds: ExpiredError also where the stream itself says so, UnreachableError when nothing
                came for `silence_s`.
            InvalidInputError: if there are no credentials at the first call.
        """
        limits = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=silence_s)
        async with self._call(path, params, limits, "") as response, aclosing(_lines(response)) as lines:
            async for line in lines:
                event = json.loads(line)
                if event.get("type") == "ERROR":
                    status = event.get("object", {})
                    raise _judged(int(status.get("code") or 500), path, str(status.get("message", "")))
                yield event

    @asynccontextmanager
    async def _call(
        self, path: str, params: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        access = await self._accessed(refused=None)
        try:
            for last_try in (False, True):
                async with _answered(access, path, params, limits, accept) as response:
                    if response.status == HTTPStatus.UNAUTHORIZED and not last_try:
                        access = await self._accessed(refused=access)
                        continue
                    if not response.ok:
                        raise _judged(response.status, path, _message(await response.read()))
                    yield response
                    return
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnreachableError(f"{path}: {str(error) or type(error).__name__}") from error

    async def _accessed(self, *, refused: Access | None) -> Access:
        """The credentials, other than those that were refused.

        Raises:
            InvalidInputError: if there are none at the first call.
            UnreachableError: if they are gone later.
        """
        async with self._loading:
            if self._access is None or self._access is refused:
                try:
                    self._access = await self._credentials.load()
                except InvalidInputError as error:
                    if self._access is None:
                        raise
                    raise UnreachableError(str(error)) from error
            return self._access


@asynccontextmanager
async def _answered(
    access: Access, path: str, params: Mapping[str, str], limits: aiohttp.ClientTimeout, accept: str
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The answer to one request, on a connection of its own."""
    headers = {"Accept": accept or "application/json", "User-Agent": "heliotrope-epp"}
    if access.token:
        headers["Authorization"] = f"Bearer {access.token}"
    sockets: list[socket.socket] = []

    def opened(address: tuple[Any, ...]) -> socket.socket:
        family, kind, protocol = address[:3]
        sockets.append(socket.socket(family, kind, protocol))
        return sockets[-1]

    try:
        async with (
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=access.tls, limit=1, socket_factory=opened),
                timeout=limits,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
            ) as session,
            session.get(
                f"{access.server.rstrip('/')}{path}",
                params=dict(params),
                proxy=access.proxy,
                server_hostname=access.tls_server_name,
            ) as response,
        ):
            yield response
    finally:
        await _cut(sockets)


async def _cut(sockets: Sequence[socket.socket]) -> None:
    """End connections now: closed in the middle of an answer, they wait half a minute for the server's farewell."""
    for each in sockets:
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
    for _ in range(_CUT_TURNS):
        if all(each.fileno() < 0 for each in sockets):
            return
        await asyncio.sleep(0)


async def _lines(response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
    """Lines of any length, as the server ends them."""
    rest = b""
    async for chunk in response.content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _MAX_EVENT_BYTES:
            raise UnreachableError(f"an event exceeds {_MAX_EVENT_BYTES} bytes")


def _message(body: bytes) -> str:
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body[:200].decode(errors="replace")


def _judged(status: int, path: str, message: str) -> ApiError:
    text = f"{path}: HTTP {status}: {message}"
    match status:
        case 401 | 403:
            return RefusedError(text)
        case 404:
            return NotServedError(text)
        case 410:
            return ExpiredError(text)
        case _:
            return UnreachableError(text) if status >= 500 or status == 429 else ApiError(text)
