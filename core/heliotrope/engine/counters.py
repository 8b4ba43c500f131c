"""Cumulative energy counters as they come: they reset, wrap, stand still between updates, lie and go missing.

A counter of NVML or the DCGM exporter is a whole number of mJ since some start. What counts is how far it rose between
two readings that can be believed. Exporters update less often than they are read (the DCGM exporter each 30 s by
default), so an interval runs from one change to the next.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.units import joules_from_watts, millijoules_from_joules


class Refusal(StrEnum):
    """Why the time since the last believable readings has no energy that could be shared out."""

    RESET = "reset"
    """A counter fell: its engine, driver or node started again."""
    ABSURD = "absurd"
    """It rose by more than the hardware can draw."""
    NOT_A_NUMBER = "not_a_number"
    MISSING = "missing"
    """Not every accelerator of the engine was there."""
    CHANGED = "changed"
    """The engine has other accelerators than before."""
    GAP = "gap"
    """No change for longer than anybody can say who drew it."""


@dataclass(frozen=True, slots=True)
class CounterLimits:
    """What is believed of one accelerator's counter."""

    max_watts: float = 2_000.0
    """More than any accelerator draws."""
    slack_seconds: float = 1.0
    """By how much longer than it seems a rise may have taken: readings are stamped on arrival."""
    widths_bits: tuple[int, ...] = (32, 64)
    """Widths at which a counter may wrap."""
    shortest_seconds: float = 0.0
    """Changes that come sooner after an interval's start do not end it."""
    longest_seconds: float = 90.0
    """An interval beyond this is a gap."""

    def plausible(self, millijoules: int, seconds: float) -> bool:
        """Whether one accelerator can have drawn this in that time."""
        longest = max(seconds, 0.0) + self.slack_seconds
        return 0 <= millijoules <= millijoules_from_joules(joules_from_watts(self.max_watts, longest))


@dataclass(frozen=True, slots=True)
class Rise:
    """What one counter says of the time between two readings."""

    millijoules: int | None
    """At least what was drawn; None: unknown."""
    refusal: Refusal | None = None


def rise(before: int, now: int, seconds: float, limits: CounterLimits) -> Rise:
    """How far a counter rose between two readings.

    Args:
        before: the earlier reading in mJ.
        now: the later one.
        seconds: for how long it may have been rising.
        limits: what is physically possible, and how wide the counter may be.

    Returns:
        A fall is a wrap if that explains it within the limits, else a reset, of which is known what was drawn since.
    """
    if now >= before:
        delta = now - before
        return Rise(delta) if limits.plausible(delta, seconds) else Rise(None, Refusal.ABSURD)
    for bits in limits.widths_bits:
        wrapped = now + (1 << bits) - before
        if before < 1 << bits and limits.plausible(wrapped, seconds):
            return Rise(wrapped)
    return Rise(now if limits.plausible(now, seconds) else None, Refusal.RESET)


@dataclass(frozen=True, slots=True)
class Span:
    """The energy of a group of accelerators between two of its changes."""

    start_s: float
    end_s: float
    millijoules: int | None
    """Of all of them together. With a refusal: what was surely drawn; None: unknown."""
    refusal: Refusal | None = None
    """Set where the energy cannot be shared out."""


@dataclass(slots=True)
class _Counter:
    value: int
    changed_s: float
    moved: int = 0
    """Since the start of the present span."""
    doubted: bool = False
    """Whether its value is itself absurd."""


