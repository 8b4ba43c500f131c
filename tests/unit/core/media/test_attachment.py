"""Tokens of images, from the first bytes of their files."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliotrope.media.attachment import BORDER_TOKENS, image_tokens
from heliotrope.media.tokens import VisualTokenRule

RULE = VisualTokenRule()


def png(width: int, height: int, more: bytes = b"") -> str:
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + more
    return "data:image/png;base64," + base64.b64encode(data).decode()


@pytest.mark.parametrize("more", [b"", b"x", b"xy", b"x" * 300_000])
def test_the_size_is_in_the_first_bytes_whatever_follows(more: bytes) -> None:
    assert image_tokens(png(280, 560, more), RULE) == (200 + BORDER_TOKENS, False)


def test_what_would_have_to_be_fetched_is_assumed() -> None:
    assert image_tokens("https://pictures.example/cat.png", RULE) == (RULE.assumed_tokens + BORDER_TOKENS, True)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "cat.png",
        "file:///etc/passwd",
        "data:image/png,abc",
        "data:image/png;base64,%%%",
        "data:image/png;base64,aGVsbG8=",
        "data:image/png;base64",
        png(28, 28 * 201),
    ],
)
def test_what_cannot_be_read_is_unknown(url: str) -> None:
    assert image_tokens(url, RULE) == (None, False)


@given(st.text(max_size=200), st.sampled_from(["", "data:", "data:image/png;base64,", "data:;base64,iVBORw0KGgo"]))
def test_garbage_never_breaks_anything(text: str, head: str) -> None:
    tokens, _ = image_tokens(head + text, RULE)
    assert tokens is None or tokens > BORDER_TOKENS
