"""Reading contexts that anybody may have written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import TraceState

from heliotrope_epp.tracing.w3c import Parent, format_traceparent, parse_traceparent, tracestate_members

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_specifications_example() -> None:
    parent = parse_traceparent(f"00-{TRACE}-{SPAN}-01")
    assert parent == Parent(int(TRACE, 16), int(SPAN, 16), 1)
    assert parent is not None
    assert parent.sampled
    assert format_traceparent(parent.trace_id, parent.span_id, parent.flags) == f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    ("text", "sampled"),
    [
        (f"00-{TRACE}-{SPAN}-00", False),
        (f"00-{TRACE}-{SPAN}-03", True),
        (f"00-{TRACE}-{SPAN}-02", False),
        (f"cc-{TRACE}-{SPAN}-01", True),
        (f"cc-{TRACE}-{SPAN}-01-what-the-future-brings", True),
    ],
)
def test_the_sampled_bit_alone_counts_and_later_versions_are_understood(text: str, *, sampled: bool) -> None:
    parent = parse_traceparent(text)
    assert parent is not None
    assert parent.sampled is sampled


@pytest.mark.parametrize(
    "text",
    [
        "",
        "garbage",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"00-{TRACE}-{SPAN}-0",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01,00-{TRACE}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01\n",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 100_000,
        "٠٠-" + TRACE + "-" + SPAN + "-01",
    ],
)
def test_what_is_malformed_is_no_parent(text: str) -> None:
    assert parse_traceparent(text) is None


@given(st.text(max_size=300))
def test_any_text_is_a_parent_or_none(text: str) -> None:
    parent = parse_traceparent(text)
    assert parent is None or (parent.trace_id and parent.span_id)
    members = tracestate_members(text)
    assert members is None or len(members) <= 32


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", [("rojo", "00f067aa0ba902b7"), ("congo", "t61rcWkgMzE")]),
        ("a=1 , \t,b=2", [("a", "1"), ("b", "2")]),
        ("fw529a3039@dt=FfffffeA", [("fw529a3039@dt", "FfffffeA")]),
        ("a=x y z", [("a", "x y z")]),
    ],
)
def test_members_of_a_tracestate(text: str, members: list[tuple[str, str]]) -> None:
    assert tracestate_members(text) == members
    assert dict(TraceState(members)) == dict(members)


@pytest.mark.parametrize(
    "text",
    [
        "novalue",
        "A=1",
        "a=1,a=2",
        "a=ü",
        "a=1=2",
        "a=",
        ",".join(f"k{i}=1" for i in range(33)),
        "a=" + "1" * 257,
        "a=1," * 200,
        "a=" + "x" * 100_000,
    ],
)
def test_what_is_malformed_or_too_long_is_dropped(text: str) -> None:
    assert tracestate_members(text) is None
