"""Certificates for the picker's port: files that may change, or one made at start."""

import datetime
import ipaddress
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from heliotrope.errors import InvalidInputError
from heliotrope_epp.transport.interface import SelfSigned, Tls, TlsFiles

logger = logging.getLogger(__name__)

_VALID = datetime.timedelta(days=3650)
_CLOCK_SKEW = datetime.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate chain and its key, PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        """Without the key."""
        return "Pair(…)"


class CertificateSource:
    """Gives the pair to use now. Cheap to ask at every handshake: files are read again only when they changed."""

    def __init__(self, tls: Tls) -> None:
        """Read or make the first pair.

        Raises:
            InvalidInputError: if the files are missing or do not belong together.
        """
        self._files = tls if isinstance(tls, TlsFiles) else None
        self._stamp = None if self._files is None else _stamp(self._files)
        self.current = self_signed(tls) if isinstance(tls, SelfSigned) else _read(tls)

    def refresh(self) -> bool:
        """Take over changed files; True if there is a new pair. Files that do not fit leave the old pair in use."""
        if self._files is None:
            return False
        stamp = _stamp(self._files)
        if stamp is None or stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            pair = _read(self._files)
        except InvalidInputError as error:
            logger.warning("the new TLS certificate is not used: %s", error)
            return False
        changed = pair != self.current
        self.current = pair
        if changed:
            logger.info("TLS certificate %s reloaded", self._files.certificate)
        return changed


def self_signed(tls: SelfSigned) -> Pair:
    """A new P-256 key with a certificate for these names or addresses."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, tls.names[0])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + _VALID)
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in tls.names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read(files: TlsFiles) -> Pair:
    try:
        # Checks as well that the key belongs to the certificate, which halfway through a rotation it may not.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.key)
        return Pair(files.certificate.read_bytes(), files.key.read_bytes())
    except (OSError, ssl.SSLError) as error:
        raise InvalidInputError("tls", f"cannot use {files.certificate} with {files.key}: {error}") from error


def _stamp(files: TlsFiles) -> tuple[tuple[int, int, int], ...] | None:
    """What changes when the files do (Kubernetes swaps a symlink, so the inode counts); None while one is missing."""
    try:
        return tuple(_file_stamp(path) for path in (files.certificate, files.key))
    except OSError:
        return None


def _file_stamp(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
