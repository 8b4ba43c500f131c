"""What was sealed is read as it was written, or not at all."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope.sealed import digest_of, sealed, sealed_bytes, unsealed, unsealed_bytes

FORMAT = "heliotrope test 1"


class OtherError(InvalidInputError):
    """One that somebody handles apart."""


def read(text: str) -> str:
    return unsealed(text, FORMAT, name="thing", max_characters=500, error=OtherError)


@given(st.text(max_size=200))
def test_what_was_sealed_comes_back(body: str) -> None:
    assert read(sealed(FORMAT, body)) == body


@given(st.text(min_size=1, max_size=200), st.data())
def test_what_is_cut_off_or_changed_is_refused(body: str, data: st.DataObject) -> None:
    text = sealed(FORMAT, body)
    end = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(OtherError):
        read(text[:end])
    with pytest.raises(OtherError, match="does not fit"):
        read(text + "x")


def test_other_formats_and_too_much_text_are_refused() -> None:
    with pytest.raises(OtherError, match="thing: must begin with 'heliotrope test 1'"):
        read(sealed("another", "x"))
    with pytest.raises(OtherError, match="longer than 500"):
        read(sealed(FORMAT, "x" * 500))


def test_the_digest_names_the_content() -> None:
    assert digest_of(sealed(FORMAT, "a")) == digest_of(sealed("another", "a")) != digest_of(sealed(FORMAT, "b"))


@given(st.binary(max_size=200))
def test_bytes_are_sealed_likewise(body: bytes) -> None:
    data = sealed_bytes(FORMAT, body)
    assert unsealed_bytes(data, FORMAT, name="thing") == body
    with pytest.raises(OtherError, match="does not fit"):
        unsealed_bytes(data + b"x", FORMAT, name="thing", error=OtherError)
    with pytest.raises(OtherError):
        unsealed_bytes(data[:-1], FORMAT, name="thing", error=OtherError)
    with pytest.raises(InvalidInputError, match="thing: must begin with 'another'"):
        unsealed_bytes(data, "another", name="thing")
