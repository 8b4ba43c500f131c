"""Where the API server is and how to speak to it, for our own requests and for Kopf's.

kr8s reads kubeconfigs, runs their credential plugins and finds the pod's service account. Only that is used of it: its
calls repeat a refused request and close the connections of all others meanwhile.
"""

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import kopf
import kr8s.asyncio
import yaml

from heliotrope.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and valid credentials."""

    server: str
    tls: ssl.SSLContext | bool
    tls_server_name: str | None
    token: str | None
    proxy: str | None
    kopf: kopf.ConnectionInfo
    """The same as Kopf wants it."""


class Credentials:
    """A kubeconfig (by default that of `KUBECONFIG` or the home folder), else the pod's service account."""

    def __init__(self, kubeconfig: Path | None) -> None:
        path = None if kubeconfig is None else str(kubeconfig)
        self._auth = kr8s.asyncio.Api(kubeconfig=path, bypass_factory=True).auth

    async def load(self) -> Access:
        """Read the credentials anew.

        Raises:
            InvalidInputError: if there are none, or they cannot be used.
        """
        auth = self._auth
        try:
            await auth.reauthenticate()
            tls = await auth.ssl_context()  # type: ignore[no-untyped-call]
        except (ValueError, LookupError, TypeError, RuntimeError, OSError, yaml.YAMLError) as error:
            raise InvalidInputError(
                "kubeconfig",
                f"no usable credentials ({error}); give a kubeconfig, or run in a pod with a service account",
            ) from error
        token = auth.token.strip() if auth.token else None
        return Access(
            server=auth.server.rstrip("/"),
            tls=tls,
            tls_server_name=auth.tls_server_name,
            token=token,
            proxy=auth.proxy,
            kopf=kopf.ConnectionInfo(
                server=auth.server,
                ca_path=_text(auth.server_ca_file),
                insecure=isinstance(tls, ssl.SSLContext) and tls.verify_mode is ssl.CERT_NONE,
                token=token,
                certificate_path=_text(auth.client_cert_file),
                private_key_path=_text(auth.client_key_file),
                proxy_url=auth.proxy,
            ),
        )


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)
