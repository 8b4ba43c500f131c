import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning
from heliotrope_epp.parsers.openai import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    Usage,
    is_inference_path,
    parse,
    usage_of,
)


def chat(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}], **fields}).encode()


def test_chat() -> None:
    parsed = parse(CHAT_PATH, chat(stream=True, max_tokens=7, cache_salt="tenant"))
    assert (parsed.model, parsed.streaming, parsed.max_output_tokens) == ("m", True, 7)
    assert parsed.prompt == b"user\nhello"
    assert parsed.prompt_tokens == 3  # 10 bytes at 4 a token, rounded up
    assert parsed.cache_salt == "tenant"


def test_the_newer_limit_wins_over_the_older() -> None:
    assert parse(CHAT_PATH, chat(max_tokens=7, max_completion_tokens=9)).max_output_tokens == 9


def test_content_may_come_in_parts_of_which_texts_are_read() -> None:
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:abc"}}]
    prompt = parse(CHAT_PATH, chat(messages=[{"role": "user", "content": parts}])).prompt
    assert prompt.startswith(b"user\nlook\n")
    assert b"abc" not in prompt


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [("four bytes", 3), (["ab", "cd"], 2), ([1, 2, 3, 4, 5], 5), ([[1, 2], [3]], 3), ("", 1), ([], 1)],
)
def test_completions(prompt: object, tokens: int) -> None:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    assert parse(COMPLETIONS_PATH, body).prompt_tokens == tokens


@pytest.mark.parametrize(
    ("body", "names"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "\xff"}]}', "not valid JSON"),
        (b"[]", "Expected `object`"),
        (b'{"messages": []}', "`model`"),
        (b'{"model": "m"}', "`messages`"),
        (b'{"model": "", "messages": []}', "model must not be empty"),
        (b'{"model": 5, "messages": []}', "$.model"),
        (b'{"model": "m", "messages": [{"role": "user", "content": 7}]}', "$.messages[0].content"),
        (b'{"model": "m", "messages": [], "max_tokens": "many"}', "$.max_tokens"),
        (b'{"model": "m", "messages": [], "max_tokens": -1}', "$.max_tokens"),
        (b'{"model": "m", "messages": [], "max_tokens": 99999999999999999999999}', "max_tokens"),
        (b'{"model": "m", "messages": [], "reasoning_effort": true}', "$.reasoning_effort"),
        (b'{"model": "m", "messages": [], "reasoning_effort": ["low"]}', "$.reasoning_effort"),
        (b'{"model": "m", "messages": [], "chat_template_kwargs": "thinking_budget=1"}', "$.chat_template_kwargs"),
    ],
)
def test_errors_name_the_field(body: bytes, names: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse(CHAT_PATH, body)
    assert names in str(caught.value)


def test_errors_never_quote_the_prompt() -> None:
    secret = "my secret prompt"
    for body in (chat(model=5, user=secret), chat(messages=[{"role": secret, "content": {"a": secret}}])):
        with pytest.raises(InvalidInputError) as caught:
            parse(CHAT_PATH, body)
        assert secret not in str(caught.value)
    assert secret not in repr(parse(CHAT_PATH, chat(messages=[{"role": "user", "content": secret}])))


@given(st.binary(max_size=200))
def test_no_body_does_more_than_raise_our_error(body: bytes) -> None:
    for path in (CHAT_PATH, COMPLETIONS_PATH):
        with contextlib.suppress(InvalidInputError):
            parse(path, body)


def test_reasoning_is_read_from_chats_and_completions_have_none() -> None:
    assert parse(CHAT_PATH, chat(reasoning_effort="low")).reasoning == Reasoning(Effort.LOW)
    assert parse(CHAT_PATH, chat(thinking_token_budget=512)).reasoning == Reasoning(None, 512)
    assert parse(CHAT_PATH, chat(reasoning={"effort": "high"}, reasoning_effort="low")).reasoning.effort is Effort.HIGH
    assert parse(CHAT_PATH, chat(custom_params={"thinking_budget": 64})).reasoning.budget_tokens == 64
    assert parse(CHAT_PATH, chat(chat_template_kwargs={"thinking_budget": 8})).reasoning.budget_tokens == 8
    assert parse(CHAT_PATH, chat()).reasoning is UNSAID
    completion = json.dumps({"model": "m", "prompt": "p", "reasoning_effort": "low"}).encode()
    assert parse(COMPLETIONS_PATH, completion).reasoning is UNSAID


def test_paths() -> None:
    assert is_inference_path("/v1/chat/completions?x=1")
    assert is_inference_path("/v1/completions")
    assert not is_inference_path("/v1/models")
    assert not is_inference_path("/v1/chat/completions/x")


USAGE = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}


def test_usage_of_a_whole_answer() -> None:
    body = json.dumps({"id": "x", "choices": [], "usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": 4}}})
    assert usage_of(body.encode()) == Usage(10, 20, 4)


def test_usage_of_the_end_of_a_long_answer() -> None:
    body = json.dumps({"choices": [{"message": {"content": '"usage": {' * 500}}], "usage": USAGE})
    assert usage_of(body.encode()[-4096:]) == Usage(10, 20, None)


def test_usage_of_a_stream() -> None:
    events = [
        'data: {"choices":[{"delta":{"content":"a"}}],"usage":null}',
        f'data: {{"choices":[],"usage":{json.dumps(USAGE)}}}',
        "data: [DONE]",
    ]
    assert usage_of("\n\n".join(events).encode()) == Usage(10, 20, None)


@pytest.mark.parametrize("tail", [b"", b"data: [DONE]\n\n", b'{"usage": null}', b'"usage": {"prompt', b"\xff\xfe"])
def test_without_usage_there_is_none(tail: bytes) -> None:
    assert usage_of(tail) is None


@given(st.binary(max_size=300))
def test_any_tail_is_safe(tail: bytes) -> None:
    usage_of(tail + b'"usage"' + tail)
