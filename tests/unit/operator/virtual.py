"""Virtual time for properties: each example runs in a loop of its own, whose clock jumps over every wait."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import looptime

T = TypeVar("T")


def run_virtual(main: Coroutine[Any, Any, T]) -> T:
    loop = looptime.new_event_loop(start=0)
    try:
        return loop.run_until_complete(main)
    finally:
        loop.close()
