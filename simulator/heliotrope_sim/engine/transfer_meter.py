"""The energy of transfers in progress, in total."""

from dataclasses import dataclass


@dataclass(eq=False, slots=True)
class MeteredTransfer:
    """The part of a transfer that is spread evenly from a time on."""

    start_ns: int
    duration_ns: int
    picojoules: int

    def drawn(self, now_ns: int) -> int:
        """Its energy up to a time."""
        elapsed_ns = now_ns - self.start_ns
        if elapsed_ns >= self.duration_ns:
            return self.picojoules
        return self.picojoules * elapsed_ns // self.duration_ns if elapsed_ns > 0 else 0


class TransferMeter:
    """The energy of KV transfers, spread evenly over the duration of each; exact when they have ended.

    It is metered apart from the accelerators', because links and host memory draw it, not the GPUs.
    """

    __slots__ = ("_active", "_ended_picojoules", "_read_ns")

    def __init__(self) -> None:
        self._active: list[MeteredTransfer] = []
        self._ended_picojoules = 0
        self._read_ns = 0
        """The latest time that somebody has read it for."""

    def start(self, now_ns: int, duration_ns: int, picojoules: int) -> MeteredTransfer:
        """Begin a transfer."""
        running = []
        for transfer in self._active:
            if transfer.start_ns + transfer.duration_ns <= now_ns:
                self._ended_picojoules += transfer.picojoules
            else:
                running.append(transfer)
        begun = MeteredTransfer(now_ns, duration_ns, picojoules)
        running.append(begun)
        self._active = running
        return begun

    def end_at(self, transfer: MeteredTransfer, end_ns: int) -> None:
        """Spread what a transfer has yet to draw up to another end; what was read of it stays."""
        if transfer not in self._active:
            return
        drawn = transfer.drawn(self._read_ns)
        self._ended_picojoules += drawn
        transfer.picojoules -= drawn
        transfer.start_ns = max(transfer.start_ns, self._read_ns)
        transfer.duration_ns = max(end_ns - transfer.start_ns, 0)

    def picojoules(self, now_ns: int) -> int:
        """Cumulative energy at a time not before the start of the last transfer; grows with it."""
        self._read_ns = max(self._read_ns, now_ns)
        return self._ended_picojoules + sum(transfer.drawn(now_ns) for transfer in self._active)

    def watts(self, now_ns: int) -> float:
        """Power of the transfers in progress at a time."""
        return sum(
            transfer.picojoules / transfer.duration_ns / 1_000
            for transfer in self._active
            if transfer.start_ns <= now_ns < transfer.start_ns + transfer.duration_ns
        )
