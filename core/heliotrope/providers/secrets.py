"""Keys, tokens and passwords: where sources get them, and how they stay out of everything that is written down."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import quote, quote_plus

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError, CredentialsRefusedError

MAX_CHARACTERS = 16_384
MAX_BYTES = 1_048_576
"""Of what a Secret holds; Kubernetes' own limit."""
MASK = "***"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that shows itself only when asked by name."""

    _value: str = field(repr=False)

    def reveal(self) -> str:
        """The value, to be sent and to be put nowhere else."""
        return self._value

    def __str__(self) -> str:
        return MASK


class Secrets(Protocol):
    """Where the keys are that RegionProfiles name."""

    async def read(self, ref: SecretKeyRef) -> Secret:
        """The value as it is now, so that a rotated one counts at the next question.

        Raises:
            CredentialsMissingError: if there is none; the message says where it was looked for.
            SignalUnavailableError: if it could not be looked for.
        """
        ...

    async def read_pem(self, ref: SecretKeyRef) -> str:
        """PEM certificates, as they are now.

        Raises:
            CredentialsMissingError: if there are none; the message says where they were looked for.
            SignalUnavailableError: if they could not be looked for.
        """
        ...


def secret_of(data: bytes, where: str) -> Secret:
    """The secret in the bytes of a Secret's key or of a file; white space around it (a last line's end) is dropped.

    Raises:
        CredentialsMissingError: if it is empty or cannot be sent in a header. The message names `where`, never a value.
    """
    text = data.decode("utf-8", errors="replace").strip()
    if not text:
        raise CredentialsMissingError(f"{where} is empty")
    if len(text) > MAX_CHARACTERS:
        raise CredentialsMissingError(f"{where} is longer than {MAX_CHARACTERS} characters; is it the right key?")
    if not text.isprintable() or "\N{REPLACEMENT CHARACTER}" in text:
        raise CredentialsMissingError(f"{where} has line breaks or characters that are no text; is it encoded twice?")
    return Secret(text)


def pem_of(data: bytes, where: str) -> str:
    """PEM certificates from the bytes of a Secret's key or of a file.

    Raises:
        CredentialsMissingError: if there are none.
    """
    if len(data) > MAX_BYTES:
        raise CredentialsMissingError(f"{where} is larger than {MAX_BYTES} bytes; is it the right key?")
    text = data.decode("ascii", errors="replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise CredentialsMissingError(f"{where} holds no PEM certificate")
    return text


def bearer(token: Secret) -> str:
    """Value of an Authorization header."""
    return f"Bearer {token.reveal()}"


def basic(user: Secret, password: Secret, source: str) -> str:
    """Value of an Authorization header (RFC 7617).

    Raises:
        CredentialsRefusedError: if the user's name holds a colon, which ends the name where it is read.
    """
    if ":" in user.reveal():
        raise CredentialsRefusedError(f"{source}: a user's name cannot hold a colon; is it the password?")
    return f"Basic {base64.b64encode(f'{user.reveal()}:{password.reveal()}'.encode()).decode()}"


def masked(text: str, values: Iterable[str]) -> str:
    """The text with every one of the values replaced, also where they stand encoded for a URL."""
    forms = {form for value in values if value for form in (value, quote(value, safe=""), quote_plus(value))}
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, MASK)
    return text
