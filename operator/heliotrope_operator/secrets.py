"""Secrets of the operator's own namespace, read when they are needed and kept nowhere: a rotated one counts at once.

No reference can name another namespace: RegionProfiles belong to the whole cluster, and whoever may write one must not
reach into the Secrets of all tenants by it.
"""

import base64
import binascii
from typing import Any

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError, SignalUnavailableError
from heliotrope.providers.secrets import Secret, pem_of, secret_of
from heliotrope_operator.errors import ApiError, ForbiddenError, NotFoundError
from heliotrope_operator.kube import Document, Kube
from heliotrope_operator.resources import SECRETS


class OwnSecrets:
    """`heliotrope.providers.secrets.Secrets` from the API server."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def read(self, ref: SecretKeyRef) -> Secret:
        """The value as it is now.

        Raises:
            CredentialsMissingError: if there is none, or it may not be read; the message says what to do.
            SignalUnavailableError: if the API server does not answer.
        """
        return secret_of(await self._data(ref), self._where(ref))

    async def read_pem(self, ref: SecretKeyRef) -> str:
        """PEM certificates as they are now.

        Raises:
            CredentialsMissingError: if there are none, or they may not be read; the message says what to do.
            SignalUnavailableError: if the API server does not answer.
        """
        return pem_of(await self._data(ref), self._where(ref))

    async def _data(self, ref: SecretKeyRef) -> bytes:
        return key_of(await self.document(ref), self._where(ref), ref.key)

    async def document(self, ref: SecretKeyRef) -> Document:
        """The whole Secret.

        Raises:
            CredentialsMissingError: if it is not there, or may not be read; the message says what to do.
            SignalUnavailableError: if the API server does not answer.
        """
        name = f"Secret {self._namespace}/{ref.name}"
        try:
            return await self._kube.get(SECRETS.path(self._namespace, ref.name))
        except NotFoundError:
            raise CredentialsMissingError(
                f"{name} does not exist; create it: kubectl create secret generic {ref.name} "
                f"--namespace {self._namespace} --from-literal={ref.key}=…"
            ) from None
        except ForbiddenError:
            raise CredentialsMissingError(
                f"{name}: the operator may not read it; allow its service account `get` on secrets in "
                f"{self._namespace}, as the chart does"
            ) from None
        except ApiError as error:
            raise SignalUnavailableError(f"{name}: {error}") from None

    def _where(self, ref: SecretKeyRef) -> str:
        return f"Secret {self._namespace}/{ref.name}, key {ref.key},"


def key_of(document: Document, where: str, key: str) -> bytes:
    """The bytes under a key of a Secret.

    Raises:
        CredentialsMissingError: if there are none; the message names the keys that there are, never a value.
    """
    data: dict[str, Any] = document.get("data") or {}
    encoded = data.get(key)
    if not isinstance(encoded, str):
        raise CredentialsMissingError(f"{where} does not exist; the Secret has {', '.join(sorted(data)) or 'no keys'}")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise CredentialsMissingError(f"{where} is not base64") from None
