"""Rows by 128-bit key in memory that is bounded and laid out in advance, forgotten least recently written first.

An object per session would take several times the memory and be looked at by every full collection of garbage, and a
dictionary of a million keys stops the loop whenever it grows. Here a row is 64 bytes of one buffer; an open-addressed
table of row numbers (linear probing, at most half full, deletion by shifting back) finds it, and two columns of row
numbers keep the order. The system gives memory to the buffers only as rows are used.
"""

from math import nan
from mmap import mmap
from struct import Struct, calcsize
from typing import Literal, NamedTuple

KEY_BYTES = 16
_LARGEST_COUNT = 2**32 - 1

_ROW = Struct("<16sIIIIIIddd")
ROW_BYTES = _ROW.size


class Row(NamedTuple):
    """What is kept of one session. Endpoints are numbers from 1 on, 0 is none; NaN is unknown."""

    endpoint: int = 0
    """Of the last turn."""
    turns: int = 0
    history_tokens: int = 0
    """Prompt and answer of the last turn that ended."""
    switches: int = 0
    """Turns that went elsewhere than the turn before."""
    turns_there: int = 0
    """Turns in a row, up to the last one, at `endpoint`."""
    gaps: int = 0
    """Gaps that `mean_gap_seconds` is the mean of."""
    mean_gap_seconds: float = nan
    seen_s: float = nan
    """When the session was last heard of."""
    ended_s: float = nan
    """When its last turn ended; NaN while it goes on."""


class SessionTable:
    """At most `capacity` rows; writing one more drops the row that was written longest ago."""

    def __init__(self, capacity: int) -> None:
        """Raises ValueError unless 0 < capacity < 2³¹."""
        if not 0 < capacity < 2**31:
            raise ValueError(f"capacity must be above 0 and below 2**31, not {capacity}")
        buckets = 1 << (2 * capacity - 1).bit_length()
        self.capacity = capacity
        self._mask = buckets - 1
        self._buckets = _zeros(buckets, "I")
        self._rows = _zeros((capacity + 1) * ROW_BYTES, "B")
        # Row 0 is no row: it closes the ring of rows in the order of writing, oldest after it, newest before it.
        self._newer = _zeros(capacity + 1, "I")
        self._older = _zeros(capacity + 1, "I")
        self._touched = 0
        self._free = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, key: bytes) -> Row | None:
        """The row of a key; its place in the order stays."""
        number = self._buckets[self._bucket(key)]
        return self._read(number) if number else None

    def put(self, key: bytes, row: Row) -> bool:
        """Write a row as the newest.

        Returns:
            Whether another row had to be dropped for it.
        """
        bucket = self._bucket(key)
        number = self._buckets[bucket]
        dropped = False
        if number:
            self._unlink(number)
        else:
            if self._count == self.capacity:
                self.remove(self._key(self._newer[0]))
                bucket = self._bucket(key)
                dropped = True
            number = self._buckets[bucket] = self._fresh()
            self._count += 1
        self._write(number, key, row)
        self._link_newest(number)
        return dropped

    def remove(self, key: bytes) -> bool:
        """Forget a row; False if there is none."""
        bucket = self._bucket(key)
        number = self._buckets[bucket]
        if not number:
            return False
        self._unlink(number)
        self._newer[number] = self._free
        self._free = number
        self._count -= 1
        self._close(bucket)
        return True

    def oldest(self) -> tuple[bytes, Row] | None:
        """The row that was written longest ago, with its key."""
        number = self._newer[0]
        return (self._key(number), self._read(number)) if number else None

    def _bucket(self, key: bytes) -> int:
        """Where the key's row number stands, or the empty bucket where it would."""
        buckets, rows, mask = self._buckets, self._rows, self._mask
        bucket = int.from_bytes(key[:8], "little") & mask
        while number := buckets[bucket]:
            start = number * ROW_BYTES
            if rows[start : start + KEY_BYTES] == key:
                return bucket
            bucket = (bucket + 1) & mask
        return bucket

    def _close(self, hole: int) -> None:
        """Empty a bucket, so that every row that follows is still found from its own one."""
        buckets, mask = self._buckets, self._mask
        bucket = hole
        while number := buckets[bucket := (bucket + 1) & mask]:
            home = int.from_bytes(self._rows[number * ROW_BYTES : number * ROW_BYTES + 8], "little") & mask
            if (bucket - home) & mask >= (bucket - hole) & mask:
                buckets[hole] = number
                hole = bucket
        buckets[hole] = 0

    def _fresh(self) -> int:
        if self._free:
            number = self._free
            self._free = self._newer[number]
            return number
        self._touched += 1
        return self._touched

    def _link_newest(self, number: int) -> None:
        newest = self._older[0]
        self._older[number], self._newer[number] = newest, 0
        self._newer[newest] = number
        self._older[0] = number

    def _unlink(self, number: int) -> None:
        older, newer = self._older[number], self._newer[number]
        self._newer[older] = newer
        self._older[newer] = older

    def _key(self, number: int) -> bytes:
        return bytes(self._rows[number * ROW_BYTES : number * ROW_BYTES + KEY_BYTES])

    def _write(self, number: int, key: bytes, row: Row) -> None:
        _ROW.pack_into(
            self._rows,
            number * ROW_BYTES,
            key,
            row.endpoint,
            min(row.turns, _LARGEST_COUNT),
            min(row.history_tokens, _LARGEST_COUNT),
            min(row.switches, _LARGEST_COUNT),
            min(row.turns_there, _LARGEST_COUNT),
            min(row.gaps, _LARGEST_COUNT),
            row.mean_gap_seconds,
            row.seen_s,
            row.ended_s,
        )

    def _read(self, number: int) -> Row:
        return Row._make(_ROW.unpack_from(self._rows, number * ROW_BYTES)[1:])


def _zeros(count: int, form: Literal["B", "I"]) -> "memoryview[int]":
    """Memory that the system gives when it is first touched."""
    return memoryview(mmap(-1, count * calcsize(form))).cast(form)
