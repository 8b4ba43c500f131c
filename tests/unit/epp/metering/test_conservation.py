"""Whatever happens, the parts of every interval add up to what the counters rose by, and requests get those parts."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.epp.metering.played import Played, Sent

from heliotrope.engine import profiles
from heliotrope_epp.datalayer.node_energy import Accelerator, NodeReading
from heliotrope_epp.metering.totals import WithoutEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.outcomes.meter import EncodedAt
from heliotrope_epp.transport.interface import Cause

P, D, E = "ns/p", "ns/d", "ns/e"
ENGINE = profiles.load("llama-3.1-8b-h100")

DRAWN = st.lists(st.integers(0, 400_000), min_size=4, max_size=4)
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.floats(0.05, 3.0), DRAWN),
        st.tuples(st.just("pause"), st.floats(0.05, 40.0), DRAWN),
        st.tuples(st.just("send"), st.sampled_from([(D, None), (P, None), (D, P)]), st.booleans()),
        st.tuples(
            st.just("see"),
            st.sampled_from([(D, None, [E]), (D, P, [E]), (D, None, [E, P]), (P, None, [P])]),
            st.tuples(st.booleans(), st.booleans()),
        ),
        st.tuples(st.just("chunks"), st.integers(0, 5), st.integers(0, 60)),
        st.tuples(st.just("others"), st.sampled_from([P, D, E]), st.integers(0, 500)),
        st.tuples(st.just("end"), st.integers(0, 5), st.sampled_from([None, 1, 37])),
        st.tuples(st.just("leave"), st.integers(0, 5), st.sampled_from([None, 200, 503])),
        st.tuples(st.just("restart"), st.sampled_from([P, D, E]), st.integers(0, 1_000)),
        st.tuples(st.just("lose"), st.sampled_from([P, D, E]), st.booleans()),
        st.tuples(st.just("forget tokens"), st.sampled_from([P, D, E]), st.booleans()),
    ),
    max_size=60,
)


NODE = "10.9.9.9"


class World(Played):
    """A pair of engines and an encoder; without a known model the one that decodes is a tensor-parallel group of two.

    With `shared` their counters are on a node's page, which arrives at other times than theirs, and they share one of
    their accelerators.
    """

    def __init__(self, *, known: bool, hold_s: float, shared: bool) -> None:
        super().__init__(
            "p",
            "d",
            "e",
            engine=ENGINE if known else None,
            hold_s=hold_s,
            node=NODE if shared else None,
            roles={"e": "encode"},
        )
        self.shared = shared
        self.counted[P].accelerators = {"p0": 0}
        self.counted[D].accelerators = {"d0": 0} if known else {"d0": 7, "d1": 5}
        self.counted[E].accelerators = {"e0": 3}
        self.drawn = 0
        self.restarted = False
        self.open: list[Sent] = []
        self.sent = 0

    def draw(self, millijoules: list[int]) -> None:
        energies = iter(millijoules)
        for counted in self.counted.values():
            for key, value in counted.accelerators.items():
                risen = next(energies)
                self.drawn += risen
                counted.accelerators[key] = (value or 0) + risen

    def page(self, key: str) -> None:
        super().page(key)
        if not self.shared:
            return
        metrics = self.states[key].metrics
        assert metrics is not None
        self.states[key].metrics = replace(metrics, accelerators=())
        both = frozenset({("ns", "p"), ("ns", "d")})
        found = {
            uuid: Accelerator(value, both if uuid == "d0" else frozenset({("ns", owner.removeprefix("ns/"))}))
            for owner, counted in self.counted.items()
            for uuid, value in counted.accelerators.items()
        }
        self.nodes[NODE] = NodeReading(self.now_s - 0.03, found)

    def play(self, event: tuple[str, object, object]) -> None:
        kind, one, two = event
        if kind == "tick":
            self.draw(two)  # type: ignore[arg-type]
            self.tick(one)  # type: ignore[arg-type]
        elif kind == "pause":  # no page arrives
            self.draw(two)  # type: ignore[arg-type]
            self.now_s += one  # type: ignore[operator]
            self.meter.tick(self.now_s)
        elif kind == "send":
            endpoint, prefill = one  # type: ignore[misc]
            self.sent += 1
            self.open.append(self.send(str(self.sent), endpoint, prefill_endpoint=prefill, streaming=bool(two)))
        elif kind == "see":
            endpoint, prefill, encoders = one  # type: ignore[misc]
            remembered, streaming = two  # type: ignore[misc]
            encodes = tuple(EncodedAt(at, (200.0,), (90.0,) * remembered, 0.01) for at in encoders)
            self.sent += 1
            sent = self.send(str(self.sent), endpoint, prefill_endpoint=prefill, streaming=streaming, encodes=encodes)
            self.open.append(sent)
            self.encode(encodes, wrapper_tokens=9)
        elif kind == "others":
            counted = self.counted[one]  # type: ignore[index]
            if counted.generated is not None:
                counted.generated += two  # type: ignore[operator]
        elif kind in ("chunks", "end", "leave"):
            if not self.open:
                return
            sent = self.open[one % len(self.open)]  # type: ignore[operator]
            if kind == "chunks":
                self.chunks(sent, two)  # type: ignore[arg-type]
                return
            self.open.remove(sent)
            if kind == "end":
                self.end(sent, tokens=two, prompt_tokens=None if two is None else 90)  # type: ignore[arg-type]
            else:
                self.end(sent, status=two, cause=Cause.DISCONNECTED)  # type: ignore[arg-type]
        elif kind == "restart":
            self.restarted = True
            counted = self.counted[one]  # type: ignore[index]
            counted.accelerators = dict.fromkeys(counted.accelerators, two)  # type: ignore[arg-type]
            counted.prompt_tokens = counted.first_tokens = counted.generated = 0.0
        elif kind == "lose":
            counted = self.counted[one]  # type: ignore[index]
            counted.accelerators = dict.fromkeys(counted.accelerators, None) if two else counted.accelerators
        else:
            self.counted[one].generated = None if two else 1.0  # type: ignore[index]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(events=EVENTS, known=st.booleans(), hold_s=st.sampled_from([0.0, 3.0]), shared=st.booleans())
def test_nothing_is_lost_or_made(
    events: list[tuple[str, object, object]], known: bool, hold_s: float, shared: bool
) -> None:
    world = World(known=known, hold_s=hold_s, shared=shared)
    world.tick(0.2)
    for event in events:
        world.play(event)
    for sent in list(world.open):
        world.end(sent, tokens=5, prompt_tokens=100)
    for _ in range(30):
        world.draw([1_000] * 4)
        world.tick(0.5)
    world.now_s += 200.0
    world.meter.tick(world.now_s)
    world.meter.flush()

    # `metered` has checked that every interval is the sum of its parts.
    assert len(world.energies) == world.sent
    attributed = sum(interval.requests_millijoules for interval in world.intervals)
    shown = sum(energy.millijoules for energy in world.energies.values() if energy is not None)
    assert shown == attributed
    if not world.restarted:
        assert sum(interval.total_millijoules for interval in world.intervals) <= world.drawn
    for energy in world.energies.values():
        if energy is not None:
            assert not energy.engines or sum(s.millijoules for s in energy.engines) == energy.millijoules
            assert 0.0 <= energy.coverage <= 1.0
            assert energy.millijoules >= 0
            assert energy.start_unix_s <= energy.end_unix_s
    without = sum(energy is None for energy in world.energies.values())
    assert sum(world.meter.totals.without.values()) == without
    assert set(world.meter.totals.without) <= {WithoutEnergy.UNCOVERED, WithoutEnergy.NO_COUNTER}


def test_the_record_is_passed_on_unchanged() -> None:
    world = World(known=True, hold_s=0.0, shared=False)
    told: list[FinishedRequest] = []
    world.measured = lambda request, energy: told.append(request)  # type: ignore[method-assign]
    sent = world.send("a", D)
    world.end(sent, tokens=3)
    world.meter.flush()

    assert [request.request_id for request in told] == ["a"]


SHARED = st.lists(
    st.one_of(
        st.tuples(st.just("tick"), st.floats(0.1, 2.0), DRAWN),
        st.tuples(st.just("send"), st.integers(0, 1), st.booleans()),
        st.tuples(st.just("chunks"), st.integers(0, 1), st.integers(1, 60)),
        st.tuples(st.just("end"), st.integers(0, 1), st.integers(1, 60)),
    ),
    max_size=60,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(events=SHARED)
def test_two_pickers_on_the_same_engines_each_add_up(events: list[tuple[str, object, object]]) -> None:
    worlds = [World(known=True, hold_s=1.0, shared=False) for _ in range(2)]
    worlds[1].counted = worlds[0].counted

    def tick(seconds: float, drawn: list[int]) -> None:
        worlds[0].draw(drawn)
        for world in worlds:
            world.tick(seconds)

    tick(0.5, [1_000] * 4)
    tick(0.5, [1_000] * 4)
    for kind, one, two in events:
        if kind == "tick":
            tick(one, two)  # type: ignore[arg-type]
        else:
            worlds[one].play((kind, (D, None), True) if kind == "send" else (kind, 0, two))  # type: ignore[index]
    for world in worlds:
        for sent in list(world.open):
            world.end(sent, tokens=sent.chunks, prompt_tokens=sent.prompt_tokens)
    for _ in range(10):
        tick(0.5, [1_000] * 4)

    totals = []
    for world in worlds:
        claimed = sum(energy.millijoules for energy in world.energies.values() if energy is not None)
        assert claimed == sum(interval.requests_millijoules for interval in world.intervals)
        totals.append(sum(interval.total_millijoules for interval in world.intervals))
    assert totals[0] == totals[1] <= worlds[0].drawn
