from pathlib import Path

import pytest

from heliotrope.errors import InvalidInputError
from heliotrope_sim.data import data_file
from heliotrope_sim.workload.conversations import (
    ChainedRequest,
    Conversation,
    Turn,
    conversations,
    load_chains,
    predecessors,
)

HEAD = "timestamp_ms,input_length,output_length,parent,shared_blocks\n"
ROWS = (
    ChainedRequest(0, 1_100, 50, -1, 0),
    ChainedRequest(500, 5_000, 10, 0, 1),  # shares the system prompt alone
    ChainedRequest(9_000, 1_300, 40, 0, 2),  # goes on from the first
    ChainedRequest(9_500, 1_400, 30, 0, 2),  # so would this, but the first has gone on already
    ChainedRequest(12_000, 1_310, 20, 2, 2),  # holds less than what was said before
)


def test_a_prompt_that_holds_the_one_before_goes_on_from_it() -> None:
    assert predecessors(ROWS) == [-1, -1, 0, -1, 2]
    first, second, third = conversations(ROWS)
    assert first == Conversation(0.0, (Turn(0.0, 1_100, 50), Turn(9.0, 150, 40), Turn(3.0, 1, 20)))
    assert [first.prompt_tokens(i) for i in range(3)] == [1_100, 1_300, 1_341]
    assert first.history_tokens(2) == 1_340
    assert (second.start_seconds, third.start_seconds) == (0.5, 9.5)


def test_the_trace_holds_each_request_once() -> None:
    rows = load_chains(data_file("mooncake-fast25/conversation_chains.csv"))
    found = conversations(rows)
    assert sum(len(c.turns) for c in found) == len(rows) == 12_031
    assert all(c.turns[0].gap_seconds == 0.0 for c in found)
    assert all(t.gap_seconds >= 0.0 and min(t.new_tokens, t.output_tokens) >= 1 for c in found for t in c.turns)
    assert [c.start_seconds for c in found] == sorted(c.start_seconds for c in found)


@pytest.mark.parametrize("row", ["1,2,3,4\n", "0,a,1,-1,0\n", "1,2,3,1,0\n", "1,2,3,-2,0\n"])
def test_a_bad_row_is_named(tmp_path: Path, row: str) -> None:
    path = tmp_path / "chains.csv"
    path.write_text(HEAD + "0,6758,500,-1,0\n" + row)
    with pytest.raises(InvalidInputError, match=r"chains\.csv:3"):
        load_chains(path)
