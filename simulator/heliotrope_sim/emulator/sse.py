"""Chunks of a streamed answer, byte for byte as vLLM 0.32 writes them, ready for a chunked HTTP body."""

import json
from dataclasses import dataclass
from typing import Any

from heliotrope_sim.emulator.answers import Answer
from heliotrope_sim.emulator.tokens import BYTES_PER_TOKEN


@dataclass(frozen=True, slots=True)
class Identity:
    """What every chunk and response of one request repeats."""

    response_id: str
    created: int
    model: str
    fingerprint: str


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> dict[str, Any]:
    """The `usage` object."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


class ChunkWriter:
    """Builds the chunks of one stream. All but the last differ in one word, so they are cut once, not serialized."""

    __slots__ = ("_answer", "_chat", "_head", "_identity", "_include_usage", "_tail")

    def __init__(self, identity: Identity, answer: Answer, *, chat: bool, include_usage: bool) -> None:
        self._identity = identity
        self._answer = answer
        self._chat = chat
        self._include_usage = include_usage
        marker = "@"
        # The text is the last thing in a chunk that could hold the marker.
        before, _, after = self._event(self._choice(marker, None)).rpartition(marker.encode())
        # Every token but the last has text of the same length, so the frame's length is known too.
        length = len(before) + BYTES_PER_TOKEN + len(after)
        self._head = b"%x\r\n" % length + before
        self._tail = after + b"\r\n"

    def opening(self) -> bytes:
        """What comes before the first token: the role, for a chat."""
        if not self._chat:
            return b""
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
        return frame(self._event(choice, prompt_token_ids=None, prompt_text=None))

    def token(self, index: int) -> bytes:
        """The chunk of a token that is not the last."""
        return self._head + self._answer.word(index) + self._tail

    def last_token(self, index: int, finish_reason: str) -> bytes:
        """The chunk that ends the answer, with its last text."""
        choice = self._choice(self._answer.word(index).decode(), finish_reason)
        if self._include_usage:
            return frame(self._event(choice))
        return frame(self._event(choice, system_fingerprint=self._identity.fingerprint))

    def closing(self, final_usage: dict[str, Any]) -> bytes:
        """What comes after the last token: the usage if it was asked for, and the end of the stream."""
        done = frame(b"data: [DONE]\n\n")
        if not self._include_usage:
            return done
        return frame(self._event(None, usage=final_usage, system_fingerprint=self._identity.fingerprint)) + done

    def _choice(self, text: str, finish_reason: str | None) -> dict[str, Any]:
        if self._chat:
            choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "logprobs": None}
            choice["finish_reason"] = finish_reason
            if finish_reason is not None:
                choice["stop_reason"] = None
            return choice | {"token_ids": None}
        return {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish_reason,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }

    def _event(self, choice: dict[str, Any] | None, **more: Any) -> bytes:
        body = {
            "id": self._identity.response_id,
            "object": "chat.completion.chunk" if self._chat else "text_completion",
            "created": self._identity.created,
            "model": self._identity.model,
            "choices": [] if choice is None else [choice],
            **more,
        }
        return b"data: " + json.dumps(body, separators=(",", ":")).encode() + b"\n\n"


def failure() -> bytes:
    """What ends a stream whose request failed in the engine."""
    error = {"message": "Internal server error", "type": "InternalServerError", "param": None, "code": 500}
    return frame(b"data: " + json.dumps({"error": error}).encode() + b"\n\n") + frame(b"data: [DONE]\n\n")


def frame(data: bytes) -> bytes:
    """One chunk of a chunked HTTP/1.1 body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def encoder_response(
    identity: Identity, final_usage: dict[str, Any], ec_transfer_params: dict[str, Any]
) -> dict[str, Any]:
    """The body of an encoder's answer: no choice, but where the embeddings are."""
    return {
        "id": identity.response_id,
        "object": "chat.completion",
        "created": identity.created,
        "model": identity.model,
        "choices": [],
        "usage": final_usage,
        "kv_transfer_params": None,
        "ec_transfer_params": ec_transfer_params,
    }


def full_response(
    identity: Identity,
    text: str,
    finish_reason: str,
    final_usage: dict[str, Any],
    *,
    chat: bool,
    kv_transfer_params: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    choice: dict[str, Any] = {"index": 0}
    if chat:
        choice["message"] = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
            "reasoning": None,
        }
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None, "token_ids": None}
    return {
        "id": identity.response_id,
        "object": "chat.completion" if chat else "text_completion",
        "created": identity.created,
        "model": identity.model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": identity.fingerprint,
        "usage": final_usage | {"completion_tokens_details": None},
        "kv_transfer_params": kv_transfer_params,
    }
