"""Names become keys that tell tenants, models, sources and processes apart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.cache.session_key import MAX_NAME_LENGTH, IdentitySource, SessionKeys, usable_name

KEYS = SessionKeys(b"secret")
IDENTITIES = st.tuples(st.sampled_from(IdentitySource), st.text(max_size=8), st.text(max_size=8), st.binary(max_size=8))


@given(IDENTITIES, IDENTITIES)
def test_only_equal_identities_have_equal_keys(
    one: tuple[IdentitySource, str, str, bytes], other: tuple[IdentitySource, str, str, bytes]
) -> None:
    assert (KEYS.of(*one) == KEYS.of(*other)) == (one == other)


def test_a_name_that_another_tenant_forges_is_another_session() -> None:
    of_a = KEYS.of(IdentitySource.HEADER, "tenant-a", "m", b"chat-1")
    assert of_a != KEYS.of(IdentitySource.HEADER, "tenant-b", "m", b"chat-1")
    assert of_a != KEYS.of(IdentitySource.HEADER, "tenant-a", "another model", b"chat-1")
    assert of_a == KEYS.of(IdentitySource.HEADER, "tenant-a", "m", b"chat-1")


def test_every_process_draws_its_own_secret() -> None:
    name = (IdentitySource.HEADER, "t", "m", b"chat-1")
    assert SessionKeys().of(*name) != SessionKeys().of(*name)
    assert len(SessionKeys().of(*name)) == 16


@pytest.mark.parametrize("name", ["a", "resp_0123", "x" * MAX_NAME_LENGTH, "!~"])
def test_visible_ascii_is_a_name(name: str) -> None:
    assert usable_name(name)


@pytest.mark.parametrize("name", [None, "", "x" * (MAX_NAME_LENGTH + 1), "a b", "a\n", "a\x00", "é", "\ud800", "\x7f"])
def test_anything_else_is_none(name: str | None) -> None:
    assert not usable_name(name)
