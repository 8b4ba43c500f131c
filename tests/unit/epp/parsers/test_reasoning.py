"""What a body says of reasoning; whatever cannot be read is unknown."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.predict.reasoning import UNSAID, Effort, Reasoning
from heliotrope_epp.parsers.reasoning import MAX_BUDGET_TOKENS, reasoning_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("effort", list(Effort))
def test_every_word_of_the_engines_is_known_in_its_order(effort: Effort) -> None:
    word = effort.name.lower()

    assert reasoning_of(reasoning_effort=word) == Reasoning(effort)
    assert reasoning_of(reasoning={"effort": word}).effort_rank == float(effort)
    assert reasoning_of(chat_template_kwargs={"reasoning_effort": word}).effort is effort


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning": {"effort": "max"}, "reasoning_effort": "low"}, Reasoning(Effort.MAX)),
        ({"reasoning_effort": "low", "thinking_token_budget": 100}, Reasoning(Effort.LOW, 100)),
        ({"thinking_token_budget": 0}, Reasoning(None, 0)),
        ({"thinking_token_budget": -1, "chat_template_kwargs": {"thinking_budget": 7}}, Reasoning(None, 7)),
        ({"custom_params": {"thinking_budget": 5}, "chat_template_kwargs": {"thinking_budget": 7}}, Reasoning(None, 5)),
        ({"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"}, Reasoning(Effort.NONE)),
        ({"chat_template_kwargs": {"thinking": False}}, Reasoning(Effort.NONE)),
        ({"chat_template_kwargs": {"enable_thinking": True}}, UNSAID),
    ],
)
def test_what_is_enforced_counts_before_what_is_a_hint(fields: dict[str, Any], expected: Reasoning) -> None:
    assert reasoning_of(**fields) == expected


@pytest.mark.parametrize("value", [-1, -5, 1.5, True, "100", None, [1], MAX_BUDGET_TOKENS + 1, 10**40])
def test_a_budget_that_limits_nothing_or_is_no_number_is_unknown(value: Any) -> None:
    for fields in ({"thinking_token_budget": value}, {"custom_params": {"thinking_budget": value}}):
        assert reasoning_of(**fields) is UNSAID


@pytest.mark.parametrize("value", ["extreme", "", 0.5, None])
def test_an_effort_off_the_scale_is_unknown(value: Any) -> None:
    assert reasoning_of(reasoning_effort=value) is UNSAID


@given(st.tuples(JSON, JSON, JSON, JSON, JSON))
def test_no_json_is_an_error(values: tuple[Any, ...]) -> None:
    json.dumps(values)
    names = ("reasoning_effort", "reasoning", "thinking_token_budget", "custom_params", "chat_template_kwargs")
    found = reasoning_of(**dict(zip(names, values, strict=True)))

    assert found.effort is None or found.effort in Effort
    assert found.budget_tokens is None or 0 <= found.budget_tokens <= MAX_BUDGET_TOKENS
