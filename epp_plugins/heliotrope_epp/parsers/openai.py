"""Reads what routing needs from OpenAI requests and responses. Texts are used for counting and hashing only."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from heliotrope.errors import InvalidInputError
from heliotrope.media.attachment import Attachment
from heliotrope.predict.reasoning import UNSAID, Reasoning
from heliotrope_epp.parsers.media import Attachments, Part
from heliotrope_epp.parsers.reasoning import reasoning_of
from heliotrope_epp.parsers.session_hints import NO_HINTS, SessionHints, session_hints

CHAT_PATH = "/v1/chat/completions"
COMPLETIONS_PATH = "/v1/completions"

BYTES_PER_TOKEN = 4
"""Estimate where no tokenizer is at hand; llm-d's token-producer uses the same."""


MAX_TOKENS = 2**31 - 1


class _Message(msgspec.Struct):
    role: str = ""
    content: str | list[Part] | None = None


class _Common(msgspec.Struct, kw_only=True):
    model: str
    stream: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    cache_salt: str | None = None
    prompt_cache_key: Any = None
    previous_response_id: Any = None
    user: Any = None


class _Chat(_Common, kw_only=True):
    messages: list[_Message]
    reasoning_effort: str | float | None = None
    reasoning: Any = None
    thinking_token_budget: Any = None
    custom_params: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


class _Completion(_Common, kw_only=True):
    prompt: str | list[str | int | list[int]]


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: dict[str, Any] | None = None


class _Response(msgspec.Struct):
    usage: _Usage | None = None


