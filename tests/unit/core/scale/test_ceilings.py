"""Ceilings: read strictly, refused when stale, and silent about what they do not limit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.scale.ceilings import MAX_BYTES, Ceiling, Ceilings, parse_ceilings

NOW = 1_780_000_000.0
DOCUMENT: dict[str, Any] = {
    "schema": 1,
    "version": "abc",
    "issuedAt": "2026-05-28T20:26:40Z",
    "expiresAt": "2026-05-28T20:36:40Z",
    "ceilings": [
        {"region": "es", "accelerator": "H100", "accelerators": 16},
        {"region": "es", "accelerators": 20, "watts": 30_000},
        {"region": "fr", "watts": 0},
    ],
}


def read(now: float = NOW, **changes: Any) -> Ceilings:
    return parse_ceilings(json.dumps(DOCUMENT | changes).encode(), now)


def test_the_lowest_limit_counts_and_what_is_not_limited_is_none() -> None:
    found = read()

    assert (found.ceiling("es", "H100"), found.ceiling("es", "A100"), found.ceiling("fr", "H100")) == (16, 20, None)
    assert (found.watts("es"), found.watts("fr"), found.watts("de")) == (30_000, 0, None)
    assert (found.replicas("es", "H100", 8), found.replicas("es", "H100", 3), found.replicas("fr", "H100", 8)) == (
        2,
        5,
        None,
    )
    assert found.regions == {"es", "fr"}


def test_it_holds_until_it_expires() -> None:
    found = read()

    assert found.holds(NOW)
    assert found.holds(NOW + 599)
    assert not found.holds(NOW + 600)


def test_fields_of_a_newer_hub_are_left_aside() -> None:
    assert read(ceilings=[{"region": "es", "watts": 5, "note": "new"}], extra={"a": 1}).watts("es") == 5


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"schema": 2}, "schema"),
        ({"version": ""}, "version"),
        ({"issuedAt": "now"}, "issuedAt"),
        ({"issuedAt": None}, "issuedAt"),
        ({"issuedAt": "2026-05-28T20:33:00Z"}, "issuedAt"),
        ({"expiresAt": "2026-05-28T20:26:40Z"}, "expiresAt"),
        ({"expiresAt": "2027-05-28T20:26:40Z"}, "expiresAt"),
        ({"issuedAt": "2026-05-28T19:00:00Z", "expiresAt": "2026-05-28T20:00:00Z"}, "expiresAt"),
        ({"ceilings": {}}, "ceilings"),
        ({"ceilings": [3]}, "ceilings[0]"),
        ({"ceilings": [{"region": "es"}]}, "ceilings[0]"),
        ({"ceilings": [{"watts": 3}]}, "ceilings[0].region"),
        ({"ceilings": [{"region": "es", "watts": -1}]}, "ceilings[0].watts"),
        ({"ceilings": [{"region": "es", "watts": 1.5}]}, "ceilings[0].watts"),
        ({"ceilings": [{"region": "es", "accelerators": True}]}, "ceilings[0].accelerators"),
        ({"ceilings": [{"region": "es", "watts": 1}, {"region": "es", "watts": 2}]}, "ceilings"),
        ({"ceilings": [{"region": "es", "watts": 1}] * 5_000}, "ceilings"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        read(**changes)
    assert caught.value.path == path


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"\xff", b"[" * 100_000, b" " * (MAX_BYTES + 1)])
def test_garbage_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInputError):
        parse_ceilings(body, NOW)


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(key=st.sampled_from(sorted(DOCUMENT)), value=json_values)
def test_no_value_breaks_it(key: str, value: object) -> None:
    try:
        found = parse_ceilings(json.dumps(DOCUMENT | {key: value}).encode(), NOW)
    except InvalidInputError:
        return
    assert found.holds(NOW)
    assert all(isinstance(each, Ceiling) for each in found.ceilings)
