"""Sessions against a model that keeps everything in plain dictionaries and lists."""

from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from math import nan

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from heliotrope.cache.sessions import Sessions, SessionView

FORGET_S = 100.0
CAPACITY = 3
KEYS = st.sampled_from([bytes([i]) * 16 for i in range(5)])
ENDPOINTS = st.sampled_from(["a", "b", "c", "d", "e", "f"])


@dataclass
class Known:
    endpoint: tuple[str, int]
    turns: int = 0
    places: list[tuple[str, int]] = field(default_factory=list)
    history: int = 0
    gaps: list[float] = field(default_factory=list)
    seen_s: float = nan
    ended_s: float = nan


class AgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.sessions = Sessions(CAPACITY)
        self.model: dict[bytes, Known] = {}  # in the order of the last event
        self.born: dict[str, int] = {}
        self.gone = 0

    def alive(self, known: Known | None) -> bool:
        return known is not None and self.now_s - known.seen_s <= FORGET_S

    def is_here(self, endpoint: tuple[str, int]) -> bool:
        return self.born.get(endpoint[0]) == endpoint[1]

    @rule(seconds=st.sampled_from([0.5, 10.0, 51.0, 101.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(key=KEYS, endpoint=ENDPOINTS, known_as=st.none() | KEYS, begins=st.booleans())
    def route(self, key: bytes, endpoint: str, known_as: bytes | None, begins: bool) -> None:
        self.sessions.routed(key, endpoint, self.now_s, FORGET_S, known_as, begins=begins)
        known = self.model.pop(key, None)
        if begins:
            known = None
        elif known is None and known_as is not None:
            known = self.model.pop(known_as, None)
        self.born.setdefault(endpoint, len(self.born) + self.gone * 1000)
        here = (endpoint, self.born[endpoint])
        if known is None or not self.alive(known):
            known = Known(here)
        if known.ended_s == known.ended_s:
            known.gaps.append(self.now_s - known.ended_s)
        known.endpoint, known.seen_s, known.ended_s = here, self.now_s, nan
        known.turns += 1
        known.places.append(here)
        if len(self.model) == CAPACITY:
            del self.model[next(iter(self.model))]
        self.model[key] = known
        for _ in range(2):
            oldest = next(iter(self.model))
            if self.alive(self.model[oldest]):
                break
            del self.model[oldest]

    @rule(key=KEYS, tokens=st.none() | st.integers(1, 10_000))
    def end(self, key: bytes, tokens: int | None) -> None:
        self.sessions.ended(key, self.now_s, tokens)
        known = self.model.pop(key, None)
        if known is None:
            return
        known.seen_s = known.ended_s = self.now_s
        if tokens is not None:
            known.history = tokens
        self.model[key] = known

    @rule(endpoint=ENDPOINTS)
    def remove(self, endpoint: str) -> None:
        self.sessions.removed(endpoint)
        if endpoint in self.born:
            del self.born[endpoint]
            self.gone += 1

    @invariant()
    def same(self) -> None:
        assert len(self.sessions) == len(self.model)
        for key in [bytes([i]) * 16 for i in range(5)]:
            known = self.model.get(key)
            found = self.sessions.find(key, self.now_s, FORGET_S)
            if known is None or not self.alive(known):
                assert found is None
            else:
                assert found is not None
                assert repr(found) == repr(self.view(known))  # NaN is equal to NaN in writing

    def view(self, known: Known) -> SessionView:
        mean = nan
        for i, gap in enumerate(known.gaps):
            mean = gap if i == 0 else mean + (gap - mean) / (i + 1)
        return SessionView(
            turns=known.turns,
            previous_endpoint=known.endpoint[0] if self.is_here(known.endpoint) else None,
            history_tokens=known.history,
            idle_seconds=self.now_s - known.ended_s,
            mean_gap_seconds=mean,
            switches=sum(a != b for a, b in pairwise(known.places)),
            turns_at_previous=len(list(takewhile(lambda place: place == known.endpoint, reversed(known.places)))),
        )


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)

KEY = b"k" * 16


def test_a_session_carries_its_history_to_a_new_key() -> None:
    sessions = Sessions(10)
    sessions.routed(b"1" * 16, "a", 0.0, FORGET_S)
    sessions.ended(b"1" * 16, 2.0, 300)
    sessions.routed(b"2" * 16, "b", 5.0, FORGET_S, known_as=b"1" * 16)
    assert sessions.find(b"1" * 16, 5.0, FORGET_S) is None
    found = sessions.find(b"2" * 16, 6.0, FORGET_S)
    assert found is not None
    assert (found.turns, found.previous_endpoint, found.mean_gap_seconds) == (2, "b", 3.0)
    assert found.history_tokens == 300


def test_an_endpoint_that_comes_back_under_its_name_is_another_one() -> None:
    sessions = Sessions(10)
    sessions.routed(KEY, "a", 0.0, FORGET_S)
    sessions.ended(KEY, 1.0, 300)
    sessions.removed("a")
    sessions.routed(b"o" * 16, "a", 2.0, FORGET_S)
    found = sessions.find(KEY, 2.0, FORGET_S)
    assert found is not None
    assert found.previous_endpoint is None
    assert sessions.counts().endpoints == 1


def test_silence_ends_sessions_in_passing() -> None:
    sessions = Sessions(10)
    for i in range(5):
        sessions.routed(bytes([i]) * 16, "a", 0.0, FORGET_S)
    for i in range(3):
        sessions.routed(bytes([9]) * 16, "a", 200.0 + i, FORGET_S)
    assert len(sessions) == 1
    assert sessions.counts().evicted_total == {"capacity": 0, "silence": 5}
