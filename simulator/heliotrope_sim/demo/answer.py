"""What a client reads of an answer: its tokens, their times, and its text where it is needed again."""

import json
from collections.abc import AsyncIterable, Callable
from typing import Any


class Answer:
    """Collects what an answer shows while it arrives; `keep_text` costs a parse of every piece."""

    def __init__(self, *, keep_text: bool = False) -> None:
        self.prompt_tokens = 0
        self.cached_tokens = 0
        """Of the prompt, as the engine counts them."""
        self.tokens = 0
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.problem = ""
        self.response_id: str | None = None
        self._pieces: list[str] | None = [] if keep_text else None

    @property
    def text(self) -> str:
        """What it says; empty unless it was to be kept."""
        return "".join(self._pieces or ())

    def tpot_seconds(self) -> float | None:
        """Mean time between tokens; None where nobody saw them come."""
        if self.first_s is None or self.last_s is None:
            return None
        return (self.last_s - self.first_s) / max(self.tokens - 1, 1)

    async def read_stream(self, lines: AsyncIterable[bytes], clock: Callable[[], float]) -> None:
        """Server-sent events: content chunks, a usage chunk, `[DONE]`."""
        done = False
        async for line in lines:
            if not line.startswith(b"data: "):
                continue
            payload = line[6:].strip()
            if payload == b"[DONE]":
                done = True
            elif b'"usage":{' in payload or b'"usage": {' in payload:
                self._usage(json.loads(payload))
            elif b'"content":"' in payload or b'"content": "' in payload:
                self._content(payload, clock())
        if not done:
            self.problem = "stream ended without [DONE]"

    def read_whole(self, body: bytes, status: int) -> None:
        """An answer in one piece."""
        if status != 200:
            self.problem = f"HTTP {status}"
            return
        document = json.loads(body)
        self._usage(document)
        if self._pieces is not None:
            self._pieces.append(document["choices"][0]["message"]["content"])

    def _content(self, payload: bytes, now_s: float) -> None:
        if b'"content":""' in payload or b'"content": ""' in payload:
            return
        if self.first_s is None:
            self.first_s = now_s
        self.last_s = now_s
        if self._pieces is not None:
            self._pieces.append(json.loads(payload)["choices"][0]["delta"]["content"])

    def _usage(self, document: dict[str, Any]) -> None:
        usage = document["usage"]
        self.prompt_tokens = int(usage["prompt_tokens"])
        self.tokens = int(usage["completion_tokens"])
        self.cached_tokens = int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
        self.response_id = document.get("id")
