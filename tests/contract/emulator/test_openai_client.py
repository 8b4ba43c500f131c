"""The real OpenAI client talks to the emulator as it talks to vLLM."""

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from heliotrope_sim.emulator import ServedEngine

MODEL = "meta-llama/Llama-3.1-70B-Instruct"
MESSAGES: list[Any] = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "tell me a story"}]


async def test_chat_is_answered_whole(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    (choice,) = answer.choices
    assert answer.object == "chat.completion"
    assert answer.id.startswith("chatcmpl-")
    assert choice.finish_reason == "stop"
    assert choice.message.role == "assistant"
    assert choice.message.content
    assert answer.usage is not None
    # "be brief" is two tokens, the story four, and the template adds two per message and one for the answer.
    assert answer.usage.prompt_tokens == 2 + 4 + 5
    # The end of the sequence is a token without text.
    assert answer.usage.completion_tokens == len(choice.message.content.split()) + 1
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_a_stream_says_the_same(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES)
    stream = await client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    role, *content, last, usage = chunks
    assert role.choices[0].delta.role == "assistant"
    assert all(c.choices[0].finish_reason is None for c in content)
    assert last.choices[0].finish_reason == "stop"
    assert usage.choices == []
    assert usage.usage is not None
    assert whole.usage is not None
    assert usage.usage.completion_tokens == whole.usage.completion_tokens == len(content) + 1
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    assert len({c.id for c in chunks}) == 1


async def test_a_stream_without_usage_ends_with_the_finish(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=3, stream=True)
    chunks = [chunk async for chunk in stream]
    assert [c.choices[0].finish_reason for c in chunks] == [None, None, None, "length"]
    assert all(c.usage is None for c in chunks)


async def test_completions_take_text_and_tokens(client: AsyncOpenAI) -> None:
    text = await client.completions.create(model=MODEL, prompt="abcdefgh")
    assert (text.object, text.choices[0].finish_reason) == ("text_completion", "length")
    assert text.usage is not None
    assert (text.usage.prompt_tokens, text.usage.completion_tokens) == (2, 16)
    ids = [int.from_bytes(b"abcd", "little"), int.from_bytes(b"efgh", "little")]
    tokens = await client.completions.create(model=MODEL, prompt=ids)
    assert tokens.choices[0].text == text.choices[0].text
    stream = await client.completions.create(model=MODEL, prompt=[ids], stream=True)
    assert "".join([chunk.choices[0].text async for chunk in stream]) == text.choices[0].text


@pytest.mark.parametrize(
    ("options", "tokens", "reason"),
    [
        ({"max_tokens": 5, "extra_body": {"ignore_eos": True}}, 5, "length"),
        ({"max_completion_tokens": 4, "max_tokens": 9, "extra_body": {"ignore_eos": True}}, 4, "length"),
        ({"max_tokens": 300, "extra_body": {"min_tokens": 300}}, 300, None),
        ({"extra_body": {"vllm_xargs": {"output_tokens": 7}}}, 7, "stop"),
        ({"extra_headers": {"x-emulator-output-tokens": "6"}}, 6, "stop"),
        ({"extra_headers": {"x-emulator-output-tokens": "6"}, "max_tokens": 2}, 2, "length"),
        ({"max_tokens": 1}, 1, None),
    ],
)
async def test_the_length_of_an_answer_can_be_fixed(
    client: AsyncOpenAI, options: dict[str, Any], tokens: int, reason: str | None
) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, **options)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == tokens
    assert reason in (None, answer.choices[0].finish_reason)


async def test_a_conversation_finds_its_beginning_in_the_cache(client: AsyncOpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "once upon a time " * 20}]
    first = await client.chat.completions.create(model=MODEL, messages=messages)
    assert first.usage is not None
    assert first.usage.prompt_tokens_details is not None
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "and then?"},
    ]
    second = await client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    # All of the first turn but its last token, whose KV was never computed, in whole blocks.
    assert second.usage.prompt_tokens_details.cached_tokens == (first.usage.total_tokens - 1) // 16 * 16
    salted = await client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=1, extra_body={"cache_salt": "another tenant"}
    )
    assert salted.usage is not None
    assert salted.usage.prompt_tokens_details is not None
    assert salted.usage.prompt_tokens_details.cached_tokens == 0


async def test_the_same_request_gets_the_same_answer_unless_its_seed_differs(client: AsyncOpenAI) -> None:
    async def ask(seed: int | None) -> str | None:
        answer = await client.chat.completions.create(model=MODEL, messages=MESSAGES, seed=seed)
        return answer.choices[0].message.content

    assert await ask(None) == await ask(None)
    assert await ask(1) == await ask(1) != await ask(2)


async def test_models_are_listed(client: AsyncOpenAI, engine: ServedEngine) -> None:
    (card,) = (await client.models.list()).data
    assert card.id == MODEL
    assert card.model_dump()["max_model_len"] == engine.driver.max_model_len == 4096


async def test_an_unknown_model_is_not_found(client: AsyncOpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        await client.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert error.value.body == {
        "message": f"The model `gpt-5` does not exist. Valid aliases: {MODEL}.",
        "type": "NotFoundError",
        "param": "model",
        "code": 404,
    }


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"n": 2}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 4, "extra_body": {"min_tokens": 5}}, "min_tokens"),
        ({"extra_body": {"min_tokens": -1}}, "min_tokens"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stop": [[1]]}, "body.stop"),
        ({"messages": []}, "body.messages"),
        ({"messages": [{"content": "no role"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": "word " * 4000}]}, "input_tokens"),
        ({"extra_headers": {"x-emulator-output-tokens": "many"}}, "output_tokens"),
    ],
)
async def test_bad_requests_name_the_parameter(client: AsyncOpenAI, options: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as error:
        await client.chat.completions.create(**({"model": MODEL, "messages": MESSAGES} | options))
    assert error.value.param == param


async def test_content_may_come_in_parts(client: AsyncOpenAI) -> None:
    parts: list[Any] = [{"role": "user", "content": [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]}]
    whole: list[Any] = [{"role": "user", "content": "ab\ncd"}]
    one = await client.chat.completions.create(model=MODEL, messages=parts)
    two = await client.chat.completions.create(model=MODEL, messages=whole)
    assert one.choices[0].message.content == two.choices[0].message.content
