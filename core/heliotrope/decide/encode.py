"""Where images are encoded: at the endpoint that prefills, or at encoders whose embeddings it pulls.

The plan of a row (an endpoint, or a prefill/decode pair) has its encoders chosen inside it: nothing else of the plan
depends on them, so the best of the ways to encode is the best of the plan. Of those that keep the promise of TTFT it is
the one of least emissions, of equal ones the fastest; where none keeps it, the fastest. Ways are the endpoint itself,
every encoder alone, and images spread over the least busy encoders as llm-d's sidecar spreads them (in turn). The time
is the critical path of the request's graph (`heliotrope.decide.graph`):

    TTFT = max over encoders (wait + Σ encode) + Σ transfer + TTFT of the rest

where the rest is what the plan takes for a prompt whose embeddings are there. An endpoint encodes the images of a
prompt in one step, an encoder gets each as a request of its own. Emissions are summed over the regions in which joules
are drawn; of a transfer the sender's share and half of the network's fall to the encoder's, the rest to the reader's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from heliotrope.cache.links import Link, Links, Place, link_class
from heliotrope.decide.candidates import BoolColumn, Candidates
from heliotrope.decide.graph import PhaseGraph, PhaseKind, request_graph
from heliotrope.decide.request import RequestProfile
from heliotrope.engine.encoder import DEFAULT_ENCODER, EncoderModel
from heliotrope.units import bits_from_bytes

MOST_SPREAD = 4
"""Images of one request go to no more encoders at once."""
NOWHERE = Place()


@dataclass(frozen=True, slots=True)
class Encoding:
    """What a decision about a request with images knows of encoding them."""

    model: EncoderModel = DEFAULT_ENCODER
    """Of all endpoints and encoders."""
    cached: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By endpoint, the keys of those of the request's images whose embeddings it is believed to remember."""
    encoders: Candidates | None = None
    """The endpoints that may encode for others, each once; None: every endpoint encodes for itself."""
    usable: BoolColumn | None = None
    """Which of them the policy allows; None: all."""
    places: Mapping[str, Place] = field(default_factory=dict)
    """Where candidates and encoders run."""
    links: Links = field(default_factory=Links)
    settled: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """By plan, the encoders that are used whatever is better; empty ones: it encodes in place."""


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """One way to encode the images of a request for one endpoint."""

    encoders: tuple[int, ...]
    """Rows of the encoders; image i goes to the one at i modulo their number. Empty: in place."""
    seconds: float
    """Until the prefill can begin."""
    here_seconds: float
    """That the endpoint itself is busy with it, encoding."""
    here_joules: float
    """Drawn where the prompt is prefilled."""
    there_seconds: tuple[float, ...] = ()
    """Per encoder, as long as it is busy."""
    there_joules: tuple[float, ...] = ()
    """Per encoder, drawn there."""

    @property
    def joules(self) -> float:
        """All of them."""
        return self.here_joules + sum(self.there_joules)


def encode_plans(graph: PhaseGraph, encoding: Encoding, endpoint: str, *, elsewhere: bool = True) -> list[EncodePlan]:
    """Every way to encode for an endpoint, in place first.

    Args:
        graph: of the request.
        encoding: what is known of encoding it.
        endpoint: where the prompt is prefilled.
        elsewhere: whether encoders may be used at all.
    """
    plans = [_in_place(graph, encoding, endpoint)]
    pool = encoding.encoders
    encodes = graph.of_kind(PhaseKind.ENCODE)
    known = all(graph.phases[i].tokens is not None for i in encodes)
    if pool is None or not elsewhere or not encodes or not known:
        # An encoder is not asked to encode what nobody here knows.
        return plans
    links = {row: link for row in _usable(encoding) if (link := _link(encoding, pool.endpoints[row], endpoint))}
    waits = {row: _wait_seconds(graph, encoding, row) for row in links}
    free = sorted((wait, row) for row, wait in waits.items() if wait == wait)  # NaN: unknown load
    rows = [row for _, row in free if pool.endpoints[row] != endpoint]
    most = min(len(rows), len(encodes), MOST_SPREAD)
    ways = [(row,) for row in rows] + [tuple(rows[:count]) for count in range(2, most + 1)]
    return plans + [_elsewhere(graph, encoding, endpoint, way, links, waits) for way in ways]


def settled_plan(graph: PhaseGraph, encoding: Encoding, endpoint: str, way: tuple[int, ...]) -> EncodePlan:
    """The way that somebody else chose; NaN where no link to one of its encoders, or nothing of an image, is known.

    Args:
        graph: of the request.
        encoding: what is known of encoding it.
        endpoint: where the prompt is prefilled.
        way: the encoders, as in `EncodePlan`.
    """
    if not way:
        return _in_place(graph, encoding, endpoint)
    pool = encoding.encoders
    encodes = graph.of_kind(PhaseKind.ENCODE)
    links = {row: link for row in way if pool is not None and (link := _link(encoding, pool.endpoints[row], endpoint))}
    if len(links) < len(set(way)) or not all(graph.phases[i].tokens is not None for i in encodes):
        unknown = (float("nan"),) * len(way)
        return EncodePlan(way, float("nan"), 0.0, float("nan"), unknown, unknown)
    return _elsewhere(graph, encoding, endpoint, way, links, {row: _wait_seconds(graph, encoding, row) for row in way})


