"""Metrics pages over HTTP: one session, bounded in time and size, every failure with its reason."""

import random
import ssl
from dataclasses import dataclass, field

import aiohttp


@dataclass(slots=True)
class PageCounts:
    """Counts since start, by why a page was not used: `status`, `timeout`, `connection`, `size`, `content`."""

    succeeded: int = 0
    failed: dict[str, int] = field(default_factory=dict)

    def add_failure(self, reason: str) -> None:
        """One more."""
        self.failed[reason] = self.failed.get(reason, 0) + 1


class PageError(Exception):
    """There is no page to use; `reason` is the key in `PageCounts.failed`."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def pause_after_failure(failures: int, interval_s: float, longest_s: float, rng: random.Random) -> float:
    """Seconds until a page is asked for again after so many failures in a row: twice as long each time, with jitter."""
    return min(interval_s * 2.0 ** min(failures - 1, 16), longest_s) * rng.uniform(0.75, 1.0)


class PageReader:
    """Reads pages. Use as a context manager; one connection per host is kept."""

    def __init__(self, *, timeout_s: float, max_page_bytes: int, tls: ssl.SSLContext | None = None) -> None:
        """`tls` checks servers of `https` addresses; by default the system's certificates do."""
        self._tls = tls
        self._timeout_s = timeout_s
        self._max_page_bytes = max_page_bytes
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "PageReader":
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, limit_per_host=1, use_dns_cache=False, ssl=True if self._tls is None else self._tls
            ),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            # Compressing a page would cost the engine more than the bytes cost the network.
            headers={"Accept": "text/plain", "Accept-Encoding": "identity", "User-Agent": "heliotrope-epp"},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def is_open(self) -> bool:
        """Whether pages can be read."""
        return self._session is not None

    async def read(self, url: str) -> bytes:
        """The body of a page.

        Raises:
            PageError: if it does not come, comes late, or is too large.
            RuntimeError: if the reader is closed.
        """
        if self._session is None:
            raise RuntimeError("the reader of pages is closed")
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status != 200:
                    raise PageError("status", f"HTTP {response.status}")
                return await self._body(response)
        except TimeoutError as error:
            raise PageError("timeout", f"no answer within {self._timeout_s} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise PageError("connection", str(error) or type(error).__name__) from error

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._max_page_bytes:
                response.close()
                raise PageError("size", f"the page exceeds {self._max_page_bytes} bytes")
            chunks.append(chunk)
        return b"".join(chunks)
