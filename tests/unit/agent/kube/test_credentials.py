"""Service accounts and kubeconfigs, and what is said about those that cannot be used."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from heliotrope.errors import InvalidInputError
from heliotrope_agent.kube.credentials import find, from_kubeconfig, in_cluster


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("pair")
    certificate, key = folder / "tls.crt", folder / "tls.key"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "1"]
    subprocess.run(["openssl", *words, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return certificate, key


def written(folder: Path, user: dict[str, Any], cluster: dict[str, Any] | None = None, **more: Any) -> Path:
    path = folder / "config"
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"} | (cluster or {})}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(config | more))
    return path


def test_the_pods_account_and_its_token_that_changes(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    (tmp_path / "ca.crt").write_text(pair[0].read_text())
    (tmp_path / "token").write_text("first\n")
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (access.server, access.token()) == ("https://[fd00::1]:6443", "first")
    (tmp_path / "token").write_text("second")
    assert access.token() == "second"
    (tmp_path / "token").unlink()
    with pytest.raises(InvalidInputError, match="token cannot be read"):
        access.token()


def test_a_kubeconfig_with_a_token_or_a_file_of_one(tmp_path: Path) -> None:
    access = from_kubeconfig(written(tmp_path, {"token": "t"}))
    assert (access.server, access.token()) == ("https://10.0.0.1:6443", "t")
    (tmp_path / "token").write_text("from a file\n")
    assert from_kubeconfig(written(tmp_path, {"tokenFile": "token"})).token() == "from a file"
    assert from_kubeconfig(written(tmp_path, {}, {"server": "http://localhost:8001"})).tls is False


def test_a_kubeconfig_with_a_client_certificate(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    files = {"client-certificate": str(pair[0]), "client-key": str(pair[1])}
    access = from_kubeconfig(written(tmp_path, files, {"certificate-authority": str(pair[0])}))
    assert access.token() is None
    assert not isinstance(access.tls, bool)
    with pytest.raises(InvalidInputError, match="client certificate or key unusable"):
        from_kubeconfig(written(tmp_path, {"client-certificate": str(pair[0])}))


@pytest.mark.parametrize(
    ("user", "cluster", "more", "said"),
    [
        ({"exec": {"command": "aws"}}, {}, {}, "runs no credential plugins.*kubectl create token"),
        ({"auth-provider": {"name": "gcp"}}, {}, {}, "runs no credential plugins"),
        ({"username": "a", "password": "b"}, {}, {}, "passwords are not supported"),
        ({"tokenFile": "absent"}, {}, {}, "absent cannot be read"),
        ({}, {"server": "10.0.0.1"}, {}, "must be a URL"),
        ({}, {"certificate-authority": "absent"}, {}, "absent unusable"),
        ({}, {"certificate-authority-data": "?"}, {}, "is not base64"),
        ({}, {}, {"current-context": "elsewhere"}, "no entry 'elsewhere'"),
        ({}, {}, {"clusters": None}, "no entry 'c'"),
    ],
)
def test_what_cannot_be_used_says_what_to_do(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said):
        from_kubeconfig(written(tmp_path, user, cluster, **more))


@pytest.mark.parametrize("text", ["a: [", "- a", "", "\udcff"])
def test_what_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInputError, match="config"):
        from_kubeconfig(path)


def test_where_credentials_are_looked_for(tmp_path: Path) -> None:
    path = written(tmp_path, {"token": "t"})
    given = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBECONFIG": str(path)}
    assert find(path, given)().token() == "t"  # what was said comes first
    assert find(None, {"KUBECONFIG": str(path)})().token() == "t"
    with pytest.raises(InvalidInputError, match=r"service account: .*token cannot be read"):
        find(None, given)()
    with pytest.raises(InvalidInputError, match="names several files"):
        find(None, {"KUBECONFIG": "a:b"})
    with pytest.raises(InvalidInputError, match="no credentials"):
        find(None, {"HOME": str(tmp_path)})
