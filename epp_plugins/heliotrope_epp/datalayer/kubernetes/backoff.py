"""Growing pauses with jitter."""

import random


class Backoff:
    """Pauses that double from `first_s` to `longest_s`, each drawn between half and the whole of it."""

    def __init__(self, first_s: float, longest_s: float, rng: random.Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._rng = rng
        self._failures = 0

    def pause_s(self) -> float:
        """How long to wait after one more failure."""
        pause = min(self._first_s * 2.0 ** min(self._failures, 32), self._longest_s)
        self._failures += 1
        return pause * self._rng.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Something succeeded."""
        self._failures = 0
