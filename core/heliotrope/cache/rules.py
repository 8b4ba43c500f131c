"""What a policy says about KV actions."""

from dataclasses import dataclass

from heliotrope.cache.action import KvAction


@dataclass(frozen=True, slots=True)
class KvRules:
    """Which actions a decision may count on, and what memory pressure is charged with."""

    allowed: frozenset[KvAction] = frozenset(KvAction)
    memory_pressure_joules: float = 0.0
    """λ of equation 8: charged for a transfer into a full KV memory, less in proportion when it is emptier."""
    longest_retention_seconds: float = 300.0
    """Prefixes are held no longer between turns; 0: none is held."""

    @property
    def own_caches_count(self) -> bool:
        """Whether a decision may count on what endpoints cache themselves, whoever they served last."""
        return KvAction.LOCAL_HIT in self.allowed and KvAction.ROUTE_TO_OWNER in self.allowed
