"""Asking other engines."""

from http import HTTPStatus
from typing import TypeVar

import aiohttp
from pydantic import BaseModel, ValidationError

from heliotrope_sim.emulator.transfer import wire
from heliotrope_sim.emulator.transfer.counts import FailureReason
from heliotrope_sim.emulator.transfer.params import Peer

Answer = TypeVar("Answer", bound=BaseModel)


class PullError(Exception):
    """Another engine does not give what was asked for."""

    def __init__(self, reason: FailureReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class PeerClient:
    """Connections to other engines.

    Args:
        timeout_seconds: wall-clock time that another engine has for an answer.
    """

    def __init__(self, timeout_seconds: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), cookie_jar=aiohttp.DummyCookieJar()
        )
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)

    async def post(self, peer: Peer, path: str, request: BaseModel, kind: type[Answer]) -> Answer:
        """Ask an engine.

        Raises:
            PullError: if it does not answer, refuses, or answers what it should not.
        """
        try:
            async with self._session.post(
                peer.url + path,
                data=request.model_dump_json().encode(),
                headers={"Content-Type": "application/json"},
                timeout=self._timeout,
                allow_redirects=False,
            ) as answer:
                body = await answer.content.read(wire.MAX_ANSWER_BYTES)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise PullError(FailureReason.UNREACHABLE, type(error).__name__) from None
        if status != HTTPStatus.OK:
            raise PullError(FailureReason.REFUSED, f"status {status}")
        try:
            return kind.model_validate_json(body)
        except ValidationError:
            raise PullError(FailureReason.REFUSED, "no answer of an engine") from None

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()
