"""A request as an engine sees it: how many tokens, which blocks; never text."""

from collections.abc import Sequence as Ordered
from dataclasses import dataclass, field
from enum import IntEnum

from heliotrope_sim.engine.fixed_point import joules


@dataclass(frozen=True, slots=True)
class Request:
    """What is submitted to an engine."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    """How many tokens it generates before it ends; decided by whoever submits it."""
    block_hashes: Ordered[int] = ()
    """Chained hashes of its leading full KV blocks, prompt first and, where known, output; equal hashes share KV.

    Blocks beyond the last hash are private. Empty: nothing of it is ever shared.
    """


class Status(IntEnum):
    """Where a sequence is in its life."""

    WAITING = 0
    PREFILLING = 1
    DECODING = 2
    FINISHED = 3
    ABORTED = 4


@dataclass(eq=False, slots=True)
class Sequence:
    """The state of one request in an engine. The engine writes it; others read it."""

    request: Request
    queued_ns: int
    status: Status = Status.WAITING
    scheduled_ns: int | None = None
    """When it was first admitted to the batch."""
    first_token_ns: int | None = None
    finished_ns: int | None = None
    cached_tokens: int = 0
    """Prompt tokens found in the prefix cache when it was first admitted."""
    generated: int = 0
    preemptions: int = 0
    picojoules: int = 0
    """Its true share of the energy of the steps it took part in; fixed costs of a step are shared evenly."""

    computed: int = 0
    """Tokens whose KV is in memory."""
    prefill_target: int = 0
    """Tokens whose KV must be in memory before the next token can be sampled."""
    shared_blocks: list[int] = field(default_factory=list)
    """Hashes of the blocks that it holds in the prefix cache."""
    private_blocks: int = 0
    hashed_blocks: int = 0
    """Leading full blocks that were offered to the prefix cache already."""

    @property
    def joules(self) -> float:
        """Its true energy so far."""
        return joules(self.picojoules)

    @property
    def block_count(self) -> int:
        """KV blocks it holds."""
        return len(self.shared_blocks) + self.private_blocks
