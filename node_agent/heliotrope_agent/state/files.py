"""Writing small files so that a reader finds the old one or the new one, never a part."""

import contextlib
import os
from pathlib import Path

NEW_SUFFIX = ".new"


def write_whole(path: Path, text: str, *, durable: bool) -> os.stat_result:
    """Replace a file.

    Args:
        path: the file; its folder must be there.
        text: all of it.
        durable: wait until the content and the name are on the disk, so that it is there after a power failure.

    Returns:
        What the kernel says of the file that was written, and not of what somebody may have put in its place since.

    Raises:
        OSError: if it could not be written; the old file is then as it was.
    """
    new = path.with_name(path.name + NEW_SUFFIX)
    try:
        with new.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            written = os.fstat(file.fileno())
        new.rename(path)
    except OSError:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            new.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)
    return written


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk.

    Raises:
        OSError: if the disk refuses.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: Path, max_bytes: int) -> str | None:
    """The text of a file; None if there is no such file, it is longer, or it is no text.

    Raises:
        OSError: if there is one that cannot be read.
    """
    try:
        with path.open("rb") as file:
            data = file.read(max_bytes + 1)
    except FileNotFoundError:
        return None
    if len(data) > max_bytes:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
