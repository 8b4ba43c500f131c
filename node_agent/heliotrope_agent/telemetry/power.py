"""Power as a histogram, which any number of readers may read at any interval."""

from bisect import bisect_left
from dataclasses import dataclass, field

EDGES_WATTS = (50, 75, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 700, 850, 1000, 1200)


@dataclass(slots=True)
class PowerHistogram:
    """How often a GPU's power was how high."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES_WATTS) + 1))
    """By bucket, not cumulative; the last has no upper edge."""
    sum_watts: float = 0.0

    def observe(self, watts: float) -> None:
        """Add an observation."""
        self.counts[bisect_left(EDGES_WATTS, watts)] += 1
        self.sum_watts += watts
