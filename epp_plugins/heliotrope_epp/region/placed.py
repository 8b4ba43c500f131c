"""A request on its way through the region tier."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from heliotrope.decide.policy import DecisionPolicy
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.tracing.tracer import RequestTrace
from heliotrope_epp.transport.interface import Headers, Request


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that is not placed yet. Instants are monotonic seconds."""

    request: Request
    llm: LlmRequest
    policy: DecisionPolicy | None
    """As it holds for this request."""
    trace: RequestTrace
    arrived_s: float
    told: Headers = ()
    """For the answer: what was refused."""
    deadline_unix_s: float | None = None
    chain: Sequence[int] = field(default=(), repr=False)
    """Of its prompt's blocks (`heliotrope_epp.region.prefixes`)."""
    prompt_bytes: int = 0
    held_s: float = 0.0
    """In the queue of deadlines, before its window."""
    windowed_s: float = 0.0
    """When its window took it."""


@dataclass(slots=True, eq=False)
class RegionContext:
    """Handed through the transport and back in `done`."""

    region: str
    llm: LlmRequest | None
    """None: the body was not understood."""
    trace: RequestTrace = field(repr=False)
    dispatched_s: float = 0.0
    serial: int = 0
    """Of the dispatch, for its projection."""
