"""Where tables go."""

import sys

from rich.console import Console

_WIDTH = 160


def console() -> Console:
    """Standard output; a file or pipe has no width that tables must be cut to."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _WIDTH)
