"""When a value that is undone is somebody else's."""

from hypothesis import given
from hypothesis import strategies as st

from heliotrope_operator.actuation.reversals import LIMIT, QUIET_S, WITHIN_S, Reversals


class Field:
    """A field that is written whenever that is allowed, and seen ours or not."""

    def __init__(self) -> None:
        self.reversals = Reversals()
        self.now_s = 0.0
        self.writes = 0

    def see(self, *, ours: bool, after_s: float = 1.0, since: int = 1) -> float:
        self.now_s += after_s
        blocked_s = self.reversals.blocked_s("field", since=since, in_force=ours, now_s=self.now_s)
        if not ours and blocked_s == 0:
            self.writes += 1
            self.reversals.written("field")
        return blocked_s


def test_a_value_that_was_never_ours_is_no_reversal() -> None:
    field = Field()
    assert [field.see(ours=False) for _ in range(1)] == [0]
    assert field.reversals.count("field") == 0


def test_at_the_limit_nothing_is_written_for_a_while_and_then_once() -> None:
    field = Field()
    field.see(ours=False)
    for _ in range(LIMIT - 1):
        assert field.see(ours=False) == 0
    assert field.see(ours=False) == QUIET_S
    assert field.writes == LIMIT
    assert field.see(ours=False, after_s=QUIET_S / 2) == QUIET_S / 2
    assert field.see(ours=False, after_s=QUIET_S / 2) == 0
    assert field.writes == LIMIT + 1
    assert field.see(ours=False) == QUIET_S, "undone once more, it is left alone at once"


def test_reversals_far_apart_do_not_add_up() -> None:
    field = Field()
    field.see(ours=False)
    for _ in range(10 * LIMIT):
        assert field.see(ours=False, after_s=WITHIN_S + 1) == 0


def test_a_value_that_holds_is_forgiven() -> None:
    field = Field()
    field.see(ours=False)
    for _ in range(LIMIT - 1):
        field.see(ours=False)
    field.see(ours=True)
    field.see(ours=True, after_s=WITHIN_S + 1)
    assert field.see(ours=False) == 0
    assert field.reversals.count("field") == 1


def test_what_wants_it_anew_counts_anew_and_what_is_given_back_is_forgotten() -> None:
    field = Field()
    for _ in range(LIMIT + 1):
        field.see(ours=False)
    assert field.see(ours=False) > 0
    assert field.see(ours=False, since=2) == 0
    field.reversals.forget("field")
    assert field.reversals.count("field") == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0.0, 2_000.0)), max_size=80))
def test_never_more_writes_within_a_time_than_the_limit_and_one(seen: list[tuple[bool, float]]) -> None:
    """Whatever somebody does, in any WITHIN_S there are few writes: at most LIMIT, and the one that began it."""
    field, times = Field(), []
    for ours, after_s in seen:
        before = field.writes
        field.see(ours=ours and before > 0, after_s=after_s)
        times += [field.now_s] * (field.writes - before)
    for start in times:
        assert sum(start <= time < start + min(WITHIN_S, QUIET_S) for time in times) <= LIMIT + 1
