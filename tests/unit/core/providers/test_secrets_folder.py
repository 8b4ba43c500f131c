"""Secrets as files: read anew, bounded, and never a way out of their folder."""

import os
from pathlib import Path

import pytest

from heliotrope.api.v1alpha1.common import SecretKeyRef
from heliotrope.errors import CredentialsMissingError
from heliotrope.providers.secrets import MAX_BYTES
from heliotrope.providers.secrets_folder import SecretsFolder

TOKEN = SecretKeyRef(name="em", key="token")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "em").mkdir()
    (tmp_path / "em" / "token").write_text("first\n")
    return tmp_path


async def test_a_file_is_read_anew(folder: Path) -> None:
    secrets = SecretsFolder(folder)
    assert (await secrets.read(TOKEN)).reveal() == "first"
    (folder / "em" / "token").write_text("second")

    assert (await secrets.read(TOKEN)).reveal() == "second"


async def test_a_mounted_secret_is_exchanged_by_its_link(folder: Path) -> None:
    """As the kubelet does it."""
    for version in ("v1", "v2"):
        (folder / "wt" / version).mkdir(parents=True)
        (folder / "wt" / version / "token").write_text(version)
    (folder / "wt" / "..data").symlink_to("v1")
    (folder / "wt" / "token").symlink_to("..data/token")
    secrets, ref = SecretsFolder(folder), SecretKeyRef(name="wt", key="token")
    assert (await secrets.read(ref)).reveal() == "v1"
    (folder / "wt" / "..tmp").symlink_to("v2")
    (folder / "wt" / "..tmp").rename(folder / "wt" / "..data")

    assert (await secrets.read(ref)).reveal() == "v2"


async def test_what_is_missing_names_the_file(folder: Path) -> None:
    with pytest.raises(CredentialsMissingError, match=f"the file {folder}/em/key cannot be read: No such file"):
        await SecretsFolder(folder).read(SecretKeyRef(name="em", key="key"))
    with pytest.raises(CredentialsMissingError, match="give one with --secrets-folder"):
        await SecretsFolder(None).read(TOKEN)


@pytest.mark.parametrize("key", [".", ".."])
async def test_a_key_is_no_way_up(folder: Path, key: str) -> None:
    with pytest.raises(CredentialsMissingError, match="no name of a key"):
        await SecretsFolder(folder).read(SecretKeyRef(name="em", key=key))


async def test_what_is_no_file_or_too_large_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "em" / "pipe")
    with pytest.raises(CredentialsMissingError, match="is not a file"):
        await SecretsFolder(folder).read(SecretKeyRef(name="em", key="pipe"))
    (folder / "em" / "large").write_bytes(b"x" * (MAX_BYTES + 10))
    large = SecretKeyRef(name="em", key="large")
    with pytest.raises(CredentialsMissingError, match="longer than"):
        await SecretsFolder(folder).read(large)
    with pytest.raises(CredentialsMissingError, match="larger than"):
        await SecretsFolder(folder).read_pem(large)
