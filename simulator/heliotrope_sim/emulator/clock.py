"""Engine time: nanoseconds since the engine's start, faster than the wall clock by a factor."""

import time

from heliotrope_sim.engine.fixed_point import NANOSECONDS_PER_SECOND


class EngineClock:
    """Maps the machine's monotonic clock to an engine's time and back."""

    __slots__ = ("_origin_ns", "_scale")

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._origin_ns = time.monotonic_ns()

    def ns_at_zero_of(self, other: "EngineClock") -> int:
        """What this clock shows when another one of the same speed shows 0."""
        return int((other._origin_ns - self._origin_ns) * self._scale)

    def now_ns(self) -> int:
        """Engine time now."""
        return int((time.monotonic_ns() - self._origin_ns) * self._scale)

    def wall_seconds_until(self, engine_ns: int) -> float:
        """Wall-clock seconds from now to an engine time; negative if it has passed."""
        wall_ns = self._origin_ns + engine_ns / self._scale
        return (wall_ns - time.monotonic_ns()) / NANOSECONDS_PER_SECOND
