"""What others did on an engine: what its counter shows beyond our own."""

from math import exp

FORGIVEN_SECONDS = 60.0


class Balance:
    """Claims of others on one token counter.

    Our tokens and the engine's are not counted at the same instant, so a single interval's difference is mostly noise.
    What we count ahead of the engine is therefore carried forward and set off against what it counts later, and
    forgiven over `FORGIVEN_SECONDS`, so that an overestimate of ours does not hide others for ever.
    """

    def __init__(self) -> None:
        self._ahead = 0.0

    def others(self, engine: float, own: float, seconds: float) -> float:
        """Tokens of others in an interval in which the engine counted `engine` and we `own`."""
        balance = engine - own - self._ahead * exp(-max(seconds, 0.0) / FORGIVEN_SECONDS)
        self._ahead = max(-balance, 0.0)
        return max(balance, 0.0)
