"""Conversations of a trace whose rows say which earlier prompt each one goes on from."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from heliotrope.errors import InvalidInputError
from heliotrope.units import seconds_from_milliseconds

BLOCK_TOKENS = 512
MIN_SHARED_BLOCKS = 2
"""The first block is a system prompt that nearly all requests share."""


class ChainedRequest(NamedTuple):
    """One row of the trace (`data/mooncake-fast25/README.md`)."""

    timestamp_ms: int
    input_tokens: int
    output_tokens: int
    parent: int
    """Row of the latest earlier request that shares the longest prefix, -1: none does."""
    shared_blocks: int
    """Length of that prefix."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation."""

    gap_seconds: float
    """Since the turn before arrived; 0 for the first one."""
    new_tokens: int
    """Of the prompt, beyond all that was said before."""
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of which each one's prompt holds everything before it."""

    start_seconds: float
    turns: tuple[Turn, ...]

    def history_tokens(self, turn: int) -> int:
        """What was said before a turn: prompts and answers."""
        return sum(t.new_tokens + t.output_tokens for t in self.turns[:turn])

    def prompt_tokens(self, turn: int) -> int:
        """The whole prompt of a turn."""
        return self.history_tokens(turn) + self.turns[turn].new_tokens


def load_chains(path: Path) -> tuple[ChainedRequest, ...]:
    """Read the Mooncake trace with its chains.

    Raises:
        InvalidInputError: if a row cannot be read; the message names file and line.
    """
    rows: list[ChainedRequest] = []
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        next(reader, None)
        for number, row in enumerate(reader, start=2):
            try:
                rows.append(ChainedRequest(*map(int, row)))
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"{path.name}:{number}", f"not a row of the trace: {error}") from error
            if not -1 <= rows[-1].parent < len(rows) - 1:
                raise InvalidInputError(f"{path.name}:{number}", f"parent {rows[-1].parent} is no earlier row")
    return tuple(rows)


def predecessors(rows: Sequence[ChainedRequest]) -> list[int]:
    """Of each request, the one that it continues, or -1.

    A request continues its parent if it shares all of the parent's blocks but perhaps the last, which the answer fills
    up, and is no shorter. Where two continue the same one, the first does and the second opens a conversation.
    """
    before: list[int] = []
    continued: set[int] = set()
    for row in rows:
        parent = row.parent
        blocks = -(-rows[parent].input_tokens // BLOCK_TOKENS) if parent >= 0 else 0
        goes_on = (
            parent >= 0
            and parent not in continued
            and row.shared_blocks >= max(MIN_SHARED_BLOCKS, blocks - 1)
            and rows[parent].input_tokens <= row.input_tokens
        )
        if goes_on:
            continued.add(parent)
        before.append(parent if goes_on else -1)
    return before


def conversations(rows: Sequence[ChainedRequest]) -> tuple[Conversation, ...]:
    """All conversations of a trace in the order in which they begin, those of one turn among them."""
    chains: list[list[int]] = []
    chain_of: dict[int, list[int]] = {}
    for index, before in enumerate(predecessors(rows)):
        if before < 0:
            chain_of[index] = [index]
            chains.append(chain_of[index])
        else:
            chain_of[index] = chain_of.pop(before)
            chain_of[index].append(index)
    return tuple(_conversation([rows[i] for i in chain]) for chain in chains)


def _conversation(rows: Sequence[ChainedRequest]) -> Conversation:
    turns: list[Turn] = []
    said = 0
    for i, row in enumerate(rows):
        gap_ms = float(row.timestamp_ms - rows[i - 1].timestamp_ms) if i else 0.0
        # Some prompts hold less than the prompt and the answer before them.
        turn = Turn(seconds_from_milliseconds(gap_ms), max(row.input_tokens - said, 1), max(row.output_tokens, 1))
        said += turn.new_tokens + turn.output_tokens
        turns.append(turn)
    return Conversation(seconds_from_milliseconds(float(rows[0].timestamp_ms)), tuple(turns))
