"""Requests to the API server: paths in, documents out, and an error class for each answer that somebody handles.

kr8s finds and refreshes the credentials; its objects and its own retries are not used, because a refused request must
be seen, not repeated.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import kopf
import kr8s
import kr8s.asyncio

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
PAGE = 100
MERGE_PATCH = "application/merge-patch+json"
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
    """The API server, with this operator's credentials."""

    def __init__(self, api: kr8s.asyncio.Api, metrics: Metrics) -> None:
        self._api = api
        self._metrics = metrics

    @classmethod
    async def connect(cls, kubeconfig: Path | None, metrics: Metrics) -> "Kube":
        """Find credentials and ask the server for its version.

        Raises:
            UnavailableError: if the server does not answer.
            ValueError: if there are no credentials.
        """
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                api = await kr8s.asyncio.api(kubeconfig=None if kubeconfig is None else str(kubeconfig))
        except (httpx.HTTPError, kr8s.APITimeoutError, kr8s.ServerError, OSError) as error:
            raise UnavailableError(f"the API server does not answer: {str(error) or type(error).__name__}") from error
        api.timeout = REQUEST_TIMEOUT_S
        return cls(api, metrics)

    @property
    def server(self) -> str:
        """Address of the API server."""
        return self._api.auth.server

    async def close(self) -> None:
        """Close the connections; kr8s has no public way."""
        session = self._api._session
        if session is not None:
            await session.aclose()

    async def connection_info(self) -> kopf.ConnectionInfo:
        """The same credentials for Kopf, read anew."""
        await self._api.reauthenticate()
        auth = self._api.auth
        return kopf.ConnectionInfo(
            server=auth.server,
            ca_path=_path(auth.server_ca_file),
            insecure=auth._insecure_skip_tls_verify,  # kr8s has no public name for it
            token=auth.token.strip() if auth.token else None,
            certificate_path=_path(auth.client_cert_file),
            private_key_path=_path(auth.client_key_file),
            proxy_url=auth.proxy,
        )

    async def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Document:
        """Read an object or a collection.

        Raises:
            ApiError: as for all requests; see `heliotrope_operator.errors`.
        """
        return await self._request("GET", path, parameters=parameters)

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

    async def merge(self, path: str, patch: Document) -> Document:
        """Change some fields of an object (JSON merge patch); null removes one."""
        return await self._request("PATCH", path, patch, content_type=MERGE_PATCH)

    async def _request(
        self,
        method: str,
        path: str,
        document: Document | None = None,
        *,
        parameters: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Document:
        response = await self._send(method, path, document, parameters, content_type, renew=False)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            response = await self._send(method, path, document, parameters, content_type, renew=True)
        if response.is_success:
            answer: Document = response.json()
            return answer
        problem = f"{method} {path}: {response.status_code}: {_message(response)}"
        default = UnavailableError if response.is_server_error else ApiError
        raise _ERRORS.get(response.status_code, default)(problem)

    async def _send(
        self,
        method: str,
        path: str,
        document: Document | None,
        parameters: Mapping[str, str] | None,
        content_type: str,
        *,
        renew: bool,
    ) -> httpx.Response:
        """One request. `renew` lets kr8s read the credentials anew when the server does not know them any more."""
        base, _, rest = path.lstrip("/").partition("/")
        code = 0
        try:
            async with self._api.call_api(
                method,
                version="",
                base=f"/{base}",
                url=rest,
                raise_for_status=renew,
                params=dict(parameters or {}),
                content=None if document is None else json.dumps(document),
                headers={"Content-Type": content_type},
            ) as response:
                code = response.status_code
                return response
        except kr8s.ServerError as error:
            if error.response is None:
                raise UnavailableError(f"{method} {path}: {error}") from error
            code = error.response.status_code
            return error.response
        except (httpx.HTTPError, kr8s.APITimeoutError, OSError) as error:
            raise UnavailableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            self._metrics.requests.labels(method, str(code)).inc()


def _path(value: object) -> str | None:
    return None if value is None else str(value)


def _message(response: httpx.Response) -> str:
    """What a Status object says; never the body of anything else, which could hold what must not be logged."""
    try:
        status = response.json()
    except ValueError:
        return response.reason_phrase
    if isinstance(status, dict) and status.get("kind") == "Status":
        return str(status.get("message", response.reason_phrase))[:1_000]
    return response.reason_phrase
