"""Bodies that name another model: nothing else changes."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning
from heliotrope_epp.plugins.models.rewrite import effort_is_free, rewritten

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), JSON, max_size=6), st.text(min_size=1), st.booleans())
def test_every_other_value_stays_byte_for_byte_and_in_its_place(
    fields: dict[str, Any], model: str, escaped: bool
) -> None:
    body = json.dumps({**fields, "model": "asked"}, ensure_ascii=escaped).encode("utf-8", "ignore")
    before = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    after = msgspec.json.decode(rewritten(body, model), type=dict[str, msgspec.Raw])
    assert list(after) == list(before)
    assert {k: bytes(v) for k, v in after.items() if k != "model"} == {
        k: bytes(v) for k, v in before.items() if k != "model"
    }
    assert json.loads(bytes(after["model"])) == model


def test_numbers_keep_their_spelling_and_the_last_of_two_models_is_replaced() -> None:
    body = b'{ "model":"a", "seed": 123456789012345678901234567890, "temperature": 1.00, "model" : "b" }'
    text = rewritten(body, "c", Effort.LOW)
    assert text == (b'{"model":"c","seed":123456789012345678901234567890,"temperature":1.00,"reasoning_effort":"low"}')


@pytest.mark.parametrize(
    ("fields", "reasoning", "free"),
    [
        ({}, UNSAID, True),
        ({"reasoning_effort": None}, UNSAID, True),
        ({"reasoning_effort": "high"}, Reasoning(Effort.HIGH), True),
        ({"reasoning_effort": "odd"}, UNSAID, False),
        ({"reasoning_effort": 0.5}, UNSAID, False),
        ({"reasoning": {"effort": "high"}}, Reasoning(Effort.HIGH), False),
        ({"chat_template_kwargs": {}}, UNSAID, False),
        ({"thinking_token_budget": 9}, Reasoning(None, 9), False),
    ],
)
def test_effort_is_free_where_its_field_alone_decides(fields: dict[str, Any], reasoning: Reasoning, free: bool) -> None:
    assert effort_is_free(json.dumps({"model": "m", "messages": [], **fields}).encode(), reasoning) is free


def test_text_completions_have_no_effort() -> None:
    assert not effort_is_free(b'{"model": "m", "prompt": "p"}', UNSAID)
