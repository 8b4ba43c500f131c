"""Plain requests to the API server, each with a time limit; an error class for each answer that somebody handles."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from heliotrope.errors import InvalidInputError
from heliotrope_agent.kube.credentials import Access, Source
from heliotrope_agent.kube.errors import (
    ApiError,
    ConflictError,
    ExpiredError,
    ForbiddenError,
    NotFoundError,
    SilentError,
    UnauthorizedError,
    UnavailableError,
)
from heliotrope_agent.kube.metrics import KubeMetrics

REQUEST_S = 10.0
CONNECT_S = 5.0
LONGEST_LINE = 4 * 1024 * 1024
"""Bytes of one watch event; etcd's objects are smaller."""
MERGE_PATCH = "application/merge-patch+json"
_ERRORS: dict[int, type[ApiError]] = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    408: UnavailableError,
    409: ConflictError,
    410: ExpiredError,
    429: UnavailableError,
}

Document = dict[str, Any]


class ApiClient:
    """The API server for one thread.

    After a failure credentials are read anew, so a rotated token, key or authority needs no restart.
    """

    def __init__(self, source: Source, metrics: KubeMetrics) -> None:
        self._source = source
        self._metrics = metrics
        self._connected: tuple[Access, httpx.Client] | None = None
        self._socket: socket.socket | None = None
        self._closing = threading.Lock()
        self._closed = False

    def get(self, path: str, parameters: Mapping[str, str] | None = None) -> Document:
        """Read an object or a collection.

        Raises:
            ApiError: as for all requests; see `heliotrope_agent.kube.errors`.
        """
        return self._request("GET", path, parameters=parameters)

    def create(self, path: str, document: Document, *, timeout_s: float = REQUEST_S) -> Document:
        """Create an object."""
        return self._request("POST", path, document=document, timeout_s=timeout_s)

    def merge(
        self, path: str, patch: Document, *, manager: str | None = None, timeout_s: float = REQUEST_S
    ) -> Document:
        """Change some fields of an object (JSON merge patch); null removes one.

        Raises:
            ConflictError: if the patch names a UID, and there is another object of this name.
        """
        parameters = None if manager is None else {"fieldManager": manager}
        return self._request("PATCH", path, parameters=parameters, document=patch, timeout_s=timeout_s)

    def watch(self, path: str, parameters: Mapping[str, str], *, silence_s: float) -> Iterator[Document]:
        """Events of a watch, until the server ends it.

        Args:
            path: the collection.
            parameters: what to watch from where.
            silence_s: a connection that is silent for longer is taken for dead; the server sends bookmarks each minute.

        Raises:
            SilentError: if nothing came for so long.
            ApiError: as for all requests.
        """
        access, client = self._connect()
        timeout = httpx.Timeout(REQUEST_S, connect=CONNECT_S, read=silence_s)
        with self._failures("WATCH"):
            request = self._built("GET", access, client, path, parameters, None, timeout)
            response = client.send(request, stream=True)
            try:
                self._hold(response)
                if response.is_error:
                    response.read()
                self._judge("WATCH", response)
                yield from _events(response)
            except httpx.ReadTimeout:
                self.close()  # and with it the connection, whatever is left of it
                raise SilentError(f"nothing came for {silence_s:g} s") from None
            finally:
                self._release()
                response.close()

    def interrupt(self) -> None:
        """End a watch that waits, from any thread; later requests are refused."""
        with self._closing:
            self._closed = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    # Not the method of an SSLSocket: that takes the connection's state away under the reading thread.
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections; for the thread that uses them."""
        connected, self._connected = self._connected, None
        if connected is not None:
            connected[1].close()

    def _request(
        self,
        method: str,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        document: Document | None = None,
        timeout_s: float = REQUEST_S,
    ) -> Document:
        access, client = self._connect()
        timeout = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
        with self._failures(method):
            response = client.send(self._built(method, access, client, path, parameters, document, timeout))
            self._judge(method, response)
            answer: Document = json.loads(response.content)
        return answer

    def _connect(self) -> tuple[Access, httpx.Client]:
        if self._closed:
            raise UnavailableError("the agent is ending")
        if self._connected is None:
            try:
                access = self._source()
            except InvalidInputError as error:
                self._metrics.silent()
                raise UnavailableError(str(error)) from error
            self._connected = access, httpx.Client(verify=access.tls, proxy=access.proxy, trust_env=False)
        return self._connected

    @staticmethod
    def _built(
        method: str,
        access: Access,
        client: httpx.Client,
        path: str,
        parameters: Mapping[str, str] | None,
        document: Document | None,
        timeout: httpx.Timeout,
    ) -> httpx.Request:
        headers = {"Accept": "application/json", "User-Agent": "heliotrope-agent"}
        token = access.token()
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if document is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        return client.build_request(
            method,
            f"{access.server}{path}",
            params=parameters,
            content=None if document is None else json.dumps(document),
            headers=headers,
            timeout=timeout,
            extensions={"sni_hostname": access.tls_server_name} if access.tls_server_name else {},
        )

    @contextlib.contextmanager
    def _failures(self, method: str) -> Iterator[None]:
        """Whatever goes wrong becomes one of our errors, and the next request begins with credentials read anew."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            self._metrics.requests.labels(method, "0").inc()
            self._lost()
            raise UnavailableError(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from error
        except (InvalidInputError, ValueError) as error:  # a token that is gone; an answer that is no JSON
            self._lost()
            raise UnavailableError(str(error)) from error
        except (UnauthorizedError, UnavailableError):
            self._lost()
            raise

    def _judge(self, method: str, response: httpx.Response) -> None:
        code = response.status_code
        self._metrics.requests.labels(method, str(code)).inc()
        if response.is_success:
            self._metrics.answered()
            return
        problem = f"{response.request.method} {response.request.url.path}: {code} {_message(response)}"
        error = _ERRORS.get(code, UnavailableError if code >= 500 else ApiError)
        if error not in (UnavailableError, UnauthorizedError):
            self._metrics.answered()  # a refusal is an answer
        raise error(problem)

    def _lost(self) -> None:
        self._metrics.silent()
        self.close()

    def _hold(self, response: httpx.Response) -> None:
        stream = response.extensions.get("network_stream")
        with self._closing:
            self._socket = None if stream is None else stream.get_extra_info("socket")
            if self._closed:
                raise UnavailableError("the agent is ending")

    def _release(self) -> None:
        with self._closing:
            self._socket = None


def _events(response: httpx.Response) -> Iterator[Document]:
    rest = b""
    for piece in response.iter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LONGEST_LINE:
            raise UnavailableError(f"a watch event is longer than {LONGEST_LINE} bytes")
        for line in lines:
            if line.strip():
                event = json.loads(line)
                if event.get("type") == "ERROR":
                    status = event.get("object") or {}
                    error = _ERRORS.get(status.get("code") or 0, UnavailableError)
                    raise error(
                        f"the watch ended: {status.get('message') or status.get('reason') or 'no reason given'}"
                    )
                yield event


def _message(response: httpx.Response) -> str:
    try:
        return str(json.loads(response.content)["message"])[:1_000]
    except (ValueError, KeyError, TypeError):
        return response.reason_phrase
