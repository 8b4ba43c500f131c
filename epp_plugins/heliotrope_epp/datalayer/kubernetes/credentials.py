"""Where the API server is and how to speak to it.

kr8s reads kubeconfigs, runs their credential plugins and finds the pod's service account. Only that is used of it: its
watch asks for no bookmarks, sets no timeout and starts over from an expired version for ever, and its calls close the
connection that all watches share whenever one of them is forbidden.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path

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


class Credentials:
    """A kubeconfig (by default that of `KUBECONFIG` or the home folder), else the pod's service account."""

    def __init__(
        self,
        *,
        kubeconfig: Path | None = None,
        context: str | None = None,
        service_account: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount"),
    ) -> None:
        self._auth = kr8s.asyncio.Api(
            kubeconfig=None if kubeconfig is None else str(kubeconfig),
            context=context,
            serviceaccount=str(service_account),
            bypass_factory=True,
        ).auth

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
        return Access(
            server=auth.server,
            tls=tls,
            tls_server_name=auth.tls_server_name,
            token=auth.token,
            proxy=auth.proxy,
        )
