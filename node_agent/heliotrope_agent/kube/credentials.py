"""Where the API server is and how to speak to it: the pod's service account, or a kubeconfig."""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from heliotrope.errors import InvalidInputError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Access:
    """An API server and how to speak to it, as of one reading."""

    server: str
    """Its address, without a slash at the end."""
    tls: ssl.SSLContext | bool
    """False for plain HTTP."""
    token: Callable[[], str | None]
    """The bearer token, read from its file each time: the kubelet replaces it before it expires."""
    tls_server_name: str | None = None
    """Name that the server's certificate is for, where that is not the address."""
    proxy: str | None = None


Source = Callable[[], Access]
"""Reads credentials anew; raises InvalidInputError where they cannot be used."""


def find(kubeconfig: Path | None, environment: Mapping[str, str] | None = None) -> Source:
    """A given kubeconfig; else the pod's service account; else the kubeconfig of `KUBECONFIG` or the home folder.

    Raises:
        InvalidInputError: if there is none of them.
    """
    env = os.environ if environment is None else environment
    if kubeconfig is not None:
        return lambda: from_kubeconfig(kubeconfig)
    if env.get("KUBERNETES_SERVICE_HOST"):
        return lambda: in_cluster(env)
    named = [Path(each) for each in env.get("KUBECONFIG", "").split(os.pathsep) if each]
    if len(named) > 1:
        raise InvalidInputError("KUBECONFIG", "names several files; give one with --kubeconfig")
    path = named[0] if named else Path(env.get("HOME") or "/") / ".kube" / "config"
    if not path.exists():
        problem = f"no credentials: neither a pod's service account nor {path}; run in a pod, or give --kubeconfig FILE"
        raise InvalidInputError("kubeconfig", problem)
    return lambda: from_kubeconfig(path)


def in_cluster(environment: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """The service account that the kubelet has mounted.

    Raises:
        InvalidInputError: if its token or its certificate authority is not there.
    """
    host = environment["KUBERNETES_SERVICE_HOST"]
    port = environment.get("KUBERNETES_SERVICE_PORT_HTTPS") or environment.get("KUBERNETES_SERVICE_PORT") or "443"
    if ":" in host:  # IPv6
        host = f"[{host}]"
    token, authority = folder / "token", folder / "ca.crt"
    _read(token, "service account")
    return Access(f"https://{host}:{port}", _trusting("service account", file=authority), lambda: _token(token))


def from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig.

    Raises:
        InvalidInputError: if it cannot be read, or wants what this process does not do: credential plugins, passwords.
    """
    config = _document(path)
    context = _named(config, "contexts", config.get("current-context"), "context", path)
    cluster = _named(config, "clusters", context.get("cluster"), "cluster", path)
    user = _named(config, "users", context.get("user"), "user", path) if context.get("user") else {}
    server = str(cluster.get("server") or "").rstrip("/")
    if not server.startswith(("https://", "http://")):
        raise InvalidInputError(f"{path}: server", f"is {server!r}; must be a URL such as https://10.0.0.1:6443")
    return Access(
        server=server,
        tls=_tls(cluster, user, path) if server.startswith("https://") else False,
        token=_token_of(user, path),
        tls_server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


def _document(path: Path) -> dict[str, Any]:
    text = _read(path, "kubeconfig")
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise InvalidInputError(str(path), f"is no YAML: {error}") from None
    if not isinstance(config, dict):
        raise InvalidInputError(str(path), "is no kubeconfig")
    return config


def _named(config: dict[str, Any], collection: str, name: object, kind: str, path: Path) -> dict[str, Any]:
    for entry in config.get(collection) or ():
        if entry.get("name") == name:
            return dict(entry.get(kind) or {})
    raise InvalidInputError(f"{path}: {collection}", f"has no entry {name!r}; set current-context to one that there is")


def _token_of(user: dict[str, Any], path: Path) -> Callable[[], str | None]:
    for plugin in ("exec", "auth-provider"):
        if user.get(plugin):
            problem = (
                f"the agent runs no credential plugins ({plugin}); give a kubeconfig with a token: "
                f"kubectl create token heliotrope-agent --namespace NAMESPACE"
            )
            raise InvalidInputError(f"{path}: users", problem)
    if user.get("username"):
        raise InvalidInputError(f"{path}: users", "passwords are not supported; use a token or a client certificate")
    file = user.get("tokenFile")
    if file:
        located = path.parent / str(file)
        _read(located, "tokenFile")
        return lambda: _token(located)
    token = user.get("token")
    return lambda: None if token is None else str(token)


def _tls(cluster: dict[str, Any], user: dict[str, Any], path: Path) -> ssl.SSLContext:
    where = f"{path}: clusters"
    authority, inline = cluster.get("certificate-authority"), cluster.get("certificate-authority-data")
    if cluster.get("insecure-skip-tls-verify"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif inline:
        context = _trusting(where, text=_decoded(inline, f"{path}: certificate-authority-data"))
    else:
        context = _trusting(where, file=None if authority is None else path.parent / str(authority))
    certificate = _file_or_data(user, "client-certificate", path)
    if certificate is not None:
        key = _file_or_data(user, "client-key", path)
        # OpenSSL takes these from files only. The key is in a file of mode 0600 for as long as it is read.
        with tempfile.NamedTemporaryFile() as file:
            file.write(certificate + b"\n" + (key or b""))
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except (ssl.SSLError, ValueError) as error:
                raise InvalidInputError(f"{path}: users", f"client certificate or key unusable: {error}") from None
    return context


def _trusting(where: str, *, file: Path | None = None, text: bytes | None = None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(
            cafile=None if file is None else str(file), cadata=None if text is None else text.decode("ascii")
        )
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise InvalidInputError(where, f"certificate authority {file or 'given'} unusable: {error}") from None


def _file_or_data(user: dict[str, Any], name: str, path: Path) -> bytes | None:
    if user.get(f"{name}-data"):
        return _decoded(user[f"{name}-data"], f"{path}: {name}-data")
    return _read(path.parent / str(user[name]), name).encode() if user.get(name) else None


def _decoded(text: object, where: str) -> bytes:
    try:
        return base64.b64decode(str(text), validate=True)
    except binascii.Error:
        raise InvalidInputError(where, "is not base64") from None


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInputError(what, f"{path} cannot be read: {error}") from None


def _token(path: Path) -> str:
    return _read(path, "token").strip()