class CounterGroup:
    """The counters of one engine's accelerators, of which a tensor-parallel group has several.

    The first span begins at the first change, not at the first reading: how long a counter had stood still before
    nobody knows. `expected` is the number of accelerators, where known; with fewer the sum is unknown, not smaller.
    `refused` is where refusals are counted, so that several groups may share it.
    """

    def __init__(
        self, limits: CounterLimits, expected: int | None = None, *, refused: dict[Refusal, int] | None = None
    ) -> None:
        self._limits = limits
        self._expected = expected or 1
        self._counters: dict[str, _Counter] = {}
        self._start_s: float | None = None
        self._reported_missing = False
        self._after_gap = False
        self.refused: dict[Refusal, int] = {} if refused is None else refused
        """Readings and spans that were refused, since the start."""

    @property
    def start_s(self) -> float | None:
        """Start of the present span; None before the first."""
        return self._start_s

    @property
    def millijoules(self) -> int:
        """What the counters show together at the last reading; 0 before the first."""
        return sum(counter.value for counter in self._counters.values())

    def observe(self, values: Mapping[str, int | None], now_s: float) -> Span | None:
        """Take a reading of every counter.

        Args:
            values: mJ by accelerator; None: not a number.
            now_s: when it was taken.

        Returns:
            The span that ended with it, None if none did.
        """
        known = {key: value for key, value in values.items() if value is not None}
        if len(known) < max(self._expected, 1) or not self._counters.keys() <= known.keys():
            return self._incomplete(known, values, now_s)
        self._reported_missing = False
        if known.keys() != self._counters.keys():
            return self._started_over(known, now_s)
        refusals = []
        changed = unknown = False
        for key, counter in self._counters.items():
            value = known[key]
            risen = rise(counter.value, value, now_s - counter.changed_s, self._limits)
            if risen.refusal is not None:
                refusals.append(risen.refusal)
                self._count(risen.refusal)
            # A fall right after an absurd value is the way back from it, and tells nothing of what was drawn.
            unknown = unknown or risen.millijoules is None or (counter.doubted and risen.refusal is Refusal.RESET)
            counter.doubted = risen.refusal is Refusal.ABSURD
            counter.moved += risen.millijoules or 0
            if value != counter.value:
                counter.value, counter.changed_s, changed = value, now_s, True
        if refusals:
            return self._ended(now_s, refusals[0], unknown=unknown)
        early = self._start_s is not None and now_s - self._start_s < self._limits.shortest_seconds
        if early or not changed or not all(counter.moved for counter in self._counters.values()):
            return self._overdue(now_s)
        late = self._start_s is not None and now_s - self._start_s > self._limits.longest_seconds
        if late or self._after_gap:
            self._count(Refusal.GAP)
            return self._ended(now_s, Refusal.GAP)
        return self._ended(now_s, None)

    def silent(self, now_s: float) -> Span | None:
        """There was nothing to read. Returns the span that this ends, if it has lasted too long."""
        return self._overdue(now_s)

    def _incomplete(self, known: Mapping[str, int], values: Mapping[str, int | None], now_s: float) -> Span | None:
        """Counted once until all counters are there again."""
        if not self._reported_missing:
            self._reported_missing = True
            self._count(Refusal.NOT_A_NUMBER if len(known) < len(values) else Refusal.MISSING)
        span = self._overdue(now_s)
        if span is not None and len(known) >= self._expected:
            self._begin(known, now_s)
        return span

    def _started_over(self, known: Mapping[str, int], now_s: float) -> Span | None:
        span = None
        if self._start_s is not None:
            self._count(Refusal.CHANGED)
            span = Span(self._start_s, now_s, None, Refusal.CHANGED)
        self._begin(known, now_s)
        return span

    def _begin(self, known: Mapping[str, int], now_s: float) -> None:
        self._counters = {key: _Counter(value, now_s) for key, value in known.items()}
        self._start_s, self._after_gap = None, False

    def _overdue(self, now_s: float) -> Span | None:
        if self._start_s is None or now_s - self._start_s <= self._limits.longest_seconds:
            return None
        self._count(Refusal.GAP)
        span = self._ended(now_s, Refusal.GAP)
        # When it moves again, nobody will know since when.
        self._after_gap = True
        return span

    def _ended(self, now_s: float, refusal: Refusal | None, *, unknown: bool = False) -> Span | None:
        start_s, self._start_s, self._after_gap = self._start_s, now_s, False
        moved = sum(counter.moved for counter in self._counters.values())
        for counter in self._counters.values():
            counter.moved = 0
        if start_s is None:
            return None
        return Span(start_s, now_s, None if unknown else moved, refusal)

    def _count(self, refusal: Refusal) -> None:
        self.refused[refusal] = self.refused.get(refusal, 0) + 1