def alike(encoding: Encoding, endpoint: str) -> tuple[object, ...]:
    """Equal for endpoints that have the same plans."""
    pool, known = encoding.encoders, encoding.cached.get(endpoint)
    if pool is None:
        return (known,)
    here = encoding.places.get(endpoint, NOWHERE)
    kinds = [link_class(encoding.places.get(name, NOWHERE), here) for name in pool.endpoints]
    return known, endpoint if endpoint in pool.endpoints else None, *kinds


def encode_graph(request: RequestProfile, encoding: Encoding) -> PhaseGraph:
    """The graph of a request, with the embeddings that its images become."""
    return request_graph(request, encoding.model.bytes_per_token)


def best_plan(
    plans: Sequence[EncodePlan], grams: Sequence[float], ttft_seconds: float, ttft_slo_seconds: float | None
) -> int:
    """The position of the plan to take.

    Args:
        plans: of one row.
        grams: of each; where one is NaN, joules are compared.
        ttft_seconds: of the row without encoding; NaN where unknown.
        ttft_slo_seconds: None: nothing is promised.
    """
    clean = list(grams) if all(value == value for value in grams) else [plan.joules for plan in plans]
    slo = float("inf") if ttft_slo_seconds is None else ttft_slo_seconds
    late = [ttft_seconds + plan.seconds > slo for plan in plans]

    def order(i: int) -> tuple[bool, float, float]:
        return (True, plans[i].seconds, clean[i]) if late[i] else (False, clean[i], plans[i].seconds)

    return min(range(len(plans)), key=order)


def _in_place(graph: PhaseGraph, encoding: Encoding, endpoint: str) -> EncodePlan:
    known = encoding.cached.get(endpoint, frozenset())
    tokens = [
        t for i in graph.of_kind(PhaseKind.ENCODE) if (t := _tokens(graph, i)) and graph.phases[i].key not in known
    ]
    model = encoding.model
    seconds = model.seconds(len(tokens), sum(tokens))
    return EncodePlan((), seconds, seconds, model.joules(len(tokens), sum(tokens)))


def _elsewhere(
    graph: PhaseGraph,
    encoding: Encoding,
    endpoint: str,
    way: tuple[int, ...],
    links: Mapping[int, Link],
    waits: Mapping[int, float],
) -> EncodePlan:
    model, pool = encoding.model, encoding.encoders
    assert pool is not None
    here = encoding.cached.get(endpoint, frozenset())
    encodes = graph.of_kind(PhaseKind.ENCODE)
    busy, drawn, here_joules = [0.0] * len(way), [0.0] * len(way), 0.0
    places, seconds = [endpoint] * len(graph.phases), [0.0] * len(graph.phases)
    moved: dict[int, float] = {}
    for turn, phase in enumerate(encodes):
        side = turn % len(way)
        encoder, key, tokens = pool.endpoints[way[side]], graph.phases[phase].key, _tokens(graph, phase)
        places[phase] = encoder
        seconds[phase] = waits[way[side]] if turn < len(way) else 0.0
        if key not in encoding.cached.get(encoder, frozenset()):
            taken = model.seconds(1, tokens)
            seconds[phase] += taken
            busy[side] += taken
            drawn[side] += model.joules(1, tokens)
        if key not in here:
            link, size_bytes = links[way[side]], tokens * model.bytes_per_token
            bits, half = bits_from_bytes(size_bytes), 0.5 * link.network_joules_per_bit
            moved[phase] = link.latency_seconds + size_bytes / link.bytes_per_second
            drawn[side] += bits * (link.sender_joules_per_bit + half)
            here_joules += bits * (link.receiver_joules_per_bit + half)
    finish = graph.finish_seconds(places, seconds, [moved.get(edge.source, 0.0) for edge in graph.edges])
    (prefill,) = graph.of_kind(PhaseKind.PREFILL)
    return EncodePlan(way, finish[prefill], 0.0, here_joules, tuple(busy), tuple(drawn))


def _usable(encoding: Encoding) -> list[int]:
    pool = encoding.encoders
    assert pool is not None
    rows = range(len(pool))
    return list(rows) if encoding.usable is None else np.flatnonzero(encoding.usable).tolist()


def _link(encoding: Encoding, encoder: str, endpoint: str) -> Link | None:
    places = encoding.places
    kind = link_class(places.get(encoder, NOWHERE), places.get(endpoint, NOWHERE))
    return None if kind is None else encoding.links.between.get(kind)


def _wait_seconds(graph: PhaseGraph, encoding: Encoding, row: int) -> float:
    """Until an encoder has done what is there, which is taken to be images such as the request's; NaN if unknown."""
    pool = encoding.encoders
    assert pool is not None
    encodes = graph.of_kind(PhaseKind.ENCODE)
    mean = sum(_tokens(graph, i) for i in encodes) / len(encodes)
    return float(pool.running[row] + pool.waiting[row]) * encoding.model.seconds(1, mean)


def _tokens(graph: PhaseGraph, phase: int) -> float:
    """Of the work that is known."""
    tokens = graph.phases[phase].tokens
    return 0.0 if tokens is None else tokens
