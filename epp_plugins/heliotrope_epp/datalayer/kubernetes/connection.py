"""Calls to the API server: kr8s finds it and authenticates, paths and streams are ours.

kr8s's own watch does not ask for bookmarks, sets no timeout and starts over from an expired version for ever; its error
handling closes the connection that all watches share when one call is forbidden. So calls go through its `call_api`
with `raise_for_status=False`, and statuses are judged here.
"""

import asyncio
import json
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import kr8s.asyncio
from kr8s import APITimeoutError, ServerError

from heliotrope.errors import InvalidInputError
from heliotrope_epp.datalayer.kubernetes.errors import (
    ApiError,
    ExpiredError,
    NotServedError,
    RefusedError,
    UnreachableError,
)

_CONNECT_S = 10.0
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
    """One API server with credentials: a kubeconfig, or the pod's service account.

    Credentials are read again when the server refuses them, so tokens may rotate.
    """

    def __init__(self, *, kubeconfig: Path | None = None, context: str | None = None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._api: kr8s.asyncio.Api | None = None
        self._connecting = asyncio.Lock()

    async def get(self, path: str, *, params: Mapping[str, str], timeout_s: float, accept: str = "") -> dict[str, Any]:
        """The JSON object at a path.

        Raises:
            ApiError: one of its kinds.
        """
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._call(path, params, httpx.Timeout(timeout_s), accept) as response,
            ):
                body = await response.aread()
        except TimeoutError as error:
            raise UnreachableError(f"{path}: no answer within {timeout_s:.0f} s") from error
        try:
            answer = json.loads(body)
        except ValueError as error:
            raise UnreachableError(f"{path}: the answer is not JSON") from error
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
        """
        limits = httpx.Timeout(_CONNECT_S, read=silence_s)
        async with self._call(path, params, limits, "") as response, aclosing(_lines(response)) as lines:
            async for line in lines:
                event = json.loads(line)
                if event.get("type") == "ERROR":
                    status = event.get("object", {})
                    raise _judged(int(status.get("code") or 500), path, str(status.get("message", "")))
                yield event

    @asynccontextmanager
    async def _call(
        self, path: str, params: Mapping[str, str], limits: httpx.Timeout, accept: str
    ) -> AsyncIterator[httpx.Response]:
        api = await self._connected()
        # Calls are rare and watches long: no idle connection is kept that the server may have forgotten.
        headers = {"Accept": accept or "application/json", "Connection": "close"}
        if api.auth.token:
            headers["Authorization"] = f"Bearer {api.auth.token}"
        base, _, url = path.rpartition("/")
        try:
            async with api.call_api(
                "GET",
                base=base,
                version="",
                url=url,
                raise_for_status=False,
                stream=True,
                params=dict(params),
                headers=headers,
                timeout=limits,
            ) as response:
                if response.status_code == httpx.codes.UNAUTHORIZED:
                    await api.reauthenticate()
                if not response.is_success:
                    raise _judged(response.status_code, path, _message(await response.aread()))
                yield response
        except (httpx.HTTPError, APITimeoutError, OSError) as error:
            raise UnreachableError(f"{path}: {_described(error)}") from error
        except ValueError as error:
            raise UnreachableError(f"{path}: {error}") from error

    async def _connected(self) -> kr8s.asyncio.Api:
        """The API object.

        Raises:
            InvalidInputError: if there are no credentials to be found.
            UnreachableError: if the server does not answer.
        """
        async with self._connecting:
            if self._api is None:
                self._api = await self._connect()
            return self._api

    async def _connect(self) -> kr8s.asyncio.Api:
        try:
            with warnings.catch_warnings():
                # Newer servers serve the same stable kinds.
                warnings.filterwarnings("ignore", message="Kubernetes version .* is not supported")
                async with asyncio.timeout(_CONNECT_S):
                    return await kr8s.asyncio.api(
                        kubeconfig=None if self._kubeconfig is None else str(self._kubeconfig), context=self._context
                    )
        except (ValueError, KeyError) as error:
            raise InvalidInputError(
                "kubeconfig",
                f"no usable credentials ({error}); give a kubeconfig, or run in a pod with a service account",
            ) from error
        except ServerError as error:
            status = 500 if error.response is None else error.response.status_code
            raise _judged(status, "/version", str(error)) from error
        except (httpx.HTTPError, APITimeoutError, OSError) as error:
            raise UnreachableError(f"API server: {_described(error)}") from error


async def _lines(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """Lines as the server sends them: httpx's own also break at characters that JSON may hold."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > _MAX_EVENT_BYTES:
            raise UnreachableError(f"an event exceeds {_MAX_EVENT_BYTES} bytes")


def _described(error: Exception) -> str:
    return str(error) or type(error).__name__


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
