"""Tasks by counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.task_class import CHAT, CODE, LONG, NUMBERS, TOKENS, task_class


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        (b"", CHAT),
        (b"Tell me a story about the sea.", CHAT),
        (b"What is wrong here?\n```\nprint 1\n```", CODE),
        (b"for (i = 0; i < n; i++) { total += row[i]; }", CODE),
        (b"Add 1234 and 5678, then 91011.", NUMBERS),
        (b"word " * 2_000, LONG),
        (b"```\n```" + b"word " * 2_000, LONG),  # only the end is read
    ],
)
def test_a_prompt_is_of_the_first_class_whose_rule_holds(prompt: bytes, expected: str) -> None:
    assert task_class(prompt) == expected


def test_numbers_of_tokens_have_no_text() -> None:
    assert task_class(b"```" * 100, token_ids=True) == TOKENS


@given(st.binary(max_size=300))
def test_every_prompt_is_of_some_class_and_always_the_same(prompt: bytes) -> None:
    assert task_class(prompt) in {CHAT, CODE, LONG, NUMBERS}
    assert task_class(prompt) == task_class(bytes(bytearray(prompt)))
