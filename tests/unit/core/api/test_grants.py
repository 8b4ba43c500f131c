"""Rights of namespaces: only the one value grants, and what is not known is not granted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.api.grants import GRANTED, GrantReason, Right, grant


@pytest.mark.parametrize("right", list(Right))
def test_the_label_grants_its_own_right_and_no_other(right: Right) -> None:
    labels = {right.value: "true"}

    assert {each for each in Right if grant(each, "team", labels).allowed} == {right}
    assert grant(right, "team", labels).reason is GrantReason.GRANTED


@given(value=st.text(max_size=8).filter(lambda text: text != GRANTED))
def test_no_other_value_grants_and_the_message_shows_it(value: str) -> None:
    found = grant(Right.SCALING, "team", {Right.SCALING.value: value})

    assert (found.allowed, found.reason) == (False, GrantReason.NOT_GRANTED)
    assert repr(value) in found.message


def test_a_refusal_says_how_to_grant() -> None:
    found = grant(Right.POWER, "team", {"kubernetes.io/metadata.name": "team"})

    assert not found.allowed
    assert "`kubectl label namespace team heliotrope.io/allow-power=true`" in found.message


def test_an_unknown_namespace_is_granted_nothing() -> None:
    for right in Right:
        found = grant(right, "team", None)
        assert (found.allowed, found.reason) == (False, GrantReason.NAMESPACE_UNKNOWN)
