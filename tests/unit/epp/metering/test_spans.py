"""Spans of time against a clock that is looked at in small steps."""

from hypothesis import given
from hypothesis import strategies as st

from heliotrope_epp.metering.spans import Spans

TIMES = st.integers(0, 40)
PAIRS = st.lists(st.tuples(TIMES, TIMES), max_size=12)


def in_any(ended: list[tuple[int, int]], since: int | None, at: int) -> bool:
    """Whether the unit of time that begins then lies in a span."""
    return any(a <= at < b for a, b in ended) or (since is not None and at >= since)


@given(PAIRS, st.none() | TIMES, TIMES, TIMES)
def test_seconds_are_those_of_the_union(ended: list[tuple[int, int]], since: int | None, a: int, b: int) -> None:
    spans = Spans()
    for start, end in ended:
        spans.add(start, end)
    if since is not None:
        spans.begin("one", since)
        spans.begin("another", since + 1)
    start, end = min(a, b), max(a, b)

    expected = sum(in_any(ended, since, at) for at in range(start, end))
    assert spans.seconds(start, end) == expected
    assert spans.seconds(start, end, since_s=30.0) == sum(
        in_any(ended, since, at) or at >= 30 for at in range(start, end)
    )


@given(PAIRS, st.none() | TIMES, st.integers(0, 20), TIMES, TIMES)
def test_a_start_leaves_as_many_free_seconds(
    ended: list[tuple[int, int]], since: int | None, seconds: int, a: int, b: int
) -> None:
    spans = Spans()
    for start, end in ended:
        spans.add(start, end)
    if since is not None:
        spans.begin("one", since)
    earliest, end = min(a, b), max(a, b)

    start = spans.start_of(seconds, end, earliest)

    free = [at for at in range(earliest, end) if not in_any(ended, since, at)]
    assert earliest <= start <= end
    assert sum(at >= start for at in free) == min(seconds, len(free))


@given(PAIRS, TIMES)
def test_what_is_forgotten_was_over(ended: list[tuple[int, int]], until: int) -> None:
    spans, whole = Spans(), Spans()
    for start, end in ended:
        spans.add(start, end)
        whole.add(start, end)
    spans.forget(until)

    assert spans.seconds(until, 100) == whole.seconds(until, 100)
    spans.forget(40)
    assert len(spans) == 0


def test_a_span_ends_once() -> None:
    spans = Spans()
    spans.begin("one", 1.0)
    spans.begin("one", 2.0)
    spans.end("one", 5.0)
    spans.end("one", 9.0)
    assert spans.seconds(0.0, 10.0) == 3.0
