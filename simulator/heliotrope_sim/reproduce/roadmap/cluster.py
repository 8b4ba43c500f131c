"""Simulated engines behind one picker: a discrete-event loop from the first arrival to the last token."""

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heliotrope.cache.costs import Transfer, transfer
from heliotrope.cache.links import Link, link_class
from heliotrope_sim.emulator.kv_config import OffloadConfig, TierConfig
from heliotrope_sim.emulator.multimodal.config import EncoderConfig
from heliotrope_sim.engine import Engine, ExternalKv, ImageInput, KvSource, Request
from heliotrope_sim.engine import Sequence as EngineSequence
from heliotrope_sim.engine.fixed_point import joules, nanoseconds, picojoules, seconds
from heliotrope_sim.reproduce.roadmap.accounts import Accounts, Drawn
from heliotrope_sim.reproduce.roadmap.arms import Arm
from heliotrope_sim.reproduce.roadmap.believed import Endpoint, region_views
from heliotrope_sim.reproduce.roadmap.images import embedding, images_of
from heliotrope_sim.reproduce.roadmap.picker import Chosen, Picker
from heliotrope_sim.reproduce.roadmap.testbed import REGIONS, EndpointSpec, rtt_seconds
from heliotrope_sim.reproduce.roadmap.workloads import Arrival

HOST_MEMORY_BYTES = 64 * 1024**3
HOLD_NS = nanoseconds(120.0)
"""A prefiller keeps blocks at most that long for their reader."""


@dataclass(slots=True, eq=False)
class Served:
    """What became of one request."""

    arrival: Arrival
    arrived_ns: int
    chosen: Chosen | None
    first_token_ns: int | None = None
    """Back at the client; so for the next."""
    finished_ns: int | None = None
    cached_tokens: int = 0
    """Prompt tokens that nobody computed for it: cached, loaded or pulled."""
    joules: float = 0.0
    """Its share of every step it took part in, wherever, and of its transfers."""
    step_picojoules: int = 0
    _open_encodes: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    served: tuple[Served, ...]
    drawn: Drawn
    seconds: float
    """From the first arrival to the last token."""
    busy_seconds: NDArray[np.float64]
    """By endpoint."""


@dataclass(slots=True, eq=False)
class _Flight:
    """A request of an engine and whom its end concerns."""

    endpoint: int
    ended: Callable[[EngineSequence, int], None]
    external: tuple[Transfer, int] | None = None
    """What pulling all its external tokens takes, and whence."""


def run(
    specs: Sequence[EndpointSpec],
    arm: Arm,
    firsts: Sequence[Arrival],
    intensity: NDArray[np.float64],
    hour_seconds: float,
    seed: int,
) -> Outcome:
    """Serve a workload.

    Args:
        specs: the endpoints.
        arm: who chooses and how.
        firsts: first turns in order of time.
        intensity: gCO2e/kWh, shape (hours, regions); the last row holds on.
        hour_seconds: how long each row holds: shorter than an hour where time is compressed.
        seed: of the picker's predictions.
    """
    cluster = _Cluster(specs, arm, intensity, hour_seconds, seed)
    return cluster.run(firsts)


