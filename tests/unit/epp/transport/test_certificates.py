"""Certificates from files that change, and made at start."""

import ssl
from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_epp.transport.certificates import CertificateSource, Pair, self_signed
from heliotrope_epp.transport.interface import SelfSigned, TlsFiles


def write(files: TlsFiles, pair: Pair) -> None:
    files.certificate.write_bytes(pair.certificate)
    files.key.write_bytes(pair.key)


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    files = TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    write(files, self_signed(SelfSigned()))
    return files


def test_unchanged_files_are_not_read_again(files: TlsFiles) -> None:
    source = CertificateSource(files)
    first = source.current
    assert not source.refresh()
    assert source.current is first


def test_changed_files_are_taken_over(files: TlsFiles) -> None:
    source = CertificateSource(files)
    new = self_signed(SelfSigned())
    write(files, new)
    assert source.refresh()
    assert source.current == new
    assert not source.refresh()


def test_a_swapped_link_is_a_change(tmp_path: Path) -> None:
    """How Kubernetes updates a mounted Secret."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write(TlsFiles(tmp_path / name / "tls.crt", tmp_path / name / "tls.key"), self_signed(SelfSigned()))
    data = tmp_path / "..data"
    data.symlink_to("one")
    source = CertificateSource(TlsFiles(data / "tls.crt", data / "tls.key"))
    first = source.current
    swap = tmp_path / "..data_tmp"
    swap.symlink_to("two")
    swap.replace(data)
    assert source.refresh()
    assert source.current != first


def test_halfway_through_a_rotation_the_old_pair_stays(files: TlsFiles) -> None:
    source = CertificateSource(files)
    first = source.current
    new = self_signed(SelfSigned())
    files.certificate.write_bytes(new.certificate)
    assert not source.refresh()
    assert source.current is first
    files.key.write_bytes(new.key)
    assert source.refresh()
    assert source.current == new


def test_files_that_vanish_leave_the_old_pair(files: TlsFiles) -> None:
    source = CertificateSource(files)
    files.key.unlink()
    assert not source.refresh()


def test_a_key_that_does_not_fit_is_refused_at_start(files: TlsFiles) -> None:
    files.key.write_bytes(self_signed(SelfSigned()).key)
    with pytest.raises(InvalidInputError, match=r"tls\.key"):
        CertificateSource(files)


def test_a_self_signed_pair_fits_together_and_never_changes(tmp_path: Path) -> None:
    source = CertificateSource(SelfSigned(("picker.example", "10.0.0.1")))
    write(TlsFiles(tmp_path / "crt", tmp_path / "key"), source.current)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "crt", tmp_path / "key")
    assert not source.refresh()


def test_the_key_is_not_shown(files: TlsFiles) -> None:
    pair = CertificateSource(files).current
    assert "PRIVATE" not in repr(pair)
    assert "PRIVATE" not in str(pair)
