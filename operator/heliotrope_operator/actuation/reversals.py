"""Counts how often somebody undoes what was written, and says when to stop."""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

LIMIT = 3
"""A value that was undone so often is somebody else's."""
WITHIN_S = 600.0
"""Reversals further apart do not add up."""
QUIET_S = 600.0
"""Time without a write before it is tried once more."""
REMEMBERED = 4_096
"""Fields that are remembered; the rest starts to count anew."""


@dataclass(slots=True)
class _Record:
    since: Hashable
    """What the count belongs to: when that changes, it starts anew."""
    in_force: bool = False
    """Whether our value was there when last seen or written."""
    count: int = 0
    last_s: float = float("-inf")
    blocked_until_s: float = float("-inf")


class Reversals:
    """By field. A restart forgets them, and counts again."""

    def __init__(self) -> None:
        self._records: OrderedDict[Hashable, _Record] = OrderedDict()

    def blocked_s(self, field: Hashable, *, since: Hashable, in_force: bool, now_s: float) -> float:
        """Take in what was found; returns the seconds for which nothing may be written, 0 if it may.

        Args:
            field: whose value was found.
            since: starts the count anew when it changes, for instance the generation of what wants the value.
            in_force: whether the value is still ours.
            now_s: monotonic seconds.
        """
        record = self._records.get(field)
        if record is None or record.since != since:
            record = _Record(since)
            self._put(field, record)
        if in_force:
            record.in_force = True
            if now_s - record.last_s > WITHIN_S:
                record.count = 0
        elif record.in_force:
            record.in_force = False
            again = record.count >= LIMIT  # it was tried once more, and undone
            record.count = record.count + 1 if again or now_s - record.last_s <= WITHIN_S else 1
            record.last_s = now_s
            if record.count >= LIMIT:
                record.blocked_until_s = now_s + QUIET_S
        return max(record.blocked_until_s - now_s, 0.0)

    def written(self, field: Hashable) -> None:
        """Our value is there now."""
        if (record := self._records.get(field)) is not None:
            record.in_force = True

    def count(self, field: Hashable) -> int:
        """How often it was undone."""
        record = self._records.get(field)
        return 0 if record is None else record.count

    def forget(self, field: Hashable) -> None:
        """The field is given back."""
        self._records.pop(field, None)

    def _put(self, field: Hashable, record: _Record) -> None:
        self._records[field] = record
        self._records.move_to_end(field)
        if len(self._records) > REMEMBERED:
            self._records.popitem(last=False)
