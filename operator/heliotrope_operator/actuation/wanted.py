"""What is wanted of each variant: whoever plans writes it here, actuation and metrics read it."""

from collections.abc import Iterator
from dataclasses import dataclass

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.resources import Key

REWORDED_S = 900.0
"""Time after which other words for the same decision are news."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """One decision about one WorkloadVariant."""

    replicas: int | None
    """What `/scale` of its target should say: pods of a Deployment, groups of a LeaderWorkerSet. None: no opinion, so
    what there is stays as it is, and no metric is published."""
    mode: Actuation
    """How it is to take effect, as the governing policy says."""
    act: bool
    """Whether it may take effect: the policy is accepted and enforces, and the namespace is granted
    `heliotrope.io/allow-scaling`. `actuation.authority` tells; actuation asks it again before it writes."""
    reason: str
    """One CamelCase word."""
    message: str
    """Why this number, for `kubectl describe`."""
    decided_unix_s: float
    """When it was decided."""


class WantedReplicas:
    """The newest decision about each variant.

    A variant without an entry is held: nothing was decided about it since this process began to lead. Giving fields
    back does not wait for an entry: it follows from policies, grants and variants themselves.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, Wanted] = {}
        self._told_unix_s: dict[Key, float] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Key]:
        return iter(tuple(self._entries))

    def get(self, variant: Key) -> Wanted | None:
        """The decision about a variant; None if there is none."""
        return self._entries.get(variant)

    def put(self, variant: Key, wanted: Wanted | None) -> bool:
        """Set a decision, None removes it. Returns whether that is news.

        Another number, mode or reason is, another time is not, and other words alone are once in `REWORDED_S`: every
        round of planning has words of its own. Whoever puts news enqueues the variant and its actuation
        (`kinds.targets.actuations`).
        """
        before = self._entries.pop(variant, None)
        if wanted is None:
            self._told_unix_s.pop(variant, None)
            return before is not None
        self._entries[variant] = wanted
        told_unix_s = self._told_unix_s.get(variant, float("-inf"))
        reworded = before is not None and before.message != wanted.message
        overdue = wanted.decided_unix_s - told_unix_s >= REWORDED_S
        news = before is None or _said(before) != _said(wanted) or (reworded and overdue)
        if news:
            self._told_unix_s[variant] = wanted.decided_unix_s
        return news

    def clear(self) -> None:
        """Forget everything: another replica may lead."""
        self._entries.clear()
        self._told_unix_s.clear()


def _said(wanted: Wanted) -> object:
    return wanted.replicas, wanted.mode, wanted.act, wanted.reason
