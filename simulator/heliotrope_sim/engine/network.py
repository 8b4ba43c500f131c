"""Links that transfers between engines share: each takes as long as the more crowded of its two ends makes it.

An end of a link that n transfers use at a time gives each of them one nth of itself (processor sharing). A transfer
that would take w ns alone is over when the integral of 1 / max(n at its source, n at its target) is w. Whoever is
present only ever slows others down, so no transfer is faster for another one's coming.

Engines tell of their transfers in their own order, and a little late. So nothing depends on the order of calls: times
are computed from all transfers that overlap, and what is told late moves whatever has not been taken yet.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

LATE_NS = 1_000_000_000
"""Engines tell of a transfer within this time of its beginning."""
_ROUNDING_NS = 1e-3
"""Floats are off by less."""


@dataclass(eq=False, slots=True)
class Flow:
    """A transfer on the network's clock; `end_ns` moves until somebody takes what it brought."""

    start_ns: int
    """When it was asked for."""
    flowing_ns: int
    """When its bytes begin to flow."""
    alone_ns: int
    """How long they flow if they have both ends for themselves."""
    ends: tuple[str, ...]
    """The names of the ends of links that they take."""
    end_ns: int
    moved: Callable[[int], None]
    """Told of every other end."""
    over: bool = False
    """Whether `end_ns` moves no more: it was taken, broken off, or long ago."""


def end_times(flows: Sequence[Flow]) -> list[int]:
    """When each of these transfers ends if no other comes; in whole ns, rounded up.

    Those that are over take their links until their `end_ns`, whatever they would have had to move.
    """
    ends = [flow.end_ns for flow in flows]
    if not flows:
        return ends
    first_ns = min(flow.flowing_ns for flow in flows)
    # From here on times count from the first one, so that floats hold them to a fraction of a ns.
    starts = [float(flow.flowing_ns - first_ns) for flow in flows]
    left = [float(flow.alone_ns) for flow in flows]
    comes = sorted(range(len(flows)), key=starts.__getitem__, reverse=True)
    taken = [flow.ends for flow in flows]
    fixed = [float(flow.end_ns - first_ns) if flow.over else None for flow in flows]
    crowd = dict.fromkeys((end for each in taken for end in each), 0)
    here: list[int] = []
    now = 0.0
    while comes or here:
        if not here:
            now = max(now, starts[comes[-1]])
        while comes and starts[comes[-1]] <= now:
            here.append(comes.pop())
            for end in taken[here[-1]]:
                crowd[end] += 1
        slower = [max([crowd[end] for end in taken[i]], default=1) for i in here]
        leaves = [
            now + left[i] * n if (known := fixed[i]) is None else known for i, n in zip(here, slower, strict=True)
        ]
        then = max(min(leaves), now)
        if comes:
            then = min(then, starts[comes[-1]])
        passed, stay = then - now, []
        for i, n, leave in zip(here, slower, leaves, strict=True):
            if leave > then:
                left[i] -= passed / n
                stay.append(i)
                continue
            for end in taken[i]:
                crowd[end] -= 1
            if fixed[i] is None:
                ends[i] = first_ns + ceil(then - _ROUNDING_NS)
        here, now = stay, then
    return ends


@dataclass(slots=True)
class Network:
    """The transfers of engines that know of each other. Not for engines whose clocks run at different speeds."""

    flows: list[Flow] = field(default_factory=list)
    """Those that are not over, and those that shared a link with one that is not."""

    def begin(
        self, start_ns: int, latency_ns: int, alone_ns: int, ends: Iterable[str], moved: Callable[[int], None]
    ) -> Flow:
        """Start a transfer; others that share its links are told of their new ends.

        Args:
            start_ns: when it is asked for.
            latency_ns: until bytes flow.
            alone_ns: how long they would flow alone.
            ends: names of the ends of links that they take.
            moved: called with the transfer's end whenever that changes, not for this call.
        """
        for other in self.flows:
            # Whoever does not take what came long ago, as its batch is full, would keep all that was since.
            other.over = other.over or other.end_ns + LATE_NS < start_ns
        flow = Flow(start_ns, start_ns + latency_ns, alone_ns, tuple(ends), start_ns + latency_ns + alone_ns, moved)
        self.flows.append(flow)
        self._settle(flow)
        return flow

    def break_off(self, flow: Flow, now_ns: int) -> None:
        """End a transfer whose bytes nobody wants any more."""
        if not flow.over:
            flow.over = True
            flow.end_ns = max(min(flow.end_ns, now_ns), flow.flowing_ns)
            self._settle(flow)

    def take(self, flow: Flow) -> None:
        """What it brought has been taken: its end moves no more."""
        flow.over = True
        self._forget()

    def _settle(self, cause: Flow) -> None:
        """New ends of whatever is connected to a transfer."""
        near = self._connected(cause)
        for flow, end_ns in zip(near, end_times(near), strict=True):
            if end_ns != flow.end_ns:
                flow.end_ns = end_ns
                if flow is not cause:
                    flow.moved(end_ns)
        self._forget()

    def _connected(self, flow: Flow) -> list[Flow]:
        """In the order in which they were told, so that results do not depend on names."""
        near, ends = {id(flow)}, set(flow.ends)
        grows = True
        while grows:
            grows = False
            for other in self.flows:
                if id(other) not in near and not ends.isdisjoint(other.ends):
                    near.add(id(other))
                    ends.update(other.ends)
                    grows = True
        return [other for other in self.flows if id(other) in near]

    def _forget(self) -> None:
        """Those that are over and slow nobody down any more."""
        first = min((flow.flowing_ns for flow in self.flows if not flow.over), default=None)
        self.flows = [f for f in self.flows if not f.over or (first is not None and f.end_ns > first)]


@dataclass(frozen=True, slots=True)
class Port:
    """One engine's way to a network: times are on the engine's clock."""

    network: Network = field(default_factory=Network)
    offset_ns: int = 0
    """What the network's clock shows when the engine's shows 0."""

    def begin(
        self, now_ns: int, latency_ns: int, alone_ns: int, ends: Iterable[str], moved: Callable[[int], None]
    ) -> Flow:
        """As `Network.begin`."""
        offset_ns = self.offset_ns
        return self.network.begin(
            now_ns + offset_ns, latency_ns, alone_ns, ends, lambda end_ns: moved(end_ns - offset_ns)
        )

    def end_ns(self, flow: Flow) -> int:
        """When a transfer ends."""
        return flow.end_ns - self.offset_ns

    def break_off(self, flow: Flow, now_ns: int) -> None:
        """As `Network.break_off`."""
        self.network.break_off(flow, now_ns + self.offset_ns)

    def take(self, flow: Flow) -> None:
        """As `Network.take`."""
        self.network.take(flow)
