"""Secrets as files: a folder for each Secret, a file for each of its keys, as Kubernetes mounts them."""

import asyncio
import os
import stat
from pathlib import Path

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError
from heliotrope.providers.secrets import MAX_BYTES, Secret, pem_of, secret_of


class SecretsFolder:
    """Reads `<folder>/<name>/<key>` anew each time, so that a file that was exchanged counts at the next poll."""

    def __init__(self, folder: Path | None) -> None:
        """`folder`: None holds nothing, and errors say how to give one."""
        self._folder = folder

    async def read(self, ref: SecretKeyRef) -> Secret:
        """The value as it is now.

        Raises:
            CredentialsMissingError: if there is none; the message names the file.
        """
        return secret_of(await self._data(ref), self._where(ref))

    async def read_pem(self, ref: SecretKeyRef) -> str:
        """PEM certificates as they are now.

        Raises:
            CredentialsMissingError: if there are none; the message names the file.
        """
        return pem_of(await self._data(ref), self._where(ref))

    async def _data(self, ref: SecretKeyRef) -> bytes:
        if self._folder is None:
            raise CredentialsMissingError(
                f"the source needs key {ref.key} of the Secret {ref.name}, and there is no folder of secrets; give one "
                "with --secrets-folder"
            )
        if ref.key in (".", ".."):
            raise CredentialsMissingError(f"{ref.key!r} is no name of a key")
        try:
            return await asyncio.to_thread(_read, self._folder / ref.name / ref.key)
        except OSError as error:
            problem = error.strerror or type(error).__name__
            raise CredentialsMissingError(f"{self._where(ref)} cannot be read: {problem}") from None

    def _where(self, ref: SecretKeyRef) -> str:
        return f"the file {self._folder}/{ref.name}/{ref.key}"


def _read(path: Path) -> bytes:
    """What a file begins with; anything else than a file might never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "is not a file")
        return os.read(descriptor, MAX_BYTES + 1)
    finally:
        os.close(descriptor)
