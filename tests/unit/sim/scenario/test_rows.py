import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliotrope.errors import InvalidInputError
from heliotrope_sim.scenario.rows import read_rows

HEAD = "arrival_seconds,prompt_tokens,output_tokens,session,class,region\n"


def refused(text: str, name: str = "t.csv", longest_gap_s: float | None = None) -> str:
    with pytest.raises(InvalidInputError) as error:
        read_rows(text.encode(), name, most=None, longest_gap_s=longest_gap_s)
    return str(error.value)


def test_csv_and_json_lines_say_the_same() -> None:
    table = HEAD + "0,10,2,,,\n1.5,20,3,s,chat,north\n"
    lines = '{"arrival_seconds": 0, "prompt_tokens": 10, "output_tokens": 2}\n\n' + json.dumps(
        {
            "arrival_seconds": 1.5,
            "prompt_tokens": 20,
            "output_tokens": 3,
            "session": "s",
            "class": "chat",
            "region": "north",
        }
    )
    rows = read_rows(table.encode(), "t.csv", most=None, longest_gap_s=None)
    same = read_rows(lines.encode(), "t.jsonl", most=None, longest_gap_s=None)
    assert [(r.arrival_s, r.prompt_tokens, r.session, r.request_class, r.region) for r in rows] == [
        (0.0, 10, None, None, None),
        (1.5, 20, "s", "chat", "north"),
    ]
    assert [r.line for r in rows] == [2, 3]
    assert [r.line for r in same] == [1, 3]
    assert [(r.arrival_s, r.session) for r in same] == [(r.arrival_s, r.session) for r in rows]


def test_timestamps_are_times() -> None:
    text = "timestamp,prompt_tokens,output_tokens\n2025-03-10T08:00:00Z,1,1\n2025-03-10T10:00:01+02:00,1,1\n"
    rows = read_rows(text.encode(), "t.csv", most=None, longest_gap_s=None)
    assert rows[1].arrival_s - rows[0].arrival_s == 1.0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "t.csv: holds no requests"),
        (HEAD, "t.csv: holds no requests"),
        ("arrival_seconds,tokens\n", "t.csv:1: unknown columns tokens"),
        (HEAD + "0,1,1,,,\n5,1,1,,,\n4,1,1,,,\n", "t.csv:4: arrives 1 s before the row above; sort"),
        (HEAD + "-1,1,1,,,\n", "t.csv:2: arrival_seconds -1.0 is negative"),
        (HEAD + "nan,1,1,,,\n", "t.csv:2: arrival_seconds 'nan' is not finite"),
        (HEAD + "soon,1,1,,,\n", "t.csv:2: arrival_seconds 'soon' is not a number"),
        (HEAD + ",1,1,,,\n", "t.csv:2: needs exactly one of arrival_seconds and timestamp"),
        (HEAD + "0,,1,,,\n", "t.csv:2: prompt_tokens is missing"),
        (HEAD + "0,1,0,,,\n", "t.csv:2: output_tokens 0 must be a whole number from 1"),
        (HEAD + "0,1.5,1,,,\n", "t.csv:2: prompt_tokens 1.5 must be a whole number"),
        (HEAD + "0,1,1\n", "t.csv:2: must have 6 fields"),
        (HEAD + "0,1,1,,,,7\n", "t.csv:2: must have 6 fields"),
        ("timestamp,prompt_tokens,output_tokens\nnoon,1,1\n", "t.csv:2: time: 'noon' is not an RFC 3339 time"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(text: str, says: str) -> None:
    assert refused(text).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "t.jsonl:1: is not JSON"),
        ("[1]", "t.jsonl:1: must be an object"),
        ('{"prompt": 1}', "t.jsonl:1: unknown keys prompt"),
        (
            '{"arrival_seconds": 0, "prompt_tokens": 1, "output_tokens": 1, "block_ids": [-1]}',
            "t.jsonl:1: block_ids must",
        ),
        (
            '{"arrival_seconds": NaN, "prompt_tokens": 1, "output_tokens": 1}',
            "t.jsonl:1: arrival_seconds nan is not finite",
        ),
    ],
)
def test_bad_lines_are_refused_with_file_and_line(text: str, says: str) -> None:
    assert refused(text, "t.jsonl").startswith(says)


def test_a_hole_is_refused_where_the_scenario_says_so() -> None:
    text = HEAD + "0,1,1,,,\n10,1,1,,,\n100,1,1,,,\n"
    assert (
        refused(text, longest_gap_s=60.0)
        == "t.csv:4: arrives 90 s after the row above: a hole longer than longest_gap_seconds 60"
    )
    assert len(read_rows(text.encode(), "t.csv", most=None, longest_gap_s=90.0)) == 3


@example(b'"')
@given(st.binary(max_size=200))
def test_any_bytes_give_rows_or_a_named_error(data: bytes) -> None:
    for name in ("t.csv", "t.jsonl"):
        path = None
        try:
            assert read_rows(data, name, most=None, longest_gap_s=None)
        except InvalidInputError as error:
            path = error.path
        assert path is None or path.startswith(name)
