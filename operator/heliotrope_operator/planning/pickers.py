"""Asks the endpoint pickers of pools what is asked of them.

A pool names its picker's Service; EndpointSlices of that Service name the pickers. Slices are read again every minute,
and when a picker does not answer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import aiohttp

from heliotrope.errors import BadAnswerError
from heliotrope_operator.errors import ApiError
from heliotrope_operator.kinds.pools import Pool
from heliotrope_operator.kube import Kube
from heliotrope_operator.planning import page
from heliotrope_operator.resources import ENDPOINT_SLICES, Key

_log = logging.getLogger(__name__)

PORT_NAME = "http-metrics"
"""Name of the port in the picker's Service; a Service of one port needs no name."""
SLICES_KEPT_S = 60.0
SLICES_AGAIN_S = 5.0
"""After a picker did not answer, the slices are read again, but not more often than this."""
TIMEOUT_S = 3.0
AT_ONCE = 16

OUTCOMES = ("success", "unreachable", "bad", "unknown_address")


@dataclass(frozen=True, slots=True)
class Asked:
    """What became of one round of questions to a pool's pickers."""

    pages: dict[str, page.PickerPage]
    """By address; those that answered."""
    silent: frozenset[str]
    """Addresses that should have and did not."""
    problem: str | None = None
    """Why nobody could be asked, or what is wrong with one that answered; None if nothing is."""


@dataclass(slots=True)
class _Addresses:
    found: tuple[str, ...]
    read_s: float


class Pickers:
    """One HTTP session for all; `close` ends it."""

    def __init__(self, kube: Kube, *, clock: Callable[[], float]) -> None:
        """`clock` is monotonic."""
        self._kube = kube
        self._clock = clock
        self._addresses: dict[Key, _Addresses] = {}
        self._session: aiohttp.ClientSession | None = None
        self._places = asyncio.Semaphore(AT_ONCE)
        self.counts: Counter[str] = Counter()
        """Questions by `OUTCOMES`."""

    async def close(self) -> None:
        """End the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def keep(self, pools: Iterable[Key]) -> None:
        """Forget every pool but these."""
        kept = set(pools)
        for key in [key for key in self._addresses if key not in kept]:
            del self._addresses[key]

    async def ask(self, key: Key, pool: Pool) -> Asked:
        """Every picker of a pool, at once."""
        if pool.picker is None:
            return Asked({}, frozenset(), "the pool names no Service as its endpoint picker")
        try:
            addresses = await self._found(key, pool.picker)
        except ApiError as error:
            return Asked({}, frozenset(), f"the EndpointSlices of Service {pool.picker} cannot be read: {error}")
        if not addresses:
            self.counts["unknown_address"] += 1
            problem = f"Service {key.namespace}/{pool.picker} has no ready picker with a port named {PORT_NAME}"
            return Asked({}, frozenset(), problem)
        answers = await asyncio.gather(*(self._ask(address, key) for address in addresses))
        pages = {a: answer for a, answer in zip(addresses, answers, strict=True) if isinstance(answer, page.PickerPage)}
        problems = [answer for answer in answers if isinstance(answer, str)]
        silent = frozenset(addresses) - pages.keys()
        if silent and (known := self._addresses.get(key)) is not None:
            known.read_s = min(known.read_s, self._clock() - SLICES_KEPT_S + SLICES_AGAIN_S)
        return Asked(pages, silent, problems[0] if problems else None)

    async def _found(self, key: Key, service: str) -> tuple[str, ...]:
        known = self._addresses.get(key)
        if known is not None and self._clock() - known.read_s < SLICES_KEPT_S:
            return known.found
        listed = await self._kube.get(
            ENDPOINT_SLICES.path(key.namespace), {"labelSelector": f"kubernetes.io/service-name={service}"}
        )
        found = tuple(sorted({address for each in listed.get("items", ()) for address in addresses_of(each)}))
        read_s = self._clock() - (0.0 if found else SLICES_KEPT_S - SLICES_AGAIN_S)
        self._addresses[key] = _Addresses(found, read_s)
        return found

    async def _ask(self, address: str, key: Key) -> page.PickerPage | str:
        """The page, or what is wrong."""
        async with self._places:
            try:
                body = await self._body(address)
                answer = page.read(body, namespace=key.namespace, pool=key.name)
            except BadAnswerError as error:
                self.counts["bad"] += 1
                return f"{address}: {error}"
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                self.counts["unreachable"] += 1
                return f"{address}: {str(error) or type(error).__name__}"
        self.counts["success"] += 1
        return answer

    async def _body(self, address: str) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                connector=aiohttp.TCPConnector(limit=AT_ONCE * 4, keepalive_timeout=60.0),
                headers={"User-Agent": "heliotrope-operator"},
            )
        async with self._session.get(f"http://{address}{page.PATH}", allow_redirects=False) as response:
            if response.status != HTTPStatus.OK:
                raise BadAnswerError(f"answered {response.status} at {page.PATH}; is its image as new as ours?")
            body = await response.content.read(page.MAX_BYTES + 1)
            while not response.content.at_eof() and len(body) <= page.MAX_BYTES:
                body += await response.content.read(page.MAX_BYTES + 1 - len(body))
            if len(body) > page.MAX_BYTES:
                raise BadAnswerError(f"the picker's page is larger than {page.MAX_BYTES} bytes")
            return body


def addresses_of(endpoint_slice: dict[str, Any]) -> list[str]:
    """`host:port` of an EndpointSlice's ready endpoints, for the port named `PORT_NAME` or a single nameless one."""
    ports = endpoint_slice.get("ports") or ()
    chosen = [each for each in ports if each.get("name") == PORT_NAME] or [
        each for each in ports if not each.get("name") and len(ports) == 1
    ]
    if not chosen or chosen[0].get("port") is None:
        return []
    port = chosen[0]["port"]
    found = []
    for endpoint in endpoint_slice.get("endpoints") or ():
        ready = (endpoint.get("conditions") or {}).get("ready")
        if ready is False or not endpoint.get("addresses"):
            continue
        host = endpoint["addresses"][0]
        found.append(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found
