"""What is known of conversations: where each was served last, and when.

Pure bookkeeping with explicit instants of one monotonic clock. A session ends with silence or when the table is full
and others were heard of later. Where its KV is cached is the prefix index's to know, block by block: it knows what was
evicted, and what sessions have in common.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

from heliotrope.cache.session_table import Row, SessionTable

_EXPIRED_PER_CALL = 2
"""Of the oldest sessions that are looked at with each new turn: more go than can come."""


class SessionView(NamedTuple):
    """A session as the decision about its next turn sees it."""

    turns: int
    """Before this one."""
    previous_endpoint: str | None
    """None if it is gone."""
    history_tokens: int
    """Prompt and answer of the last turn that ended; 0 before the first has."""
    idle_seconds: float
    """Since the last turn ended; NaN if it goes on."""
    mean_gap_seconds: float
    """From a turn's end to the next one; NaN before two turns."""
    switches: int = 0
    """Turns that went elsewhere than the turn before."""
    turns_at_previous: int = 0
    """Turns in a row, up to the last one, at the previous endpoint."""


@dataclass(frozen=True, slots=True)
class SessionCounts:
    """Counts alone, for metrics and debugging."""

    sessions: int
    capacity: int
    evicted_total: Mapping[str, int]
    """By reason: `capacity` or `silence`."""
    endpoints: int


class Sessions:
    """Sessions by key. Every operation takes O(1) and a few microseconds."""

    def __init__(self, capacity: int) -> None:
        """`capacity` bounds the memory: about 80 bytes per session."""
        self._table = SessionTable(capacity)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._last_number = 0
        self._evicted: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._table)

    def find(self, key: bytes, now_s: float, forget_after_seconds: float) -> SessionView | None:
        """The session of a key; None if it is unknown, or was silent for longer than `forget_after_seconds`."""
        row = self._table.get(key)
        if row is None or self._silent(row, now_s, forget_after_seconds):
            return None
        return SessionView(
            turns=row.turns,
            previous_endpoint=self._names.get(row.endpoint),
            history_tokens=row.history_tokens,
            idle_seconds=now_s - row.ended_s,
            mean_gap_seconds=row.mean_gap_seconds,
            switches=row.switches,
            turns_at_previous=row.turns_there,
        )

    def routed(
        self,
        key: bytes,
        endpoint: str,
        now_s: float,
        forget_after_seconds: float,
        known_as: bytes | None = None,
        *,
        begins: bool = False,
    ) -> None:
        """A turn was sent to an endpoint.

        Args:
            key: the session's key from now on.
            endpoint: where the turn went.
            now_s: when.
            forget_after_seconds: as for `find`; the longest silent sessions go by it.
            known_as: its key until now, if that is another one.
            begins: this is a first turn, whatever was known under its key.
        """
        row = None if begins else self._taken(key, known_as)
        if row is None or self._silent(row, now_s, forget_after_seconds):
            row = Row()
        gap_s = now_s - row.ended_s
        gaps, mean_gap_s = row.gaps, row.mean_gap_seconds
        if not isnan(gap_s):
            gaps += 1
            mean_gap_s = gap_s if gaps == 1 else mean_gap_s + (gap_s - mean_gap_s) / gaps
        number = self._number(endpoint)
        there = number == row.endpoint
        turn = Row(
            endpoint=number,
            turns=row.turns + 1,
            history_tokens=row.history_tokens,
            switches=row.switches + (row.turns > 0 and not there),
            turns_there=row.turns_there + 1 if there else 1,
            gaps=gaps,
            mean_gap_seconds=mean_gap_s,
            seen_s=now_s,
            ended_s=nan,
        )
        self._evicted["capacity"] += self._table.put(key, turn)
        self._drop_silent(now_s, forget_after_seconds)

    def ended(self, key: bytes, now_s: float, history_tokens: int | None) -> None:
        """A turn ended with so many tokens of prompt and answer; None where it failed.

        A session that was forgotten meanwhile stays so.
        """
        row = self._table.get(key)
        if row is None:
            return
        history = row.history_tokens if history_tokens is None else history_tokens
        self._table.put(key, row._replace(history_tokens=history, seen_s=now_s, ended_s=now_s))

    def removed(self, endpoint: str) -> None:
        """The endpoint is gone; one of the same name that comes back is another one."""
        number = self._numbers.pop(endpoint, None)
        if number is not None:
            del self._names[number]

    def counts(self) -> SessionCounts:
        """Sizes now."""
        return SessionCounts(
            sessions=len(self._table),
            capacity=self._table.capacity,
            evicted_total={reason: self._evicted[reason] for reason in ("capacity", "silence")},
            endpoints=len(self._names),
        )

    def _taken(self, key: bytes, known_as: bytes | None) -> Row | None:
        """The row, which leaves the table if it is under another key."""
        row = self._table.get(key)
        if row is None and known_as is not None:
            row = self._table.get(known_as)
            self._table.remove(known_as)
        return row

    def _drop_silent(self, now_s: float, forget_after_seconds: float) -> None:
        for _ in range(_EXPIRED_PER_CALL):
            oldest = self._table.oldest()
            if oldest is None or not self._silent(oldest[1], now_s, forget_after_seconds):
                return
            self._table.remove(oldest[0])
            self._evicted["silence"] += 1

    def _silent(self, row: Row, now_s: float, forget_after_seconds: float) -> bool:
        return not isnan(row.seen_s) and now_s - row.seen_s > forget_after_seconds

    def _number(self, endpoint: str) -> int:
        """Numbers are never used again, so that rows need not be searched when an endpoint goes."""
        number = self._numbers.get(endpoint)
        if number is None:
            self._last_number += 1
            number = self._numbers[endpoint] = self._last_number
            self._names[number] = endpoint
        return number
