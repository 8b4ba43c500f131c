"""The files that a scenario names, read once; they travel with every run, so that a run needs no file system."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from heliotrope.errors import InvalidInputError

MOST_BYTES = 64 * 1024 * 1024
"""Of one file."""


@dataclass(frozen=True, slots=True)
class Files:
    """Contents by the path that the scenario names them by."""

    folder: Path | None
    """Where relative paths start; None: nothing more is read."""
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    def read(self, name: str) -> bytes:
        """The bytes of a file.

        Raises:
            InvalidInputError: if it cannot be read or is too large; names the file.
        """
        if name in self.contents:
            return self.contents[name]
        if self.folder is None:
            raise InvalidInputError(name, "is not among the files of the run")
        path = self.folder / name
        try:
            if path.stat().st_size > MOST_BYTES:
                raise InvalidInputError(name, f"is larger than {MOST_BYTES} bytes")
            return path.read_bytes()
        except OSError as error:
            raise InvalidInputError(name, f"cannot be read: {error.strerror or error}") from error

    def with_all(self, names: Iterator[str]) -> "Files":
        """What these files hold, and no way to read others."""
        return Files(None, {name: self.read(name) for name in sorted(set(names))})

    @contextmanager
    def on_disk(self, name: str) -> Iterator[Path]:
        """The file under its own name in a folder for the time of a block, for readers that take a path."""
        with tempfile.TemporaryDirectory(prefix="heliotrope-") as folder:
            path = Path(folder) / Path(name).name
            path.write_bytes(self.read(name))
            yield path
