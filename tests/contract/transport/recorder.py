"""A decider that keeps everything it is told and checks the promises of the interface as it goes."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from heliotrope_epp.transport.interface import Report, Request

ENDPOINT = "127.0.0.1:8000"
TIMEOUT_SECONDS = 20.0


async def eventually(condition: Callable[[], bool], what: str = "condition") -> None:
    for _ in range(int(TIMEOUT_SECONDS / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"not within {TIMEOUT_SECONDS:g} s: {what}")


class Recorder:
    """Answers with a function; by default every request goes to `ENDPOINT` with its number as context."""

    def __init__(self, answer: Callable[[Request], object] | None = None) -> None:
        self._thread = threading.get_ident()
        self._busy = False
        self.reset(answer)

    def reset(self, answer: Callable[[Request], object] | None = None) -> None:
        """As new, with another answer."""
        self._answer = answer or self.route
        self.requests: list[Request] = []
        self.cancellations: list[Request] = []
        self.reports: dict[Any, Report] = {}
        self.pieces: dict[Any, list[float]] = {}

    def route(self, request: Request) -> None:
        assert request.route(ENDPOINT, ctx=len(self.requests))

    def decide(self, request: Request) -> None:
        with self._alone():
            assert request not in self.requests
            self.requests.append(request)
            self._answer(request)

    def cancelled(self, request: Request) -> None:
        with self._alone():
            assert request in self.requests
            assert request not in self.cancellations
            assert request.cancelled
            self.cancellations.append(request)

    def progressed(self, ctx: Any, at_s: float) -> None:
        with self._alone():
            assert ctx not in self.reports, f"progress of {ctx} after its end"
            self.pieces.setdefault(ctx, []).append(at_s)

    def done(self, ctx: Any, report: Report) -> None:
        with self._alone():
            assert ctx not in self.reports, f"done twice for {ctx}"
            self.reports[ctx] = report
            pieces = self.pieces.get(ctx, [])
            assert len(pieces) == report.chunks, "progress is told once for each piece"
            if pieces:
                assert (pieces[0], pieces[-1]) == (report.first_s, report.last_s)

    def _alone(self) -> "Recorder":
        return self

    def __enter__(self) -> None:
        assert threading.get_ident() == self._thread
        assert not self._busy, "two calls at once"
        self._busy = True

    def __exit__(self, *_: object) -> None:
        self._busy = False

    async def report(self, ctx: Any = 1) -> Report:
        await eventually(lambda: ctx in self.reports, f"report of {ctx}")
        return self.reports[ctx]

    async def request(self, count: int = 1) -> Request:
        await eventually(lambda: len(self.requests) >= count, f"{count} requests")
        return self.requests[count - 1]
