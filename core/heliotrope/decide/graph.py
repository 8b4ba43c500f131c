"""A request as a graph of phases (paper sustainable-inference-control-plane §6.3, RQ6).

    encode (one per image) ─ embeddings ─▶ prefill ─ KV ─▶ decode

A plan gives every phase an endpoint. One endpoint for all of them, and a prefill/decode pair, are the plans of a text
request, whose graph has no phase before the prefill. A kind of phase that comes later (a draft, a reranker, speech) is
one more node: nothing here depends on which kinds there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from heliotrope.decide.request import RequestProfile
from heliotrope.errors import InvalidInputError


class PhaseKind(StrEnum):
    """What is done."""

    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class Phase:
    """A node."""

    kind: PhaseKind
    tokens: float | None
    """Of its work: visual, prompt, or output tokens; None: unknown."""
    key: str = ""
    """What a cache of its results knows it by; empty: its results are not cached as a whole."""


@dataclass(frozen=True, slots=True)
class Edge:
    """What one phase hands to another, by their positions."""

    source: int
    target: int
    size_bytes: float | None
    """None: unknown here, as with KV, whose size depends on who computes it."""


@dataclass(frozen=True, slots=True)
class PhaseGraph:
    """Phases in an order in which they can be done, and what they hand on."""

    phases: tuple[Phase, ...]
    edges: tuple[Edge, ...]

    def __post_init__(self) -> None:
        """Refuse a graph with a circle, or with an edge from or to nowhere."""
        for i, edge in enumerate(self.edges):
            if not 0 <= edge.source < edge.target < len(self.phases):
                raise InvalidInputError(f"edges[{i}]", "must lead from a phase to a later one")

    def of_kind(self, kind: PhaseKind) -> tuple[int, ...]:
        """Positions of the phases of a kind."""
        return tuple(i for i, phase in enumerate(self.phases) if phase.kind is kind)

    def finish_seconds(
        self, places: Sequence[str], seconds: Sequence[float], transfer_seconds: Sequence[float]
    ) -> tuple[float, ...]:
        """When each phase ends, from the request's arrival on.

        A phase begins when everything that it needs is there. Phases at different endpoints run side by side; those at
        one endpoint run one after another, in their order. What a phase is handed comes over one link, so transfers to
        it follow each other, the first of them once the last of its sources is done.

        Args:
            places: the endpoint of each phase.
            seconds: that each phase takes; NaN where unknown, and so are all that wait for it.
            transfer_seconds: per edge; 0 within an endpoint.
        """
        finish: list[float] = []
        free: dict[str, float] = {}
        for i, (place, taken) in enumerate(zip(places, seconds, strict=True)):
            incoming = [(edge, transfer_seconds[at]) for at, edge in enumerate(self.edges) if edge.target == i]
            ready = _latest([finish[edge.source] for edge, _ in incoming]) + sum(moved for _, moved in incoming)
            finish.append(_latest([ready, free.get(place, 0.0)]) + taken)
            free[place] = finish[i]
        return tuple(finish)


def request_graph(request: RequestProfile, embedding_bytes_per_token: float) -> PhaseGraph:
    """The graph of a request: what must be encoded, the prefill, the decode; last phases come last."""
    media = request.media
    encodes = [Phase(PhaseKind.ENCODE, _number(item.tokens), item.key) for item in media]
    prefill = len(encodes)
    embeddings = [
        Edge(i, prefill, None if phase.tokens is None else phase.tokens * embedding_bytes_per_token)
        for i, phase in enumerate(encodes)
    ]
    return PhaseGraph(
        (
            *encodes,
            Phase(PhaseKind.PREFILL, float(request.prompt_tokens)),
            Phase(PhaseKind.DECODE, request.expected_output_tokens),
        ),
        (*embeddings, Edge(prefill, prefill + 1, None)),
    )


def _number(tokens: int | None) -> float | None:
    return None if tokens is None else float(tokens)


def _latest(times: Sequence[float]) -> float:
    """0 for none; NaN where one of them is unknown."""
    latest = 0.0
    for time in times:
        if time != time:
            return time
        latest = max(latest, time)
    return latest
