"""The requests that every arm of a demo run sends."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heliotrope_sim.workload.prompts import prompt_of
from heliotrope_sim.workload.trace import TraceRequest

MAX_OUTPUT_TOKENS = 2_048

Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PlannedRequest:
    """One request of an arm; every arm sends the same ones, a conversation's turns after the answers before them."""

    request_id: str
    arrival_seconds: float
    """When it is sent; a turn waits longer if the turn before it has not ended by then."""
    prompt_tokens: int
    output_tokens: int
    streaming: bool
    model: str
    messages: tuple[Message, ...]
    """Those that nobody has sent before."""
    conversation: str | None = None
    """None: it is a question of its own."""
    turn: int = 0
    pause_seconds: float = 0.0
    """Least time between the end of the answer before and this turn."""
    history_tokens: int = 0
    """What the turns before have sent and got."""

    def body(self, history: Sequence[Message]) -> bytes:
        """The OpenAI chat request after these messages."""
        document: dict[str, Any] = {
            "model": self.model,
            "messages": [*history, *self.messages],
            "max_tokens": MAX_OUTPUT_TOKENS,
            # How long the answer gets is the emulated engine's secret, as a real engine's is: only it reads this.
            "vllm_xargs": {"output_tokens": self.output_tokens},
            "stream": self.streaming,
        }
        if self.conversation is not None:
            document["prompt_cache_key"] = self.conversation
        if self.streaming:
            document["stream_options"] = {"include_usage": True}
        return json.dumps(document).encode()


def plan(requests: Sequence[TraceRequest], *, model: str, stream_share: float, seed: int) -> list[PlannedRequest]:
    """Turn a stretch of a trace into questions of their own; every `1 / stream_share`-th is streamed, evenly spread."""
    streaming = streamed(len(requests), stream_share)
    return [
        PlannedRequest(
            request_id=f"demo-{index:05d}",
            arrival_seconds=request.arrival_seconds,
            prompt_tokens=request.prompt_tokens,
            output_tokens=request.output_tokens,
            streaming=streaming[index],
            model=model,
            messages=({"role": "user", "content": prompt_of(request.prompt_tokens, seed * 1_000_003 + index)},),
        )
        for index, request in enumerate(requests)
    ]


def streamed(count: int, share: float) -> list[bool]:
    """Which of so many requests are streamed."""
    flags = []
    due = 0.0
    for _ in range(count):
        due += share
        flags.append(due >= 1.0 - 1e-9)
        due -= flags[-1]
    return flags
