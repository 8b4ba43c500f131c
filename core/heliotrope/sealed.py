"""Files that tell whether they are whole: a line that names the format, the SHA-256 of the rest, and the rest."""

import hashlib

from heliotrope.errors import InvalidInputError


def sealed(text_format: str, body: str) -> str:
    """The file's text; `text_format` is one line."""
    return sealed_bytes(text_format, body.encode()).decode()


def sealed_bytes(file_format: str, body: bytes) -> bytes:
    """The file; `file_format` is one line."""
    return f"{file_format}\nsha256 {_digest(body)}\n".encode() + body


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
    return unsealed_bytes(text.encode(), text_format, name=name, error=error).decode()


def unsealed_bytes(
    data: bytes, file_format: str, *, name: str, error: type[InvalidInputError] = InvalidInputError
) -> bytes:
    """The body of what `sealed_bytes` wrote.

    Args:
        data: the file.
        file_format: that it must have.
        name: of what it holds, for messages.
        error: the class to raise.

    Raises:
        InvalidInputError: of class `error`, if the file is of another format, cut off or changed.
    """
    lines = data.split(b"\n", 2)
    if len(lines) < 3 or lines[0] != file_format.encode():
        raise error(name, f"must begin with {file_format!r}")
    if lines[1] != f"sha256 {_digest(lines[2])}".encode():
        raise error(f"{name}.sha256", "does not fit the content: the file is cut off or was changed")
    return lines[2]


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
