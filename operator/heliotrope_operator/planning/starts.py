"""How long engines take to serve, from the pods that were seen to start."""

from collections import deque
from collections.abc import Iterable
from statistics import median

from heliotrope_operator.kinds.pods import Pod
from heliotrope_operator.resources import Key

UNKNOWN_S = 180.0
"""Assumed of a variant none of whose engines was seen to start."""
REMEMBERED = 16
SHORTEST_S, LONGEST_S = 1.0, 3600.0


class Starts:
    """The last starts of each variant. A start is from a pod's creation to its first readiness."""

    def __init__(self) -> None:
        self._seconds: dict[Key, deque[float]] = {}
        self._seen: dict[Key, set[str]] = {}

    def observe(self, variant: Key, pods: Iterable[Pod]) -> None:
        """Take in a variant's pods. A pod counts once, when it is first seen ready; a later readiness is no start."""
        seen = self._seen.setdefault(variant, set())
        present = set()
        for pod in pods:
            present.add(pod.uid)
            if pod.ready_since_unix_s is None or pod.uid in seen:
                continue
            seen.add(pod.uid)
            took = pod.ready_since_unix_s - pod.created_unix_s
            if SHORTEST_S <= took <= LONGEST_S:
                self._seconds.setdefault(variant, deque(maxlen=REMEMBERED)).append(took)
        seen &= present

    def seconds(self, variant: Key) -> float:
        """What the next start is expected to take."""
        known = self._seconds.get(variant)
        return median(known) if known else UNKNOWN_S

    def keep(self, variants: Iterable[Key]) -> None:
        """Forget every variant but these."""
        kept = set(variants)
        for table in (self._seconds, self._seen):
            for key in [key for key in table if key not in kept]:
                del table[key]
