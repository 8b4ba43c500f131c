"""The calibration's clock: engine seconds, which only an emulated engine has more of than a wall."""

import asyncio
import time
from collections.abc import Callable


class Pace:
    """Engine time.

    Args:
        scale: engine seconds per second; 1 for every real engine, `time_scale` of an emulated one.
        monotonic: seconds of a clock that never goes back.
    """

    def __init__(self, scale: float = 1.0, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.scale = scale
        self._monotonic = monotonic

    def now_s(self) -> float:
        """Engine seconds since some origin."""
        return self._monotonic() * self.scale

    def wall_seconds(self, engine_seconds: float, least: float = 0.0) -> float:
        """How long that is on the wall, at least `least`."""
        return max(engine_seconds / self.scale, least)

    async def sleep(self, engine_seconds: float, least: float = 0.0) -> None:
        """Wait."""
        await asyncio.sleep(self.wall_seconds(engine_seconds, least))
