"""The requests of the OpenAI API, as far as an engine without weights can honour them."""

from http import HTTPStatus
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from heliotrope_sim.emulator.errors import ApiError, bad_request
from heliotrope_sim.emulator.messages import Message, Prompt, prompt_of
from heliotrope_sim.emulator.multimodal.config import VisualTokens
from heliotrope_sim.emulator.tokens import MAX_TOKEN_ID, Tokens, tokenize

OUTPUT_TOKENS_HEADER = "x-emulator-output-tokens"
OUTPUT_TOKENS_XARG = "output_tokens"

TokenId = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]
OnePrompt = str | list[TokenId]


class StreamOptions(BaseModel):
    """Options of a streamed answer."""

    include_usage: bool | None = False


class GenerationOptions(BaseModel):
    """What both endpoints take. Sampling parameters that cannot matter here are ignored, as unknown fields are."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    stop: str | list[str] | None = None
    seed: int | None = None
    ignore_eos: bool = False
    min_tokens: int = 0
    cache_salt: str | None = Field(default=None, min_length=1)
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def check(self, limit: int | None) -> None:
        """Refuse what parses but cannot be served.

        Args:
            limit: most tokens that the request allows; None: what the context holds.

        Raises:
            ApiError: 400.
        """
        if self.n not in (None, 1):
            raise bad_request("The emulator generates one choice per request: n must be 1.", "n")
        if self.stream_options is not None and not self.stream:
            raise bad_request("Stream options can only be defined when `stream=True`.", "stream_options")
        if limit is not None and limit < 1:
            raise bad_request(f"max_tokens must be at least 1, got {limit}.", "max_tokens")
        if self.min_tokens < 0:
            raise bad_request(f"min_tokens must be greater than or equal to 0, got {self.min_tokens}.", "min_tokens")
        if limit is not None and self.min_tokens > limit:
            raise bad_request(
                f"min_tokens must be less than or equal to max_tokens={limit}, got {self.min_tokens}.", "min_tokens"
            )

    def fixed_tokens(self, header: str | None) -> int | None:
        """The exact output length that the caller wants, from the header or `vllm_xargs`.

        Raises:
            ApiError: 400 if it is not a whole number of at least 1.
        """
        value = header if header is not None else (self.vllm_xargs or {}).get(OUTPUT_TOKENS_XARG)
        if value is None:
            return None
        try:
            tokens = int(value)
        except (TypeError, ValueError):
            tokens = 0
        if tokens < 1:
            raise bad_request("The output length must be a whole number of at least 1.", OUTPUT_TOKENS_XARG)
        return tokens


class ChatRequest(GenerationOptions):
    """POST /v1/chat/completions."""

    messages: list[Message] = Field(min_length=1)
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None

    @property
    def token_limit(self) -> int | None:
        """`max_completion_tokens`, else the deprecated `max_tokens`."""
        return self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens

    def prompt(self, visual: VisualTokens | None) -> Prompt:
        """The conversation as a model that sees images so, or not at all, reads it.

        Raises:
            ApiError: 400 for content that it cannot take.
        """
        return prompt_of(self.messages, visual, self.tools)


class CompletionRequest(GenerationOptions):
    """POST /v1/completions."""

    text: OnePrompt | list[OnePrompt] = Field(alias="prompt")
    max_tokens: int | None = 16

    @property
    def token_limit(self) -> int | None:
        """`max_tokens`."""
        return self.max_tokens

    def prompt(self, visual: VisualTokens | None) -> Prompt:  # noqa: ARG002 - it holds no images
        """The prompt, text or token ids, as tokens.

        Raises:
            ApiError: 400 for several prompts.
        """
        prompt = self.text
        if not isinstance(prompt, str) and prompt and not isinstance(prompt[0], int):
            if len(prompt) > 1:
                raise bad_request("The emulator takes one prompt per request.", "prompt")
            prompt = prompt[0]
        return Prompt(tokenize(prompt) if isinstance(prompt, str) else np.array(prompt, dtype="<u4"))


class TokenizeRequest(BaseModel):
    """POST /tokenize: a prompt or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None

    def tokens(self, visual: VisualTokens | None) -> Tokens:
        """The tokens.

        Raises:
            ApiError: 400 if there is neither or both, or content that the model cannot take.
        """
        if (self.prompt is None) == (self.messages is None):
            raise bad_request("Exactly one of prompt and messages is needed.", "prompt")
        if self.prompt is not None:
            return tokenize(self.prompt)
        return prompt_of(self.messages or [], visual).tokens


GenerationRequest = ChatRequest | CompletionRequest
Body = TypeVar("Body", bound=BaseModel)


def parse(kind: type[Body], content_type: str, body: bytes) -> Body:
    """Read a request body.

    Raises:
        ApiError: 400 with vLLM's account of what is wrong, without the values that were sent.
    """
    if content_type != "application/json":
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
        )
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        shown = problems[:10]
        lines = [f"  {{'type': {p['type']!r}, 'loc': {_location(p['loc'])!r}, 'msg': {p['msg']!r}}}" for p in shown]
        label = "error" if len(problems) == 1 else "errors"
        raise ApiError(
            HTTPStatus.BAD_REQUEST,
            f"{len(problems)} validation {label}:\n" + "\n".join(lines),
            param=_location(problems[0]["loc"]),
        ) from None


def _location(loc: tuple[int | str, ...]) -> str:
    """The path of a field, without the branches of unions."""
    parts = [str(part) for part in loc if isinstance(part, int) or (part.isidentifier() and part not in {"str", "int"})]
    return ".".join(["body", *parts])
