"""Requests to the API server: paths in, documents out, and an error class for each answer that somebody handles."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import kopf

from heliotrope.errors import InvalidInputError
from heliotrope_operator.credentials import Access, Credentials
from heliotrope_operator.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    UnavailableError,
)
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.resources import ResourceType

REQUEST_TIMEOUT_S = 30.0
CONNECTIONS = 16
PAGE = 100
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
_ERRORS: dict[int, type[ApiError]] = {
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
    429: UnavailableError,
}

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    """Some objects of a collection as of one version of the whole collection."""

    items: list[Document]
    resource_version: str


class Kube:
    """The API server, with this operator's credentials; they are read again when it refuses them."""

    def __init__(self, kubeconfig: Path | None, metrics: Metrics) -> None:
        self._credentials = Credentials(kubeconfig)
        self._metrics = metrics
        self._access: Access | None = None
        self._sessions: list[aiohttp.ClientSession] = []
        """The one in use last; one before it may still have requests in flight."""
        self._renewing = asyncio.Lock()

    async def connect(self) -> str:
        """Find credentials and ask the server for its version; returns its address.

        Raises:
            UnavailableError: if the server does not answer.
            InvalidInputError: if there are no credentials.
        """
        access = await self._accessed(None)
        await self.get("/version")
        return access.server

    async def close(self) -> None:
        """Close the connections."""
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await session.close()

    async def connection_info(self) -> kopf.ConnectionInfo:
        """The credentials for Kopf, read anew."""
        return (await self._credentials.load()).kopf

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Document:
        """Read an object or a collection.

        Raises:
            ApiError: as for all requests; see `heliotrope_operator.errors`.
        """
        return await self._request("GET", path, parameters=parameters)

    async def text(self, path: str) -> str:
        """Read what is no document, through one of the server's proxies, for instance a Service's own metrics."""
        return (await self._answer("GET", path)).decode("utf-8", errors="replace")

    async def pages(self, resource: ResourceType, namespace: str = "") -> AsyncIterator[Page]:
        """All objects of a kind, a page at a time, so that few are in memory at once.

        Raises:
            NotFoundError: if the server does not serve the kind.
            ExpiredError: if the list took so long that the server has forgotten its version; start again.
        """
        parameters = {"limit": str(PAGE)}
        while True:
            page = await self.get(resource.path(namespace), parameters)
            yield Page(page.get("items", []), page["metadata"].get("resourceVersion", ""))
            following = page["metadata"].get("continue")
            if not following:
                return
            parameters["continue"] = following

    async def create(self, path: str, document: Document) -> Document:
        """Create an object and return it as the server stored it."""
        return await self._request("POST", path, document)

    async def replace(self, path: str, document: Document) -> Document:
        """Replace an object; its resourceVersion must be the current one."""
        return await self._request("PUT", path, document)

    async def merge(self, path: str, patch: Document, *, manager: str | None = None) -> Document:
        """Change some fields of an object (JSON merge patch), as a manager if one is named; null removes one."""
        parameters = None if manager is None else {"fieldManager": manager}
        return await self._request("PATCH", path, patch, parameters=parameters, content_type=MERGE_PATCH)

    async def apply(self, path: str, document: Document, *, manager: str, force: bool) -> Document:
        """Apply a document server-side; creates what does not exist.

        Its fields become the manager's; fields that the manager owned before and that are not in it are removed.

        Raises:
            ConflictError: if another manager owns a field with another value, and `force` is not set.
        """
        parameters = {"fieldManager": manager, "force": "true" if force else "false"}
        return await self._request("PATCH", path, document, parameters=parameters, content_type=APPLY_PATCH)

    async def delete(self, path: str, *, uid: str | None = None) -> None:
        """Delete an object; with a uid, only that one and not a newer of its name.

        Raises:
            NotFoundError: if it is gone already.
            ConflictError: if there is another of its name.
        """
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        await self._request("DELETE", path, options)

    async def _request(
        self,
        method: str,
        path: str,
        document: Document | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        body = await self._answer(method, path, document, parameters=parameters, content_type=content_type)
        return _document(method, path, body)

    async def _answer(
        self,
        method: str,
        path: str,
        document: Document | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> bytes:
        """The body of an answer that is no refusal."""
        used = await self._accessed(None)
        status, body = await self._send(method, path, document, parameters, content_type, used)
        if status == HTTPStatus.UNAUTHORIZED:
            renewed = await self._accessed(used)
            status, body = await self._send(method, path, document, parameters, content_type, renewed)
        if status < HTTPStatus.BAD_REQUEST:
            return body
        default = UnavailableError if status >= HTTPStatus.INTERNAL_SERVER_ERROR else ApiError
        raise _ERRORS.get(status, default)(f"{method} {path}: {status}: {_message(body)}")

    async def _send(
        self,
        method: str,
        path: str,
        document: Document | None,
        parameters: Mapping[str, str] | None,
        content_type: str,
        access: Access,
    ) -> tuple[int, bytes]:
        """Status and body of one request."""
        headers = {"Accept": "application/json", "Content-Type": content_type}
        if access.token is not None:
            headers["Authorization"] = f"Bearer {access.token}"
        status = 0
        try:
            async with self._sessions[-1].request(
                method,
                access.server + path,
                params=parameters,
                data=None if document is None else json.dumps(document).encode(),
                headers=headers,
                proxy=access.proxy,
                server_hostname=access.tls_server_name,
            ) as response:
                body = await response.read()
                status = response.status
                return status, body
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise UnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            self._metrics.requests.labels(method, str(status)).inc()

    async def _accessed(self, refused: Access | None) -> Access:
        """The credentials, other than those that were refused."""
        async with self._renewing:
            if self._access is None or self._access is refused:
                try:
                    access = await self._credentials.load()
                except InvalidInputError as error:
                    if self._access is None:
                        raise
                    raise UnavailableError(str(error)) from error
                for session in self._sessions[:-1]:
                    await session.close()
                self._sessions[:-1] = []
                self._sessions.append(_session(access))
                self._access = access
            return self._access


def _session(access: Access) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=access.tls, limit=CONNECTIONS),
        timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "heliotrope-operator"},
    )


def _document(method: str, path: str, body: bytes) -> Document:
    try:
        document: Document = json.loads(body)
    except ValueError:
        raise UnavailableError(f"{method} {path}: the answer is not JSON") from None
    return document


def _message(body: bytes) -> str:
    """What a Status object says; never the body of anything else, which could hold what must not be logged."""
    try:
        status = json.loads(body)
    except ValueError:
        return "not a Kubernetes status"
    if isinstance(status, dict) and status.get("kind") == "Status":
        return str(status.get("message", ""))[:1_000]
    return "not a Kubernetes status"
