"""KV memory: never more than it has, sharing by content, least recently used content evicted first."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliotrope_sim.engine.kv import KvMemory
from heliotrope_sim.engine.sequence import Request, Sequence

BLOCK = 4


def sequence(hashes: tuple[int, ...], tokens: int) -> Sequence:
    return Sequence(Request("r", tokens, 1, hashes), queued_ns=0)


def fill(kv: KvMemory, hashes: tuple[int, ...]) -> Sequence:
    """A sequence whose blocks are all computed and published."""
    s = sequence(hashes, len(hashes) * BLOCK)
    assert kv.admit(s, kv.match(hashes, len(hashes)), len(hashes))
    s.computed = len(hashes) * BLOCK
    kv.publish(s)
    return s


def test_published_blocks_are_found_and_shared() -> None:
    kv = KvMemory(10, BLOCK)
    first = fill(kv, (1, 2, 3))
    assert kv.match((1, 2, 9), 3) == 2
    assert kv.match((1, 2, 3), 2) == 2
    second = sequence((1, 2, 9), 12)
    assert kv.admit(second, 2, 3)
    assert kv.used_blocks == 4
    kv.release(first)
    assert kv.used_blocks == 3
    assert kv.match((1, 2, 3), 3) == 3


def test_the_oldest_unreferenced_content_goes_first_and_the_end_of_a_prefix_before_its_start() -> None:
    kv = KvMemory(6, BLOCK)
    for hashes in ((1, 2, 3), (7, 8, 9)):
        kv.release(fill(kv, hashes))
    assert kv.used_blocks == 0
    s = sequence((), 2 * BLOCK)
    assert kv.admit(s, 0, 2)
    assert kv.match((1, 2, 3), 3) == 1
    assert kv.match((7, 8, 9), 3) == 3


def test_a_hit_is_not_evicted_to_make_room_for_the_rest_of_the_same_request() -> None:
    kv = KvMemory(3, BLOCK)
    kv.release(fill(kv, (1, 2, 3)))
    wide = sequence((1, 2, 3), 4 * BLOCK)
    assert not kv.admit(wide, 3, 4)
    assert kv.used_blocks == 0
    fits = sequence((1, 5), 3 * BLOCK)
    assert kv.admit(fits, kv.match((1, 5), 2), 3)
    assert kv.used_blocks == 3
    assert kv.match((1,), 1) == 1


def test_two_sequences_that_compute_the_same_block_hold_it_twice() -> None:
    kv = KvMemory(10, BLOCK)
    a, b = sequence((1, 2), 8), sequence((1, 2), 8)
    for s in (a, b):
        assert kv.admit(s, 0, 2)
        s.computed = 8
    kv.publish(a)
    kv.publish(b)
    assert kv.used_blocks == 4
    kv.release(b)
    assert (kv.used_blocks, kv.cached_blocks) == (2, 2)


def test_forget_drops_only_what_nobody_holds() -> None:
    kv = KvMemory(10, BLOCK)
    held, gone = fill(kv, (1,)), fill(kv, (2,))
    kv.release(gone)
    kv.forget()
    assert kv.match((1,), 1) == 1
    assert kv.match((2,), 1) == 0
    kv.release(held)
    assert kv.used_blocks == 0


class KvMachine(RuleBasedStateMachine):
    """Random admissions, growth, publication and release against a few shared prefixes."""

    def __init__(self) -> None:
        super().__init__()
        self.kv = KvMemory(12, BLOCK)
        self.live: list[Sequence] = []

    @rule(prefix=st.integers(0, 3), length=st.integers(0, 5), extra=st.integers(1, 6))
    def admit(self, prefix: int, length: int, extra: int) -> None:
        hashes = tuple(prefix * 100 + i for i in range(length))
        s = sequence(hashes, (length + extra) * BLOCK)
        before = self.kv.used_blocks
        blocks = length + extra
        if self.kv.admit(s, self.kv.match(hashes, blocks - 1), blocks):
            self.live.append(s)
            s.computed = len(s.shared_blocks) * BLOCK
        else:
            assert self.kv.used_blocks == before
            assert s.block_count == 0

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100), blocks=st.integers(1, 3))
    def compute(self, which: int, blocks: int) -> None:
        s = self.live[which % len(self.live)]
        s.computed = min(s.computed + blocks * BLOCK, s.block_count * BLOCK)
        self.kv.publish(s)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100))
    def grow(self, which: int) -> None:
        s = self.live[which % len(self.live)]
        full = self.kv.used_blocks == self.kv.capacity_blocks
        assert self.kv.grow(s) is not full

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100))
    def release(self, which: int) -> None:
        self.kv.release(self.live.pop(which % len(self.live)))

    @rule()
    def forget(self) -> None:
        self.kv.forget()

    @invariant()
    def blocks_are_conserved(self) -> None:
        shared = {h for s in self.live for h in s.shared_blocks}
        private = sum(s.private_blocks for s in self.live)
        assert self.kv.used_blocks == len(shared) + private
        assert 0 <= self.kv.used_blocks <= self.kv.capacity_blocks
        assert self.kv.used_blocks <= self.kv.used_blocks + self.kv.cached_blocks - len(shared) <= 12
        assert all(s.private_blocks >= 0 for s in self.live)


KvMachine.TestCase.settings = settings(deadline=None, max_examples=60, stateful_step_count=40)
TestKvMemory = KvMachine.TestCase
