"""One request in flight: what it will say, how far it is, and where its tokens go."""

import asyncio
from dataclasses import dataclass
from typing import Any

from heliotrope_sim.emulator.answers import Answer
from heliotrope_sim.emulator.sse import ChunkWriter, Identity, failure, usage
from heliotrope_sim.engine import Request, Sequence

ABORTED = "abort"
FAILED = "error"
UNREAD_BYTES_LIMIT = 1024 * 1024


@dataclass(eq=False, slots=True)
class Generation:
    """A request between its submission and its end.

    Chunks go straight to the connection, all streams of a step in one turn of the event loop, without a task each.
    """

    request: Request
    answer: Answer
    identity: Identity
    transport: asyncio.WriteTransport
    done: asyncio.Future[None]
    chunks: ChunkWriter | None = None
    """None: the answer is sent whole."""
    cut_after_tokens: int | None = None
    """Break the connection after so many tokens (an injected fault)."""
    unread: bool = False
    """Its connection was broken off because the client did not read."""
    kv_settled: asyncio.Future[None] | None = None
    """Done when its KV has come from another engine, or is not needed any more; None: none is to come."""
    sequence: Sequence | None = None
    delivered: int = 0
    last_token_ns: int = 0
    finish_reason: str | None = None
    """None while it runs; `abort` if the engine dropped it, `error` if its KV did not come."""

    def deliver_token(self, now_ns: int, *, last: bool) -> None:
        """Hand over one token, which exists since `now_ns`."""
        index = self.delivered
        self.delivered = index + 1
        self.last_token_ns = now_ns
        if self.chunks is not None and not self.transport.is_closing():
            data = self.chunks.last_token(index, self.answer.finish_reason) if last else self.chunks.token(index)
            if index == 0:
                data = self.chunks.opening() + data
            if last:
                data += self.chunks.closing(self.usage())
            self.transport.write(data)
            if self.transport.get_write_buffer_size() > UNREAD_BYTES_LIMIT:
                self.unread = True
                self.transport.abort()
        if self.delivered == self.cut_after_tokens:
            self.transport.close()
        if last:
            self.finish(self.answer.finish_reason)

    @property
    def complete(self) -> bool:
        """Whether it has ended by itself."""
        return self.finish_reason not in (None, ABORTED, FAILED)

    def finish(self, reason: str) -> None:
        """End it; whoever waits for it goes on."""
        self.finish_reason = reason
        if not self.done.done():
            self.done.set_result(None)

    def drop(self) -> None:
        """End it because the engine dropped it; a stream says so, as vLLM's does."""
        if self.chunks is not None and not self.transport.is_closing():
            opening = b"" if self.delivered else self.chunks.opening()
            # Past the last word: no text.
            ending = self.chunks.last_token(self.answer.words, ABORTED)
            self.transport.write(opening + ending + self.chunks.closing(self.usage()))
        self.finish(ABORTED)

    def fail(self) -> None:
        """End it because its KV did not come; a stream says so, as vLLM's does."""
        if self.chunks is not None and not self.transport.is_closing():
            self.transport.write(failure())
        self.finish(FAILED)

    def text(self) -> str:
        """The text so far."""
        return self.answer.text(self.delivered)

    def usage(self) -> dict[str, Any]:
        """The tokens so far."""
        cached = self.sequence.cached_tokens if self.sequence is not None else 0
        return usage(self.request.prompt_tokens, self.delivered, cached)
