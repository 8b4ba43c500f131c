"""Eviction against a reference: physical blocks in a queue, as vLLM's block pool keeps them."""

from collections import deque

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliotrope_sim.engine.kv import KvMemory
from heliotrope_sim.engine.kv_events import AllBlocksCleared, BlocksRemoved, BlocksStored, KvEvent, Medium
from heliotrope_sim.engine.sequence import Request, Sequence

BLOCK = 4
CAPACITY = 12


class BlockPool:
    """Blocks with numbers and reference counts; those of count zero queue for their next use, first in, first out.

    Blocks without content are used first, so they queue at the front.
    """

    def __init__(self) -> None:
        self.queue: deque[int] = deque(range(CAPACITY))
        self.references = [0] * CAPACITY
        self.hash_of: dict[int, int] = {}
        self.block_of: dict[int, int] = {}

    def allocate(self, count: int) -> list[int]:
        taken = [self.queue.popleft() for _ in range(count)]
        for block in taken:
            self.references[block] = 1
            content = self.hash_of.pop(block, None)
            if content is not None:
                del self.block_of[content]
        return taken

    def admit(self, hashes: tuple[int, ...], blocks: int) -> list[int] | None:
        found = []
        for content in hashes[: blocks - 1]:
            if content not in self.block_of:
                break
            found.append(self.block_of[content])
        waiting = sum(self.references[b] == 0 for b in found)
        if blocks - len(found) > len(self.queue) - waiting:
            return None
        for block in found:
            if self.references[block] == 0:
                self.queue.remove(block)
            self.references[block] += 1
        return found + self.allocate(blocks - len(found))

    def cache(self, table: list[int], hashes: tuple[int, ...], full: int) -> None:
        for block, content in zip(table[:full], hashes, strict=False):
            if block not in self.hash_of and content not in self.block_of:
                self.hash_of[block] = content
                self.block_of[content] = block

    def free(self, table: list[int]) -> None:
        first, last = [], []
        for block in reversed(table):
            self.references[block] -= 1
            if not self.references[block]:
                (last if block in self.hash_of else first).append(block)
        self.queue.extendleft(reversed(first))
        self.queue.extend(last)


class Comparison(RuleBasedStateMachine):
    """The same operations on both; the same content at any time, which the events tell too."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[KvEvent] = []
        self.evicted: list[int] = []
        self.kv = KvMemory(CAPACITY, BLOCK, record=self.events.append, evicted=self.evicted)
        self.pool = BlockPool()
        self.live: list[tuple[Sequence, list[int]]] = []
        self.told: set[int] = set()

    @rule(prefix=st.integers(0, 4), length=st.integers(0, 5), extra=st.integers(1, 6))
    def admit(self, prefix: int, length: int, extra: int) -> None:
        hashes = tuple(prefix * 100 + i for i in range(length))
        blocks = length + extra
        s = Sequence(Request("r", blocks * BLOCK, 1, hashes), queued_ns=0)
        table = self.pool.admit(hashes, blocks)
        assert self.kv.admit(s, self.kv.match(hashes, blocks - 1), blocks) is (table is not None)
        if table is not None:
            s.computed = len(s.shared_blocks) * BLOCK
            self.live.append((s, table))

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100), blocks=st.integers(1, 3))
    def compute(self, which: int, blocks: int) -> None:
        s, table = self.live[which % len(self.live)]
        s.computed = min(s.computed + blocks * BLOCK, s.block_count * BLOCK)
        self.kv.publish(s)
        self.pool.cache(table, tuple(s.request.block_hashes), s.computed // BLOCK)

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100))
    def grow(self, which: int) -> None:
        s, table = self.live[which % len(self.live)]
        if self.kv.grow(s):
            table += self.pool.allocate(1)
        else:
            assert not self.pool.queue

    @precondition(lambda self: self.live)
    @rule(which=st.integers(0, 100))
    def release(self, which: int) -> None:
        s, table = self.live.pop(which % len(self.live))
        self.kv.release(s)
        self.pool.free(table)

    @precondition(lambda self: not self.live)
    @rule()
    def forget(self) -> None:
        self.kv.forget()
        self.pool = BlockPool()

    @invariant()
    def both_hold_the_same(self) -> None:
        assert self.kv.content() == set(self.pool.block_of)
        assert self.kv.cached_blocks == len(self.pool.block_of)
        assert self.kv.used_blocks == sum(count > 0 for count in self.pool.references)

    @invariant()
    def events_tell_it(self) -> None:
        gone: list[int] = []
        for event in self.events:
            if isinstance(event, BlocksStored):
                assert event.request is not None
                assert event.medium is Medium.GPU
                stop = event.first_block + len(event.hashes)
                assert tuple(event.request.block_hashes[event.first_block : stop]) == event.hashes
                self.told.update(event.hashes)
            elif isinstance(event, BlocksRemoved):
                assert self.told.issuperset(event.hashes)
                self.told.difference_update(event.hashes)
                gone += event.hashes
            elif isinstance(event, AllBlocksCleared):
                self.told.clear()
        assert gone == self.evicted
        self.events.clear()
        self.evicted.clear()
        assert self.told == self.kv.content()


Comparison.TestCase.settings = settings(deadline=None, max_examples=80, stateful_step_count=50)
TestAgainstReference = Comparison.TestCase
