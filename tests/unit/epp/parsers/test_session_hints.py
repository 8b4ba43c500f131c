"""What bodies say of their conversation, and what answers are called."""

import json
from typing import Any

import pytest

from heliotrope_epp.parsers.openai import CHAT_PATH, COMPLETIONS_PATH, parse
from heliotrope_epp.parsers.session_hints import NO_HINTS, response_id_of

USER_1 = {"role": "user", "content": "Plan three days in Rome. é"}
ANSWER_1 = {"role": "assistant", "content": "Day one: the forum."}
USER_2 = {"role": "user", "content": [{"type": "text", "text": "Add two museums."}]}
SYSTEM = {"role": "system", "content": "Be brief."}


def chat(*messages: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([USER_1], [ANSWER_1, USER_2]),
        ([SYSTEM, USER_1], [ANSWER_1, USER_2]),
        (
            [SYSTEM, USER_1],
            [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "3"}],
        ),
        ([SYSTEM, USER_1, ANSWER_1, USER_2], [ANSWER_1, USER_1]),
        ([{"role": "user", "content": ""}], [ANSWER_1, USER_2]),
    ],
)
def test_the_prompt_of_the_turn_before_is_found_in_the_next_one(
    before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    first, second = parse(CHAT_PATH, chat(*before)), parse(CHAT_PATH, chat(*before, *after))
    assert second.prompt[: second.session.previous_prompt_bytes] == first.prompt
    assert second.prompt == b"\n".join([first.prompt, parse(CHAT_PATH, chat(*after)).prompt])


def test_a_first_turn_has_none_before() -> None:
    assert parse(CHAT_PATH, chat(SYSTEM, USER_1)).session == NO_HINTS
    assert parse(CHAT_PATH, chat(ANSWER_1, USER_1)).session == NO_HINTS


def test_names_are_taken_as_they_are() -> None:
    names = {"prompt_cache_key": "k", "previous_response_id": "resp_1", "user": "u"}
    for path, body in (
        (CHAT_PATH, chat(USER_1, **names)),
        (COMPLETIONS_PATH, json.dumps({"model": "m", "prompt": "p", **names}).encode()),
    ):
        hints = parse(path, body).session
        assert (hints.prompt_cache_key, hints.previous_response_id, hints.user) == ("k", "resp_1", "u")
        assert "resp_1" not in repr(hints)


@pytest.mark.parametrize("value", [None, 7, ["a"], {"a": 1}, True])
def test_names_of_another_type_are_none_and_refuse_no_request(value: Any) -> None:
    body = chat(USER_1, prompt_cache_key=value, previous_response_id=value, user=value)
    assert parse(CHAT_PATH, body).session == NO_HINTS


@pytest.mark.parametrize(
    ("tail", "found"),
    [
        (b'{"id":"resp_ab12","object":"response"}', "resp_ab12"),
        (b'event: response.completed\ndata: {"response": {"id": "resp_9", "usage": {}}}\n\n', "resp_9"),
        (b'{"id":"chatcmpl-1","usage":{}}', None),
        (b'{"text":"\\"id\\":\\"resp_forged\\""}', None),
        (b'{"id":"resp_' + b"x" * 300 + b'"}', None),
        (b'{"id":"resp_\x00"}', None),
        (b"", None),
    ],
)
def test_the_id_of_an_answer(tail: bytes, found: str | None) -> None:
    assert response_id_of(tail) == found
