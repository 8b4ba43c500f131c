"""The engines that share energy counters, and their intervals from one change of the counters to the next.

Mostly that is one engine with all accelerators of its tensor-parallel group. Where pods share an accelerator, or ranks
of one pod cannot be told apart, they make one domain, whose energy is shared out over the work of all of them.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from heliotrope.engine.attribution import Split, largest_remainder, split
from heliotrope.engine.counters import CounterGroup, CounterLimits, Refusal, Span
from heliotrope.units import joules_from_millijoules, joules_from_watts
from heliotrope_epp.metering.credited import Credited
from heliotrope_epp.metering.slices import Folded
from heliotrope_epp.metering.steps import Steps, metered_steps
from heliotrope_epp.metering.timeline import Timeline
from heliotrope_epp.outcomes.energy import MeteredInterval, MeteredSteps, NoSteps

_NAN = float("nan")


@dataclass(slots=True, eq=False)
class _Account:
    """What one engine did in one interval."""

    lines: dict[Credited, float] = field(default_factory=dict)
    others: float = 0.0
    busy_s: float = 0.0
    units: list[float] = field(default_factory=lambda: [0.0] * 6)
    known: bool = True
    quiet: bool = True
    asleep: bool = False
    steps: Steps = field(default_factory=Steps)

    def add(self, folded: Folded, share: float) -> None:
        for followed, joules in folded.lines.items():
            self.lines[followed] = self.lines.get(followed, 0.0) + share * joules
        self.others += share * folded.others
        self.busy_s += share * folded.busy_s
        for i, units in enumerate(folded.units):
            self.units[i] += share * units
        self.known = self.known and folded.known
        self.quiet = self.quiet and folded.quiet
        self.asleep = self.asleep or folded.asleep
        self.steps.add(folded.steps, share)

    @property
    def joules(self) -> float:
        return sum(self.lines.values()) + self.others


@dataclass(slots=True, eq=False)
class _Interval:
    start_s: float
    accounts: dict[Timeline, _Account]
    span: Span | None = None
    """Set once it has ended."""
    counters_millijoules: int = 0
    """What the counters showed at its end."""

    def overlap(self, folded: Folded) -> float:
        """Share of a slice that lies in it."""
        end_s = folded.end_s if self.span is None else self.span.end_s
        seconds = min(end_s, folded.end_s) - max(self.start_s, folded.start_s)
        return max(seconds, 0.0) / (folded.end_s - folded.start_s)


@dataclass(frozen=True, slots=True)
class LastInterval:
    """For people who look."""

    start_s: float
    end_s: float
    millijoules: int | None
    refusal: Refusal | None


@dataclass(slots=True)
class Books:
    """A domain's energy since it is metered. Without a reset, `closed_at - opened_at` is the sum of the lines."""

    opened_at: int | None = None
    """mJ that the counters showed when the first interval began; None: none has."""
    closed_at: int | None = None
    """mJ that they showed at the end of the last one that was shared out."""
    requests: int = 0
    others: int = 0
    idle: int = 0
    unattributed: int = 0

    def add(self, interval: MeteredInterval) -> None:
        """Book an interval of one engine."""
        self.requests += interval.requests_millijoules
        self.others += interval.others_millijoules
        self.idle += interval.idle_millijoules
        self.unattributed += interval.unattributed_millijoules


