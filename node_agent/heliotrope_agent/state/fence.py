"""The fence: a number that whoever restores in the place of a silent agent raises first.

An agent remembers the number that it found at its start. Once it finds another it ends, before it writes anything. A
file that is gone or cannot be read is no number that anybody has raised: an agent that ended for it would leave its
GPUs to nobody.
"""

import contextlib
import secrets
from pathlib import Path

from heliotrope_agent.errors import FencedError
from heliotrope_agent.state.files import read_text, write_whole

FENCE = "fence"
_MAX_BYTES = 64


class Fence:
    """The fence of a state folder, as one process sees it."""

    def __init__(self, folder: Path) -> None:
        """Remembers the number that is there now."""
        self._path = folder / FENCE
        self._own = self._read()

    def check(self) -> None:
        """Asked immediately before each write to a device or to the file of originals.

        Raises:
            FencedError: if somebody has taken over.
        """
        found = self._read()
        if found is not None and found != self._own:
            own = self._own or "none"
            raise FencedError(
                f"somebody took over from this process and put the GPUs back (fence {found}, own {own}); "
                "it must not write any more"
            )

    def raise_(self) -> None:
        """Take over from whoever knows the present number.

        Raises:
            OSError: if the disk refuses.
        """
        found = self._read()
        # The first one is no number that an agent may remember from before the file was removed.
        number = secrets.randbits(48) + 1 if found is None else found + 1
        write_whole(self._path, f"{number}\n", durable=False)
        self._own = number

    def _read(self) -> int | None:
        with contextlib.suppress(OSError, ValueError):
            return int(read_text(self._path, _MAX_BYTES) or "")
        return None
