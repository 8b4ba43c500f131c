"""Pauses between attempts."""

import random


class Backoff:
    """Grows with every failure in a row, up to a limit; jitter keeps a cluster's agents from coming back at once."""

    def __init__(self, first_s: float, longest_s: float, rng: random.Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._rng = rng
        self._failures = 0

    def failed(self) -> float:
        """Seconds to wait now: between half of the step and all of it."""
        step_s = min(self._first_s * 2.0 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        return step_s * self._rng.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        """Begin anew."""
        self._failures = 0
