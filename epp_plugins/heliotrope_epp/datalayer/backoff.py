"""How long to wait after failures in a row: longer each time, never the same for two that failed together."""

from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True)
class Backoff:
    """Exponential with jitter: between half and the whole of `first_s` × 2^(failures − 1), at most `longest_s`."""

    first_s: float
    longest_s: float
    random: Random = field(default_factory=Random)
    failures: int = 0
    """In a row."""

    def failed(self) -> float:
        """One more; seconds to wait."""
        self.failures += 1
        # Beyond 2^60 the limit holds anyway, and a float would not.
        longest = min(self.first_s * 2.0 ** min(self.failures - 1, 60), self.longest_s)
        return longest * self.random.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        """Start over."""
        self.failures = 0
