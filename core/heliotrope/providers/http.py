"""HTTP requests to sources: bounded in time and size, with an error class for each answer that somebody handles.

No message, log line or exception of this module holds a header, a query or a URL's user: they may hold keys.
"""

import asyncio
import base64
import json
import ssl
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx

import heliotrope
from heliotrope.errors import (
    BadAnswerError,
    CredentialsRefusedError,
    InvalidInputError,
    NoDataError,
    SignalUnavailableError,
    ThrottledError,
)
from heliotrope.providers.secrets import Secret, basic, masked
from heliotrope.units import SECONDS_PER_DAY

LONGEST_RETRY_AFTER_S = SECONDS_PER_DAY
SHOWN_CHARACTERS = 200
"""Of what a source says about its refusal, in messages."""
_AUTHORITIES_HELD = 8
_PARSED_AT_ONCE_BYTES = 64 * 1024
"""Larger answers are parsed in a thread: the loop also serves requests."""
_EXPLAINING = ("message", "error", "detail", "title")
"""Keys under which APIs say what is wrong."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one request."""

    connect_s: float = 5.0
    silence_s: float = 10.0
    """Between two pieces of an answer."""
    total_s: float = 20.0
    body_bytes: int = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Request:
    """A question to a source."""

    source: str
    """Who is asked, as messages call it."""
    url: str = field(repr=False)
    """May hold a user or a key in its query."""
    parameters: Sequence[tuple[str, str]] = field(default=(), repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values that are masked wherever the answer repeats them."""
    ca_pem: str | None = field(default=None, repr=False)
    """Certificates of the only authorities to trust; None trusts the system's."""

    @property
    def shown(self) -> str:
        """Source and host."""
        url = httpx.URL(self.url)
        host = url.netloc.decode(errors="replace").rpartition("@")[2]
        return f"{self.source} ({host})" if host else self.source


@dataclass(frozen=True, slots=True)
class Answer:
    """What a source answered, whatever its status."""

    request: Request
    status: int
    headers: httpx.Headers
    body: bytes

    async def json(self) -> Any:
        """The body as JSON; numbers that no intensity can be (NaN, Infinity) are refused.

        Raises:
            BadAnswerError: if it is not JSON.
        """
        try:
            if len(self.body) > _PARSED_AT_ONCE_BYTES:
                return await asyncio.to_thread(_parsed, self.body)
            return _parsed(self.body)
        except (ValueError, RecursionError):
            raise BadAnswerError(
                f"{self.request.shown}: the answer is not JSON; is it the address of the API?"
            ) from None

    def raise_for_refusal(self) -> None:
        """Nothing, if the source answered with 200.

        Raises:
            CredentialsRefusedError: 401 and 403.
            NoDataError: 404 and 204.
            ThrottledError: 429, or 503 with a time to wait.
            SignalUnavailableError: anything else.
        """
        if self.status == HTTPStatus.OK:
            return
        problem = self.problem()
        wait_s = retry_after_s(self.headers)
        if self.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise CredentialsRefusedError(problem)
        if self.status in (HTTPStatus.NOT_FOUND, HTTPStatus.NO_CONTENT):
            raise NoDataError(problem)
        if self.status == HTTPStatus.TOO_MANY_REQUESTS or (
            self.status == HTTPStatus.SERVICE_UNAVAILABLE and wait_s is not None
        ):
            raise ThrottledError(problem, wait_s)
        if HTTPStatus.MULTIPLE_CHOICES <= self.status < HTTPStatus.BAD_REQUEST:
            raise SignalUnavailableError(f"{problem}: it moved; set its new address")
        raise SignalUnavailableError(problem)

    def problem(self) -> str:
        """The status and what the source says of it, shortened, without secrets."""
        try:
            phrase = f"{self.status} {HTTPStatus(self.status).phrase}"
        except ValueError:
            phrase = str(self.status)
        said = self.explanation()
        return f"{self.request.shown} answered {phrase}{f': {said}' if said else ''}"

    def explanation(self) -> str:
        """What a short JSON body says is wrong; empty if it says nothing."""
        if len(self.body) > _PARSED_AT_ONCE_BYTES:
            return ""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            return ""
        found = document if isinstance(document, Mapping) else {}
        inner = found.get("error")
        texts = [each.get(key) for each in (found, inner) if isinstance(each, Mapping) for key in _EXPLAINING]
        return next((shown(text, self.request) for text in texts if isinstance(text, str) and text), "")


class Network:
    """What all sources of a process share: limits, trusted authorities and the way through a proxy."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._tls: dict[str | None, ssl.SSLContext] = {}

    async def get(self, request: Request) -> Answer:
        """Ask once and read the whole answer. Redirects are not followed: keys are for one host.

        Raises:
            SignalUnavailableError: without an answer, within time and size.
            CredentialsRefusedError: if a key cannot be sent.
        """
        try:
            async with asyncio.timeout(self._limits.total_s):
                return await self._get(request)
        except TimeoutError:
            raise SignalUnavailableError(f"{request.shown}: no answer within {self._limits.total_s:.0f} s") from None
        except httpx.TimeoutException as error:
            raise SignalUnavailableError(f"{request.shown}: no answer in time ({type(error).__name__})") from None
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            # The cause holds the request, so it goes no further.
            text = masked(str(error), request.secrets) or type(error).__name__
            raise SignalUnavailableError(f"{request.shown}: {text}") from None

    async def ask(self, request: Request) -> Answer:
        """The same, for an answer of 200 only.

        Raises:
            SignalUnavailableError: as `Answer.raise_for_refusal` says.
        """
        answer = await self.get(request)
        answer.raise_for_refusal()
        return answer

    async def _get(self, request: Request) -> Answer:
        # httpx' client logs whole URLs, and ENTSO-E takes its key in the query; so only its transport is used.
        limits = self._limits
        times = httpx.Timeout(limits.silence_s, connect=limits.connect_s)
        asked = httpx.Request("GET", _url(request), headers=_headers(request), extensions={"timeout": times.as_dict()})
        transport = httpx.AsyncHTTPTransport(verify=await self._trusted(asked.url, request), proxy=_proxy(asked.url))
        async with transport:
            response = await transport.handle_async_request(asked)
            try:
                body = await self._body(request, response)
            finally:
                await response.aclose()
        return Answer(request, response.status_code, response.headers, body)

    async def _body(self, request: Request, response: httpx.Response) -> bytes:
        if response.headers.get("content-encoding", "identity") != "identity":
            raise BadAnswerError(f"{request.shown}: the answer is compressed, which was not asked for")
        pieces, size = [], 0
        async for piece in response.aiter_raw():
            size += len(piece)
            if size > self._limits.body_bytes:
                raise BadAnswerError(f"{request.shown}: the answer is larger than {self._limits.body_bytes} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def _trusted(self, url: httpx.URL, request: Request) -> ssl.SSLContext | bool:
        if url.scheme != "https":
            return False  # loads no authorities; nothing is encrypted, as the address says
        known = self._tls.get(request.ca_pem)
        if known is None:
            load = httpx.create_ssl_context
            if request.ca_pem is not None:
                load = partial(ssl.create_default_context, cadata=request.ca_pem)
            try:
                known = await asyncio.to_thread(load)
            except (ssl.SSLError, ValueError):
                raise CredentialsRefusedError(f"{request.shown}: its authority's certificates are no PEM") from None
            while len(self._tls) >= _AUTHORITIES_HELD:
                del self._tls[next(iter(self._tls))]
            self._tls[request.ca_pem] = known
        return known


def base_url(text: str, path: str) -> str:
    """An address with a path behind its own, its query left in place.

    Raises:
        InvalidInputError: if it is no address; the message does not repeat it.
    """
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL:
        raise InvalidInputError("", "is not of the form https://host:port/path") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInputError("", "is not of the form https://host:port/path")
    return str(url.copy_with(path=url.path.rstrip("/") + path))


def shown(text: str, request: Request) -> str:
    """What a source says, as part of a message: one line, shortened, without secrets."""
    line = " ".join(masked(text, request.secrets).split())
    printable = "".join(character for character in line if character.isprintable())
    return printable if len(printable) <= SHOWN_CHARACTERS else f"{printable[: SHOWN_CHARACTERS - 1]}…"


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait (RFC 9110 §10.2.3), at most a day; None if it does not say.

    A date counts from the answer's own `Date`, so that clocks need not agree.
    """
    text = headers.get("retry-after", "").strip()
    if text.isdecimal():
        return min(float(text), LONGEST_RETRY_AFTER_S)
    until, sent = _http_date(text), _http_date(headers.get("date", ""))
    if until is None or sent is None:
        return None
    return min(max((until - sent).total_seconds(), 0.0), LONGEST_RETRY_AFTER_S)


def secret_values(authorizations: Iterable[str | None]) -> tuple[str, ...]:
    """What has to be masked of Authorization headers: the credentials, with and without their scheme, and decoded."""
    values: list[str] = []
    for authorization in authorizations:
        if authorization is None:
            continue
        scheme, _, credentials = authorization.partition(" ")
        values.append(credentials or authorization)
        if scheme == "Basic":
            user, _, password = base64.b64decode(credentials).decode().partition(":")
            values += [user, password]
    return tuple(value for value in values if value)


def _url(request: Request) -> httpx.URL:
    url = httpx.URL(request.url)
    return url.copy_merge_params(list(request.parameters)) if request.parameters else url


def _headers(request: Request) -> dict[str, str]:
    if not all(value.isascii() and value.isprintable() for value in request.headers.values()):
        raise CredentialsRefusedError(f"{request.shown}: a key has characters that cannot be sent; is it whole?")
    headers = {
        "Accept": "*/*",
        "Accept-Encoding": "identity",  # so that the limit on the body is one on memory
        "User-Agent": f"heliotrope/{heliotrope.__version__}",
    }
    user = httpx.URL(request.url).userinfo
    if user and "Authorization" not in request.headers:
        from_url = httpx.URL(request.url)
        headers["Authorization"] = basic(Secret(from_url.username), Secret(from_url.password), request.shown)
    return headers | dict(request.headers)


def _proxy(url: httpx.URL) -> httpx.Proxy | None:
    """The proxy of HTTP_PROXY, HTTPS_PROXY and NO_PROXY."""
    proxies = urllib.request.getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or urllib.request.proxy_bypass(url.netloc.decode(errors="replace").rpartition("@")[2]):
        return None
    return httpx.Proxy(address if "://" in address else f"http://{address}")


def _http_date(text: str) -> datetime | None:
    try:
        return parsedate_to_datetime(text)
    except ValueError:
        return None


def _parsed(body: bytes) -> Any:
    return json.loads(body, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
