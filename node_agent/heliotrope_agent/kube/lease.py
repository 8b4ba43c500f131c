"""How long the operator's wishes hold, judged by the changes of its Lease that were seen."""

import math
from dataclasses import dataclass, replace
from typing import Any

LONGEST_S = 600.0
"""No Lease is believed for longer after a renewal, whatever it says."""


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """What was seen of the Lease so far.

    The times in it are of the operator's clock and only tell one renewal from another. The first sight is no renewal:
    a Lease that nobody has renewed for a day looks the same.
    """

    renewal: tuple[object, ...] | None = None
    """What a renewal changes, as it was seen last; None: never seen."""
    until_s: float = -math.inf
    """Until when it holds, on the agent's clock."""

    def see(self, lease: dict[str, Any] | None, now_s: float) -> "LeaseSeen":
        """With one more sight of it; None: it does not exist.

        A Lease that has gone, or cannot be understood, extends nothing and ends nothing: it runs out by itself. One
        that was given back ends at once.
        """
        if lease is None:
            return self
        spec = lease.get("spec") or {}
        renewal = (
            (lease.get("metadata") or {}).get("uid"),
            spec.get("holderIdentity"),
            spec.get("renewTime"),
            spec.get("leaseTransitions"),
        )
        if not spec.get("holderIdentity") or spec.get("renewTime") is None:
            return LeaseSeen(renewal)
        if renewal == self.renewal:
            return self
        seen = replace(self, renewal=renewal)
        duration_s = spec.get("leaseDurationSeconds")
        if self.renewal is None or not isinstance(duration_s, int) or duration_s <= 0:
            return seen
        return replace(seen, until_s=max(self.until_s, now_s + min(float(duration_s), LONGEST_S)))