class Domain:
    """Owned by the meter. `stranger`: somebody who is no engine of ours has one of the accelerators too."""

    def __init__(
        self,
        members: Sequence[Timeline],
        limits: CounterLimits,
        *,
        accelerators: int | None,
        stranger: bool,
        refused: dict[Refusal, int],
        now_s: float,
        metered: Callable[[MeteredInterval], None],
        unix_offset_s: Callable[[], float],
    ) -> None:
        self.members = tuple(members)
        self.counters = CounterGroup(limits, accelerators, refused=refused)
        self.stranger = stranger
        self.settled_until_s = now_s
        """Up to when everything is shared out or given up."""
        self.last: LastInterval | None = None
        self.books = Books()
        self._limits = limits
        self._read_s = float("-inf")
        self._open: _Interval | None = None
        self._ended: deque[_Interval] = deque()
        self._metered = metered
        self._unix_offset_s = unix_offset_s

    def read(self, values: Mapping[str, int | None], read_s: float, now_s: float) -> None:
        """Take a reading of all counters; one that was taken before is none."""
        if read_s > self._read_s:
            self._read_s = read_s
            self._after(self.counters.observe(values, read_s))
        else:
            self.silent(now_s)

    def silent(self, now_s: float) -> None:
        """There is nothing new to read."""
        self._after(self.counters.silent(now_s))

    def _after(self, span: Span | None) -> None:
        if span is not None and self._open is not None:
            self._open.span = span
            self._open.counters_millijoules = self.counters.millijoules
            self._ended.append(self._open)
            self._open = None
        start_s = self.counters.start_s
        if start_s is None:
            self._open = None
        elif self._open is None:
            self._open = _Interval(start_s, {member: _Account() for member in self.members})
            if self.books.opened_at is None:
                self.books.opened_at = self.counters.millijoules

    def fold(self, until_s: float) -> None:
        """Fold the members' slices that ended by then into the intervals that they lie in."""
        for member in self.members:
            for folded in member.fold(until_s):
                for interval in (*self._ended, self._open):
                    if interval is not None and (share := interval.overlap(folded)) > 0.0:
                        interval.accounts[member].add(folded, share)

    def holds(self, followed: Credited) -> bool:
        """Whether a request has a part in an interval that is not shared out yet."""
        return any(followed in account.lines for account in self._accounts())

    def release(self, followed: Credited) -> None:
        """Leave a request out of what is not shared out yet."""
        for account in self._accounts():
            account.lines.pop(followed, None)

    def _accounts(self) -> Iterator[_Account]:
        for interval in (*self._ended, self._open):
            if interval is not None:
                yield from interval.accounts.values()

    def settle(self, now_s: float) -> None:
        """Share out the intervals of which all slices are folded."""
        while self._ended:
            span = self._ended[0].span
            assert span is not None
            folded = all(member.folded_until_s >= span.end_s for member in self.members)
            late = now_s - span.end_s > self._limits.longest_seconds
            if not folded and not late:
                return
            self._settle(self._ended.popleft(), span, whole=folded)
            self.settled_until_s = span.end_s
        if self._open is None:
            # Nothing is being counted, and what is to come is counted from now on.
            folded_s = min(member.folded_until_s for member in self.members)
            self.settled_until_s = max(self.settled_until_s, folded_s)

    def _settle(self, interval: _Interval, span: Span, *, whole: bool) -> None:
        self.last = LastInterval(span.start_s, span.end_s, span.millijoules, span.refusal)
        self.books.closed_at = interval.counters_millijoules
        if not span.millijoules:
            return
        accounts = interval.accounts
        known = whole and all(account.known for account in accounts.values())
        if span.refusal is not None or self.stranger or not known:
            self._report(span, accounts, None, NoSteps.NOT_SHARED_OUT)
            return
        seconds = span.end_s - span.start_s
        idle_s = max(seconds - max(account.busy_s for account in accounts.values()), 0.0)
        weights = [joules for account in accounts.values() for joules in (*account.lines.values(), account.others)]
        if any(weights) and idle_s >= seconds:
            idle_s = seconds / 2.0  # somebody worked for a moment that no page showed
        parts = split(
            span.millijoules,
            weights,
            idle_watts=max(member.learned.idle_watts for member in self.members),
            idle_seconds=idle_s,
            seconds=seconds,
        )
        self._report(span, accounts, parts, _steps(accounts, parts, busy_share=1.0 - idle_s / seconds))
        self._credit(span, accounts, parts, busy_s=seconds - idle_s)
        for member in self.members:
            member.cover(span.start_s, span.end_s)
        self._learn(span, accounts, idle_s)

    def _report(
        self, span: Span, accounts: Mapping[Timeline, _Account], parts: Split | None, steps: MeteredSteps | NoSteps
    ) -> None:
        """One `MeteredInterval` per engine; what none of them can be charged with is split evenly."""
        assert span.millijoules is not None
        even = [1.0] * len(accounts)
        idle = largest_remainder(0 if parts is None else parts.idle, even)
        nobodys = largest_remainder(span.millijoules if parts is None else parts.unattributed, even)
        offset_s = self._unix_offset_s()
        position = 0
        for i, (member, account) in enumerate(accounts.items()):
            own = others = 0
            if parts is not None:
                count = len(account.lines)
                own = sum(parts.parts[position : position + count])
                others = parts.parts[position + count]
                position += count + 1
            traits = member.state.traits
            engine, hardware = traits.engine, traits.hardware
            model = None if engine is None else engine.model
            metered = MeteredInterval(
                endpoint=member.key,
                variant=traits.variant,
                region=traits.region,
                model=model if hardware is None else hardware.model,
                start_unix_s=span.start_s + offset_s,
                end_unix_s=span.end_s + offset_s,
                total_millijoules=own + others + idle[i] + nobodys[i],
                requests_millijoules=own,
                others_millijoules=others,
                idle_millijoules=idle[i],
                unattributed_millijoules=nobodys[i],
                host_joules=_NAN if engine is None else joules_from_watts(engine.host_watts, span.end_s - span.start_s),
                steps=steps,
            )
            self.books.add(metered)
            self._metered(metered)

    def _credit(self, span: Span, accounts: Mapping[Timeline, _Account], parts: Split, *, busy_s: float) -> None:
        whole = sum(account.joules for account in accounts.values())
        standing_joules = joules_from_millijoules(float(parts.idle + parts.unattributed))
        position = 0
        for member, account in accounts.items():
            engine, own = member.engine, account.joules
            host_joules = _NAN if engine is None else joules_from_watts(engine.host_watts, account.busy_s)
            for followed, joules in account.lines.items():
                drawn = followed.drew(member)
                drawn.millijoules += parts.parts[position]
                position += 1
                followed.start_s = min(followed.start_s, span.start_s)
                followed.end_s = max(followed.end_s, span.end_s)
                if joules > 0.0:
                    drawn.idle_joules += standing_joules * joules / whole
                    drawn.accelerator_seconds += busy_s * joules / whole
                    drawn.host_joules += host_joules * joules / own
            position += 1

    def _learn(self, span: Span, accounts: Mapping[Timeline, _Account], idle_s: float) -> None:
        """One engine's intervals teach its weights; of several on one accelerator nobody knows whose step drew what."""
        if len(accounts) != 1 or span.millijoules is None:
            return
        ((member, account),) = accounts.items()
        seconds = span.end_s - span.start_s
        joules = joules_from_millijoules(float(span.millijoules))
        if any(account.units):
            member.learned.worked(np.array(account.units), joules, seconds, idle_s)
        elif account.quiet and not account.asleep:
            member.learned.idle(joules, seconds)


def _steps(accounts: Mapping[Timeline, _Account], parts: Split, *, busy_share: float) -> MeteredSteps | NoSteps:
    if len(accounts) != 1:
        return NoSteps.SHARED
    ((member, account),) = accounts.items()
    if account.asleep:
        return NoSteps.ASLEEP
    if member.encodes_only:
        return NoSteps.ENCODES
    joules = joules_from_millijoules(float(sum(parts.parts)))
    return metered_steps(member.state.traits, account.units, account.steps, joules=joules, busy_share=busy_share)
