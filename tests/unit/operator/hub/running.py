"""A hub on a free port of this machine, with certificates of its own."""

import asyncio
import contextlib
import datetime
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from heliotrope_operator.hub.server import serve
from heliotrope_operator.hub.settings import HubSettings, MemberSettings

PLAN = {
    "schema": 1,
    "members": [{"name": "a"}, {"name": "b"}],
    "budgets": [{"region": "es", "accelerator": "H100", "accelerators": 20}, {"region": "es", "watts": 30_000}],
}


def certificate(folder: Path, name: str = "localhost") -> None:
    """Write a self-signed pair as `tls.crt` and `tls.key`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "tls.key").write_bytes(pem)


class Running:
    """A hub that runs, and its files."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"https://localhost:{port}"

    def member(self, name: str = "a", token: str | None = "token-a", **settings: float) -> MemberSettings:
        """How a member reaches it."""
        path = self.folder / f"member-{name}"
        if token is not None:
            path.write_text(token + "\n")
        return MemberSettings(
            self.url, name, ca=self.folder / "tls.crt", token=None if token is None else path, **settings
        )

    def plan(self, text: str | dict[str, object]) -> None:
        """Change the plan."""
        (self.folder / "plan.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump(text))


@contextlib.asynccontextmanager
async def hub(folder: Path, caplog: pytest.LogCaptureFixture, **settings: float) -> AsyncIterator[Running]:
    """Run one; tokens are `token-a` and `token-b`."""
    certificate(folder)
    (folder / "plan.yaml").write_text(yaml.safe_dump(PLAN))
    (folder / "tokens").mkdir()
    for name in ("a", "b"):
        (folder / "tokens" / name).write_text(f"token-{name}\n")
    caplog.set_level("INFO", "heliotrope_operator.hub")
    stop = asyncio.Event()
    options = HubSettings(
        plan=folder / "plan.yaml",
        certificate=folder / "tls.crt",
        key=folder / "tls.key",
        tokens=folder / "tokens",
        host="127.0.0.1",
        port=0,
        metrics_port=0,
        **{"refresh_s": 0.05} | settings,
    )
    running = asyncio.create_task(serve(options, stop))
    while not (found := re.search(r"hub on port (\d+)", caplog.text)):
        assert not running.done(), running
        await asyncio.sleep(0.01)
    try:
        yield Running(folder, int(found[1]))
    finally:
        stop.set()
        assert await running == 0
