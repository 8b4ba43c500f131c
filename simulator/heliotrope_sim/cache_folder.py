"""Where programs and finished work are kept between runs."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`$HELIOTROPE_CACHE`, else `~/.cache/heliotrope`; it need not exist yet."""
    return Path(os.environ.get("HELIOTROPE_CACHE") or Path.home() / ".cache" / "heliotrope")