_CHAT_DECODER = msgspec.json.Decoder(_Chat)
_COMPLETION_DECODER = msgspec.json.Decoder(_Completion)
_RESPONSE_DECODER = msgspec.json.Decoder(_Response)


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """What a request body says; `prompt` holds its text as bytes."""

    model: str
    prompt: bytes = field(repr=False)
    prompt_tokens: int
    max_output_tokens: int | None
    streaming: bool
    cache_salt: str = field(default="", repr=False)
    reasoning: Reasoning = UNSAID
    session: SessionHints = NO_HINTS
    token_ids: bool = False
    """The prompt came as numbers of tokens, which `prompt` holds as 4 bytes each, least significant first."""
    media: tuple[Attachment, ...] = ()
    """What it holds beside text, each once; `prompt` has 4 bytes for each token of it."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts that the engine reported."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


def is_inference_path(path: str) -> bool:
    """Whether `parse` understands requests to this path (query string ignored)."""
    return _route(path) in (CHAT_PATH, COMPLETIONS_PATH)


def parse(path: str, body: bytes) -> ParsedBody:
    """Read a chat or text completion request.

    Raises:
        InvalidInputError: if the body is not valid JSON of that kind; the message names the field, never its value.
    """
    try:
        if _route(path) == CHAT_PATH:
            chat = _CHAT_DECODER.decode(body)
            attachments = Attachments()
            text, previous_bytes = _chat_text(chat, attachments)
            return _parsed(chat, text, None, _reasoning(chat), previous_bytes, attachments.all())
        completion = _COMPLETION_DECODER.decode(body)
    except msgspec.ValidationError as error:
        raise InvalidInputError("body", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InvalidInputError("body", "not valid JSON") from None
    text, tokens = _completion_text(completion.prompt)
    return _parsed(completion, text, tokens, UNSAID, 0)


def usage_of(tail: bytes) -> Usage | None:
    """The usage in the end of a response, streamed or not; None if it is not there.

    Args:
        tail: the last bytes of the body; usage stands at the end of a JSON answer and in the last SSE events.
    """
    for line in reversed(tail.splitlines()):
        payload = line.removeprefix(b"data:").strip()
        if b'"usage"' not in payload:
            continue
        usage = _decode_usage(payload)
        if usage is not None:
            return usage
    return None


def _route(path: str) -> str:
    return path.partition("?")[0]


def _reasoning(chat: _Chat) -> Reasoning:
    return reasoning_of(
        reasoning_effort=chat.reasoning_effort,
        reasoning=chat.reasoning,
        thinking_token_budget=chat.thinking_token_budget,
        custom_params=chat.custom_params,
        chat_template_kwargs=chat.chat_template_kwargs,
    )


def _parsed(
    body: _Common,
    text: bytes,
    tokens: int | None,
    reasoning: Reasoning,
    previous_bytes: int,
    media: tuple[Attachment, ...] = (),
) -> ParsedBody:
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    if limit is not None and not 0 <= limit <= MAX_TOKENS:
        raise InvalidInputError("body", f"max_tokens must be from 0 to {MAX_TOKENS} - at `$.max_tokens`")
    if not body.model:
        raise InvalidInputError("body", "model must not be empty - at `$.model`")
    return ParsedBody(
        model=body.model,
        prompt=text,
        prompt_tokens=max(1, -(-len(text) // BYTES_PER_TOKEN)) if tokens is None else tokens,
        max_output_tokens=limit,
        streaming=bool(body.stream),
        cache_salt=body.cache_salt or "",
        reasoning=reasoning,
        session=session_hints(body.prompt_cache_key, body.previous_response_id, body.user, previous_bytes),
        token_ids=tokens is not None,
        media=media,
    )


def _chat_text(chat: _Chat, attachments: Attachments) -> tuple[bytes, int]:
    """The text, and how many bytes of it were the prompt of the turn before: all before the last answer."""
    answers = [i for i, message in enumerate(chat.messages) if message.role == "assistant"]
    before = _text(chat.messages[: answers[-1]] if answers else [], attachments)
    rest = _text(chat.messages[answers[-1] :] if answers else chat.messages, attachments)
    return (before + b"\n" + rest, len(before)) if before else (rest, 0)


def _text(messages: Sequence[_Message], attachments: Attachments) -> bytes:
    pieces: list[str] = []
    for message in messages:
        pieces.append(message.role)
        if isinstance(message.content, str):
            pieces.append(message.content)
        elif message.content is not None:
            pieces.extend([attachments.text_of(part) for part in message.content])
    return "\n".join(pieces).encode("utf-8", "surrogatepass")


def _completion_text(prompt: str | list[str | int | list[int]]) -> tuple[bytes, int | None]:
    """The text, and the exact token count if the prompt came as token ids."""
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass"), None
    ids: list[int] = []
    texts: list[str] = []
    for item in prompt:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, int):
            ids.append(item)
        else:
            ids.extend(item)
    if texts:
        return "\n".join(texts).encode("utf-8", "surrogatepass"), None
    # Token ids become 4 bytes each, so that blocks of the prefix index hold as many tokens as with text.
    return b"".join((i & 0xFFFFFFFF).to_bytes(BYTES_PER_TOKEN, "little") for i in ids), max(1, len(ids))


def _decode_usage(payload: bytes) -> Usage | None:
    try:
        usage = _RESPONSE_DECODER.decode(payload).usage
    except (msgspec.DecodeError, UnicodeDecodeError):
        usage = _usage_of_truncated(payload)
    if usage is None:
        return None
    cached = (usage.prompt_tokens_details or {}).get("cached_tokens")
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached if isinstance(cached, int) else None)


def _usage_of_truncated(payload: bytes) -> _Usage | None:
    """The tail may begin inside a long JSON answer: read the last `"usage": {…}` object alone."""
    start = payload.rfind(b'"usage"')
    brace = payload.find(b"{", start)
    if start < 0 or brace < 0:
        return None
    depth = 0
    for position in range(brace, len(payload)):
        depth += {0x7B: 1, 0x7D: -1}.get(payload[position], 0)
        if depth == 0:
            try:
                return msgspec.json.decode(payload[brace : position + 1], type=_Usage)
            except (msgspec.DecodeError, UnicodeDecodeError):
                return None
    return None
