"""The one clock of the agent, which all its processes share."""

import time


def boottime_s() -> float:
    """Seconds since the node booted, suspended time included; two processes that ask at once get the same answer."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