class _Cluster:
    def __init__(
        self,
        specs: Sequence[EndpointSpec],
        arm: Arm,
        intensity: NDArray[np.float64],
        hour_seconds: float,
        seed: int,
    ) -> None:
        tiers = OffloadConfig(cpu=TierConfig(capacity_bytes=HOST_MEMORY_BYTES))
        self._arm = arm
        self._endpoints = [
            Endpoint(
                spec,
                Engine(
                    spec.model, encoder=EncoderConfig().encoder(), tiers=tiers.specs(spec.model) if arm.tiers else ()
                ),
            )
            for spec in specs
        ]
        self._picker = Picker(arm, self._endpoints, seed)
        self._rtt = rtt_seconds()
        self._one_way_ns = [nanoseconds(self._rtt[spec.region.name] / 2.0) for spec in specs]
        self._accounts = Accounts(self._endpoints, intensity, hour_seconds)
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._sequence = 0
        self._stepping: list[Any] = [None] * len(specs)
        self._flights: dict[str, _Flight] = {}
        self._served: list[Served] = []
        self._busy_ns = [0] * len(specs)
        self._open = 0
        self._now_ns = 0

    def run(self, firsts: Sequence[Arrival]) -> Outcome:
        for first in firsts:
            self._later(first.at_ns, lambda now, each=first: self._arrive(each, now))  # type: ignore[misc]
        self._open = len(firsts)
        while self._events and self._open:
            now_ns, _, action = heapq.heappop(self._events)
            self._accounts.advance(now_ns)
            self._now_ns = now_ns
            action(now_ns)
        return Outcome(
            served=tuple(self._served),
            drawn=self._accounts.drawn(self._now_ns),
            seconds=seconds(self._now_ns),
            busy_seconds=np.array([seconds(ns) for ns in self._busy_ns]),
        )

    def _later(self, when_ns: int, action: Callable[[int], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (when_ns, self._sequence, action))

    def _arrive(self, arrival: Arrival, now_ns: int) -> None:
        views = region_views(REGIONS, self._accounts.g_per_kwh.tolist(), self._rtt, seconds(now_ns))
        chosen = self._picker.choose(arrival, views, now_ns)
        served = Served(arrival, now_ns, chosen)
        self._served.append(served)
        if chosen is None or not self._fits(arrival, chosen):
            served.chosen = None
            self._end(served, now_ns)
            return
        if chosen.encoders:
            self._encode(served, chosen)
        else:
            self._after_encoding(served, chosen, {}, now_ns)

    def _fits(self, arrival: Arrival, chosen: Chosen) -> bool:
        """Whether an engine can ever hold it; else it refuses, which a decision knows and a baseline does not."""
        models = [self._endpoints[i].spec.model for i in (chosen.endpoint, chosen.prefill) if i is not None]
        blocks = min(model.kv_capacity_tokens // model.block_size * model.block_size for model in models)
        return arrival.prompt_tokens + arrival.output_tokens <= blocks

    def _encode(self, served: Served, chosen: Chosen) -> None:
        """Every encoder gets its images as a request; what follows waits for the last of them."""
        pictures = served.arrival.pictures
        reader = chosen.endpoint if chosen.prefill is None else chosen.prefill
        sides: dict[int, list[int]] = {}
        for i in range(len(pictures)):
            sides.setdefault(chosen.encoders[i % len(chosen.encoders)], []).append(i)
        served._open_encodes = len(sides)
        loads: dict[str, tuple[int, int]] = {}
        for encoder, which in sides.items():
            link = self._link(encoder, reader)
            for i in which:
                picture = pictures[i]
                moved = embedding(picture.tokens, link)
                loads[picture.key] = nanoseconds(moved.seconds), picojoules(moved.joules)

            def ended(sequence: EngineSequence, now_ns: int) -> None:
                served.step_picojoules += sequence.picojoules
                served._open_encodes -= 1
                if not served._open_encodes:
                    self._after_encoding(served, chosen, loads, now_ns)

            mine = [pictures[i] for i in which]
            tokens = sum(picture.tokens for picture in mine)
            images = images_of(mine, tokens, {})
            request = Request(f"{served.arrival.number}/e{encoder}", tokens, 1, images=images, encode_only=True)
            self._send(encoder, request, _Flight(encoder, ended), served.arrived_ns, tokens)

    def _after_encoding(
        self, served: Served, chosen: Chosen, loads: Mapping[str, tuple[int, int]], now_ns: int
    ) -> None:
        arrival = served.arrival
        hashes = arrival.hashes if self._arm.reuse else ()
        images = images_of(arrival.pictures, arrival.prompt_tokens, loads)
        number = str(arrival.number)
        reader = chosen.endpoint if chosen.prefill is None else chosen.prefill
        for picture in arrival.pictures:
            if picture.key in loads:
                side = chosen.encoders[
                    next(i for i, p in enumerate(arrival.pictures) if p.key == picture.key) % len(chosen.encoders)
                ]
                self._accounts.charge(embedding(picture.tokens, self._link(side, reader)), side, reader, 1.0)
        uncached = max(arrival.prompt_tokens - int(chosen.cached_tokens), 1)
        if chosen.prefill is not None:
            self._prefill_elsewhere(served, chosen, number, hashes, images, now_ns, uncached)
            return
        external, flight = None, _Flight(chosen.endpoint, lambda s, now: self._finish(served, chosen.endpoint, s, now))
        if chosen.source is not None and chosen.fetched_tokens > 0:
            external, flight.external = self._external(chosen.fetched_tokens, chosen.source, chosen.endpoint)
        request = Request(
            number, arrival.prompt_tokens, arrival.output_tokens, hashes, external=external, images=images
        )
        self._send(chosen.endpoint, request, flight, now_ns, uncached)

    def _prefill_elsewhere(
        self,
        served: Served,
        chosen: Chosen,
        number: str,
        hashes: tuple[int, ...],
        images: tuple[ImageInput, ...],
        now_ns: int,
        uncached: int,
    ) -> None:
        arrival, prefill = served.arrival, chosen.prefill
        assert prefill is not None
        decoder = self._endpoints[chosen.endpoint]
        decoder.coming += 1

        def prefilled(sequence: EngineSequence, when_ns: int) -> None:
            decoder.coming -= 1
            served.step_picojoules += sequence.picojoules
            served.joules += joules(sequence.load_picojoules)
            served.cached_tokens = sequence.cached_tokens
            external, moved = self._external(arrival.prompt_tokens, prefill, chosen.endpoint)

            def finished(second: EngineSequence, end_ns: int) -> None:
                self._endpoints[prefill].engine.release(f"{number}/p")
                self._kick(prefill, end_ns)
                cached = served.cached_tokens
                self._finish(served, chosen.endpoint, second, end_ns)
                served.cached_tokens = cached

            flight = _Flight(chosen.endpoint, finished, moved)
            request = Request(number, arrival.prompt_tokens, arrival.output_tokens, hashes, external=external)
            self._submit(chosen.endpoint, request, flight, when_ns)

        flight = _Flight(prefill, prefilled)
        request = Request(f"{number}/p", arrival.prompt_tokens, 1, hashes, hold_ns=HOLD_NS, images=images)
        self._send(prefill, request, flight, now_ns, uncached)

    def _external(self, tokens: int, source: int, reader: int) -> tuple[ExternalKv, tuple[Transfer, int]]:
        kv_bytes = float(self._endpoints[reader].spec.model.kv_bytes_per_token)
        moved = transfer(float(tokens), kv_bytes, self._link(source, reader))
        kv = ExternalKv(tokens, nanoseconds(moved.seconds), picojoules(moved.joules), KvSource.P2P)
        return kv, (moved, source)

    def _link(self, source: int, reader: int) -> Link:
        places = self._picker.places
        kind = link_class(places[source], places[reader])
        assert kind is not None
        return self._picker.links.between[kind]

    def _send(self, e: int, request: Request, flight: _Flight, now_ns: int, tokens: int) -> None:
        """A request leaves for an endpoint; meanwhile it counts as coming."""
        endpoint = self._endpoints[e]
        endpoint.coming += 1
        endpoint.coming_tokens += tokens

        def reach(when_ns: int) -> None:
            endpoint.coming -= 1
            endpoint.coming_tokens -= tokens
            self._submit(e, request, flight, when_ns)

        self._later(now_ns + self._one_way_ns[e], reach)

    def _submit(self, e: int, request: Request, flight: _Flight, now_ns: int) -> None:
        self._flights[request.request_id] = flight
        self._endpoints[e].engine.submit(request, now_ns)
        self._kick(e, now_ns)

    def _kick(self, e: int, now_ns: int) -> None:
        """Begin an engine's next step if it can; else come back when it can."""
        if self._stepping[e] is not None:
            return
        engine = self._endpoints[e].engine
        step = engine.step(now_ns)
        if step is not None:
            self._stepping[e] = step
            self._busy_ns[e] += step.duration_ns
            self._later(step.end_ns, lambda when: self._stepped(e, when))
            return
        following = engine.next_work_ns
        if following is not None and following > now_ns:
            self._later(following, lambda when: self._kick(e, when))

    def _stepped(self, e: int, now_ns: int) -> None:
        step, self._stepping[e] = self._stepping[e], None
        finished = [(self._flights.pop(s.request.request_id), s) for s in step.finished]
        self._kick(e, now_ns)
        for flight, sequence in finished:
            if flight.external is not None and sequence.external_source is KvSource.P2P:
                moved, source = flight.external
                whole = picojoules(moved.joules)
                # What the reader had cached by then was not moved.
                share = min(sequence.load_picojoules / whole, 1.0) if whole else 0.0
                self._accounts.charge(moved, source, flight.endpoint, share)
            flight.ended(sequence, now_ns)

    def _finish(self, served: Served, e: int, sequence: EngineSequence, now_ns: int) -> None:
        assert sequence.first_token_ns is not None
        back_ns = self._one_way_ns[e]
        served.first_token_ns = sequence.first_token_ns + back_ns
        served.finished_ns = now_ns + back_ns
        served.cached_tokens = sequence.cached_tokens
        served.joules += joules(served.step_picojoules + sequence.picojoules + sequence.load_picojoules)
        self._end(served, now_ns)

    def _end(self, served: Served, now_ns: int) -> None:
        following = served.arrival.following
        if following is not None:
            pause_ns = following.at_ns + (self._one_way_ns[served.chosen.endpoint] if served.chosen else 0)
            self._later(now_ns + pause_ns, lambda when: self._arrive(following, when))
        else:
            self._open -= 1
