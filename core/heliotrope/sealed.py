"""Text files that tell whether they are whole: a line that names the format, the SHA-256 of the rest, and the rest."""

import hashlib

from heliotrope.errors import InvalidInputError


def sealed(text_format: str, body: str) -> str:
    """The file's text; `text_format` is one line."""
    return f"{text_format}\nsha256 {_digest(body)}\n{body}"


def digest_of(text: str) -> str:
    """The hexadecimal SHA-256 that a sealed text states."""
    return text.split("\n", 2)[1].removeprefix("sha256 ")


def unsealed(
    text: str,
    text_format: str,
    *,
    name: str,
    max_characters: int,
    error: type[InvalidInputError] = InvalidInputError,
) -> str:
    """The body of what `sealed` wrote.

    Args:
        text: the file's.
        text_format: that it must have.
        name: of what it holds, for messages.
        max_characters: that it may have.
        error: the class to raise.

    Raises:
        InvalidInputError: of class `error`, if the text is too long, of another format, cut off or changed.
    """
    if len(text) > max_characters:
        raise error(name, f"is longer than {max_characters} characters")
    lines = text.split("\n", 2)
    if len(lines) < 3 or lines[0] != text_format:
        raise error(name, f"must begin with {text_format!r}")
    if lines[1] != f"sha256 {_digest(lines[2])}":
        raise error(f"{name}.sha256", "does not fit the content: the file is cut off or was changed")
    return lines[2]


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
