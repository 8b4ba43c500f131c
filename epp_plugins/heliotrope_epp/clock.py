"""The two clocks of the picker, passed explicitly so that tests and replays can hold them."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`monotonic` for intervals, `unix` for what carbon signals and resources are stamped with."""

    monotonic: Callable[[], float] = time.monotonic
    unix: Callable[[], float] = time.time
