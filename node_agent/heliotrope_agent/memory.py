"""Memory that was freed and is still held."""

import ctypes
import gc


def give_back() -> bool:
    """Give memory that start-up has freed back to the system; tells whether that is possible here (glibc).

    Loading modules leaves more than 10 MB of it, which would stay with the process for as long as it runs.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim is not None and bool(trim(0))
