"""Finished parts of sweeps on disk, so that an interrupted run goes on where it was.

An entry is trusted only if this user wrote it: it carries a keyed digest (HMAC-SHA-256) whose key is a file of the
store that nobody else can read. Anything else, corrupt, cut off or from elsewhere, is computed again: reading it could
run code.
"""

import hashlib
import hmac
import os
import pickle
import secrets
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heliotrope.units import SECONDS_PER_DAY
from heliotrope_sim.cache_folder import cache_folder
from heliotrope_sim.reproduce.naming import UnnamedError, identity, key_of

MOST_BYTES = 2 * 1024**3
MOST_ENTRIES = 20_000
MOST_ENTRY_BYTES = 256 * 1024**2
_MAGIC = b"heliotrope part 1\n"
_DIGEST_BYTES = 32
_KEY_FILE = "key"
_KEY_BYTES = 32


def default_folder() -> Path:
    """`parts` in Heliotrope's cache folder."""
    return cache_folder() / "parts"


@dataclass(slots=True)
class Counts:
    """What happened to the parts of a run."""

    reused: int = 0
    computed: int = 0
    kept: int = 0
    not_kept: int = 0
    """Too large, without a name, or the disk was full."""
    distrusted: int = 0
    """Entries that were there and were computed again: corrupt, or not written by this user here."""


class PartStore:
    """A folder of finished parts. One process writes; several may run at once, and each sees whole entries only."""

    def __init__(
        self,
        folder: Path,
        *,
        fresh: bool = False,
        versions: Mapping[str, str] | None = None,
        most_bytes: int = MOST_BYTES,
        most_entries: int = MOST_ENTRIES,
    ) -> None:
        """Open or make it, and forget the entries that were used longest ago beyond its bounds.

        Args:
            folder: of the entries.
            fresh: use no entry, but keep what is computed.
            versions: of all that results depend on; by default as this process sees them.
            most_bytes: of all entries.
            most_entries: of them.

        Raises:
            OSError: if the folder cannot be made or written.
        """
        self.folder = folder
        self.counts = Counts()
        self._fresh = fresh
        self._versions = identity() if versions is None else versions
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._key = _key(folder / _KEY_FILE)
        self._forget(most_bytes, most_entries)

    def name(self, function: Callable[..., Any], task: Any) -> str | None:
        """The name of a part; None: it has none and is computed each time."""
        try:
            return key_of(function, task, self._versions)
        except UnnamedError:
            return None

    def find(self, name: str | None) -> tuple[bool, Any]:
        """Whether a part is there, and its result."""
        if name is None or self._fresh:
            return False, None
        path = self._path(name)
        try:
            data = path.read_bytes()
        except OSError:
            return False, None
        head, payload = data[: len(_MAGIC) + _DIGEST_BYTES], data[len(_MAGIC) + _DIGEST_BYTES :]
        if not hmac.compare_digest(head, _MAGIC + self._seal(name, payload)):
            self.counts.distrusted += 1
            return False, None
        try:
            result = pickle.loads(payload)  # noqa: S301 - sealed by this user's key
        except Exception:  # noqa: BLE001 - what cannot be read is computed again, whatever the reason
            self.counts.distrusted += 1
            return False, None
        self.counts.reused += 1
        with suppress(OSError):
            path.touch()
        return True, result

    def keep(self, name: str | None, result: Any) -> None:
        """Keep a result; where that fails, the run goes on without."""
        self.counts.computed += 1
        try:
            payload = b"" if name is None else pickle.dumps(result, protocol=5)
            if name is None or len(payload) > MOST_ENTRY_BYTES:
                self.counts.not_kept += 1
                return
            with tempfile.NamedTemporaryFile(dir=self.folder, prefix=".part-", delete=False) as file:
                try:
                    file.write(_MAGIC + self._seal(name, payload))
                    file.write(payload)
                    file.close()
                    Path(file.name).replace(self._path(name))
                except BaseException:
                    Path(file.name).unlink(missing_ok=True)
                    raise
        except (OSError, pickle.PicklingError, TypeError, AttributeError):
            self.counts.not_kept += 1
            return
        self.counts.kept += 1

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.part"

    def _seal(self, name: str, payload: bytes) -> bytes:
        return hmac.new(self._key, name.encode() + b"\n" + payload, hashlib.sha256).digest()

    def _forget(self, most_bytes: int, most_entries: int) -> None:
        entries = []
        for path in self.folder.glob("*.part"):
            try:
                status = path.stat()
            except OSError:
                continue
            entries.append((status.st_mtime, status.st_size, path))
        for left_over in self.folder.glob(".part-*"):
            with suppress(OSError):
                if left_over.stat().st_mtime < time.time() - SECONDS_PER_DAY:
                    left_over.unlink()
        entries.sort(key=lambda entry: entry[0], reverse=True)
        total = 0
        for i, (_, size, path) in enumerate(entries):
            total += size
            if total > most_bytes or i >= most_entries:
                path.unlink(missing_ok=True)


def _key(path: Path) -> bytes:
    """The store's key, readable by its user only; made where there is none. Of two that make one, the first's holds."""
    try:
        key = path.read_bytes()
        if len(key) == _KEY_BYTES:
            return key
        path.unlink()
    except FileNotFoundError:
        pass
    key = secrets.token_bytes(_KEY_BYTES)
    made = path.with_name(f".key-{os.getpid()}-{secrets.token_hex(4)}")
    with os.fdopen(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
    try:
        os.link(made, path)
    except FileExistsError:
        return path.read_bytes()
    finally:
        made.unlink()
    return key
