"""The sequences that wait for KV from outside, and those held for others to read."""

from heliotrope_sim.engine.sequence import Sequence


class Loading:
    """Sequences whose KV is on its way, in the order in which it arrives."""

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        self._sequences: list[Sequence] = []

    def __len__(self) -> int:
        """How many."""
        return len(self._sequences)

    @property
    def tokens_to_prefill(self) -> int:
        """What all of them will have to prefill."""
        return sum(s.prefill_target - s.computed - s.loading_tokens for s in self._sequences)

    @property
    def next_ready_ns(self) -> int | None:
        """When the next load ends; None if there is none."""
        return self._sequences[0].loaded_ns if self._sequences else None

    def add(self, sequence: Sequence) -> None:
        """Wait for a sequence's load."""
        self._sequences.append(sequence)
        self.moved()

    def moved(self) -> None:
        """Put them in order after the end of a load has changed."""
        # Stable: of loads that end together the earlier one is served first.
        self._sequences.sort(key=lambda s: s.loaded_ns)

    def take_ready(self, now_ns: int) -> Sequence | None:
        """The first sequence whose load has ended, taken out; None if there is none."""
        if not self._sequences or self._sequences[0].loaded_ns > now_ns:
            return None
        return self._sequences.pop(0)

    def remove(self, sequence: Sequence) -> None:
        """Wait for it no longer."""
        self._sequences.remove(sequence)


class Holds:
    """Finished sequences whose blocks stay in memory until somebody has read them, or until their time is up."""

    __slots__ = ("_sequences",)

    def __init__(self) -> None:
        self._sequences: dict[str, Sequence] = {}

    def __len__(self) -> int:
        """How many."""
        return len(self._sequences)

    def __contains__(self, request_id: str) -> bool:
        """Whether a request is held."""
        return request_id in self._sequences

    @property
    def next_deadline_ns(self) -> int | None:
        """When the next hold ends by itself; None if there is none."""
        return min((s.held_until_ns for s in self._sequences.values()), default=None)

    def add(self, sequence: Sequence) -> None:
        """Hold a sequence."""
        self._sequences[sequence.request.request_id] = sequence

    def get(self, request_id: str) -> Sequence | None:
        """One sequence; None if it is not held."""
        return self._sequences.get(request_id)

    def pop(self, request_id: str) -> Sequence | None:
        """One sequence, taken out; None if it is not held."""
        return self._sequences.pop(request_id, None)

    def pop_expired(self, now_ns: int) -> list[Sequence]:
        """Those whose time is up, taken out, oldest first."""
        expired = [s for s in self._sequences.values() if s.held_until_ns <= now_ns]
        for sequence in expired:
            del self._sequences[sequence.request.request_id]
        return expired

    def pop_all(self) -> list[Sequence]:
        """All of them, taken out."""
        everyone = list(self._sequences.values())
        self._sequences.clear()
        return everyone
