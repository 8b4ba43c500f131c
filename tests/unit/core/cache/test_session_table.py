"""The table against an ordered dictionary, with keys that collide in their buckets."""

from collections import OrderedDict
from math import nan

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from heliotrope.cache.session_table import ROW_BYTES, Row, SessionTable

CAPACITY = 6
# Few first halves, so that keys share buckets and runs of occupied buckets wrap around the end.
KEYS = st.builds(
    lambda first, second: first.to_bytes(8, "little") + second.to_bytes(8, "little"),
    st.sampled_from([0, 1, 14, 15, 16, 31]),
    st.integers(0, 3),
)
INSTANTS = st.floats(0.0, 1e9)
COUNTS = st.integers(0, 2**32 - 1)
ROWS = st.builds(Row, *[COUNTS] * 6, INSTANTS, INSTANTS, INSTANTS)


class AgainstDictionary(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = SessionTable(CAPACITY)
        self.model: OrderedDict[bytes, Row] = OrderedDict()

    @rule(key=KEYS, row=ROWS)
    def put(self, key: bytes, row: Row) -> None:
        full = key not in self.model and len(self.model) == CAPACITY
        if full:
            self.model.popitem(last=False)
        self.model[key] = row
        self.model.move_to_end(key)
        assert self.table.put(key, row) == full

    @rule(key=KEYS)
    def remove(self, key: bytes) -> None:
        assert self.table.remove(key) == (self.model.pop(key, None) is not None)

    @precondition(lambda self: self.model)
    @rule()
    def remove_oldest(self) -> None:
        found = self.table.oldest()
        assert found == next(iter(self.model.items()))
        self.table.remove(found[0])
        self.model.popitem(last=False)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.table.get(key) == self.model.get(key)

    @invariant()
    def same(self) -> None:
        assert len(self.table) == len(self.model)
        assert self.table.oldest() == next(iter(self.model.items()), None)
        assert all(self.table.get(key) == row for key, row in self.model.items())


TestAgainstDictionary = AgainstDictionary.TestCase
TestAgainstDictionary.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_unknown_numbers_come_back_unknown() -> None:
    table = SessionTable(1)
    table.put(b"k" * 16, Row(turns=1))
    row = table.get(b"k" * 16)
    assert row is not None
    assert row.seen_s != row.seen_s
    assert row.ended_s != row.ended_s
    assert row.mean_gap_seconds != row.mean_gap_seconds


def test_a_row_is_small() -> None:
    assert ROW_BYTES == 64


@given(st.integers(2**32, 2**70))
def test_counts_stop_at_what_a_row_holds(count: int) -> None:
    table = SessionTable(1)
    table.put(
        b"k" * 16, Row(turns=count, history_tokens=count, switches=count, turns_there=count, gaps=count, ended_s=nan)
    )
    row = table.get(b"k" * 16)
    assert row is not None
    assert (row.turns, row.history_tokens, row.switches, row.turns_there, row.gaps) == (2**32 - 1,) * 5


@pytest.mark.parametrize("capacity", [0, -1, 2**31])
def test_a_capacity_that_cannot_be_is_refused(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        SessionTable(capacity)
