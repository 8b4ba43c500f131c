"""Merge patches: what is sent turns the old document into the new one, and is empty only if nothing differs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.operator.memory import apply_merge_patch

from heliotrope_operator.merge import merge_patch

scalars = st.sampled_from(["a", "b", 2, [1, 2], [1]])
leaves = st.dictionaries(st.sampled_from("abc"), scalars, max_size=3)
documents = st.dictionaries(st.sampled_from("abc"), st.one_of(scalars, leaves), max_size=3)


@given(documents, documents)
def test_applying_the_patch_gives_the_new_document(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert apply_merge_patch(old, merge_patch(old, new)) == new


@given(documents)
def test_equal_documents_need_no_patch(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}


def test_only_what_differs_is_sent() -> None:
    old = {"freshness": "Fresh", "intensity": {"value": "1", "estimated": True}, "points": [1, 2]}
    new = {"freshness": "Fresh", "intensity": {"value": "2"}, "points": [1, 2]}

    assert merge_patch(old, new) == {"intensity": {"value": "2", "estimated": None}}
