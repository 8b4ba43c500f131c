"""The picker's own requests on one endpoint, as the endpoint's load tells of them."""

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.decide.load import DUTY_TIME_CONSTANT_SECONDS, LONGEST_DUTY
from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.datalayer.inflight import Dispatch, InFlight
from heliotrope_epp.datalayer.state import EndpointState, Load

ENDPOINT = Endpoint("a", "llm", "10.0.0.1", 8000)
STALE_AFTER_S = 1e9


def page(at_s: float, running: float = 0.0, waiting: float = 0.0) -> EngineMetrics:
    return EngineMetrics(at_s, running=running, waiting=waiting, kv_usage=0.5, block_size=16, num_blocks=100)


def state() -> EndpointState:
    fresh = EndpointState(ENDPOINT)
    fresh.scraped(page(-1.0))
    return fresh


def load(of: EndpointState, now_s: float) -> Load:
    return of.load(now_s, STALE_AFTER_S)


def dispatch(at_s: float, *, tokens: float = 100.0, uncached: float = 100.0, due_s: float | None = None) -> Dispatch:
    return Dispatch(at_s, tokens, uncached, at_s + 1.0 if due_s is None else due_s)


def test_a_request_waits_until_its_first_token_is_due() -> None:
    there = state()
    there.inflight.add(dispatch(0.0, uncached=30.0, due_s=5.0), 0.0)
    there.inflight.add(dispatch(0.0, uncached=12.0, due_s=2.0), 0.0)

    for now_s, waiting, tokens in ((1.0, 2.0, 42.0), (2.0, 1.0, 30.0), (5.0, 0.0, 0.0)):
        found = load(there, now_s)
        assert (found.waiting, found.waiting_tokens, found.running) == (waiting, tokens, 2.0 - waiting)


def test_a_streamed_request_waits_until_a_piece_of_its_answer_is_seen() -> None:
    there = state()
    late, other = (Dispatch(0.0, 100.0, 30.0, first_token_due_s=1.0, streams=True) for _ in range(2))
    there.inflight.add(late, 0.0)
    there.inflight.add(other, 0.0)
    found = load(there, 5.0)
    assert (found.waiting, found.waiting_tokens, found.oldest_waiting_seconds) == (2.0, 60.0, 5.0)
    assert math.isnan(found.seconds_since_piece)

    there.inflight.piece(late, 5.5)
    there.inflight.piece(late, 6.0)

    found = load(there, 6.5)
    assert (found.waiting, found.waiting_tokens, found.seconds_since_piece) == (1.0, 30.0, 0.5)
    there.inflight.remove(other)
    found = load(there, 7.0)
    assert (found.waiting, found.waiting_tokens, found.oldest_waiting_seconds) == (0.0, 0.0, 0.0)


def test_an_ended_request_counts_nowhere_and_only_ends_once() -> None:
    there = state()
    first, second = dispatch(0.0), dispatch(1.0)
    there.inflight.add(first, 0.0)
    there.inflight.add(second, 0.0)

    there.inflight.remove(first)
    there.inflight.remove(first)

    found = load(there, 1.5)
    assert len(there.inflight) == 1
    assert (found.requests, found.waiting_tokens) == (1.0, 100.0)
    assert found.kv_tokens == 800.0 + 100.0


def test_prefill_duty_decays_and_stays_below_one() -> None:
    there = state()
    there.inflight.add(dispatch(0.0), 1.0)

    assert load(there, 0.0).prefill_duty == pytest.approx(0.2)
    assert 0.0 < load(there, 5.0).prefill_duty < 0.2
    for _ in range(100):
        there.inflight.add(dispatch(0.0), 1.0)
    assert load(there, 0.0).prefill_duty == LONGEST_DUTY


def test_memory_is_that_of_open_requests_even_if_nobody_asks() -> None:
    inflight = InFlight()
    for number in range(10_000):
        each = dispatch(float(number), due_s=1e9)
        inflight.add(each, 0.0)
        inflight.remove(each)

    assert len(inflight) == 0
    sizes = [len(value) for name, value in vars(inflight).items() if name != "_facts" and hasattr(value, "__len__")]
    assert max(sizes) < 100


@dataclass
class Plain:
    """What an endpoint holds, counted anew at every question."""

    scraped_s: float = -1.0
    running: float = 0.0
    waiting: float = 0.0
    own_at_scrape: int = 0
    waiting_at_scrape: int = 0
    open: dict[Dispatch, float] = field(default_factory=dict)
    seen: set[Dispatch] = field(default_factory=set)
    prefills: list[tuple[float, float]] = field(default_factory=list)

    def own_waiting(self, now_s: float) -> list[Dispatch]:
        return [d for d in self.open if d not in self.seen and (d.streams or d.first_token_due_s > now_s)]

    def scrape(self, now_s: float, running: float, waiting: float) -> None:
        self.scraped_s, self.running, self.waiting = now_s, running, waiting
        self.own_at_scrape, self.waiting_at_scrape = len(self.open), len(self.own_waiting(now_s))

    def load(self, now_s: float) -> dict[str, float]:
        mine = self.own_waiting(now_s)
        others = max(self.running + self.waiting - self.own_at_scrape, 0.0)
        others_waiting = max(self.waiting - self.waiting_at_scrape, 0.0)
        mean = sum(d.prompt_tokens for d in self.open) / len(self.open) if self.open else 0.0
        waiting = len(mine) + others_waiting
        fade = [s * math.exp(-(now_s - at_s) / DUTY_TIME_CONSTANT_SECONDS) for at_s, s in self.prefills]
        return {
            "running": max(len(self.open) + others - waiting, 0.0),
            "waiting": waiting,
            "waiting_tokens": sum(d.uncached_tokens for d in mine) + others_waiting * mean,
            "oldest_waiting_seconds": now_s - mine[0].dispatched_s if mine else 0.0,
            "kv_tokens": 800.0 + sum(d.prompt_tokens for d in self.open if d.dispatched_s > self.scraped_s),
            "prefill_duty": min(sum(fade) / DUTY_TIME_CONSTANT_SECONDS, LONGEST_DUTY),
            "prefill_tokens_in_flight": sum(d.uncached_tokens for d in mine),
            "decode_tokens_in_flight": sum(d.expected_output_tokens for d in self.open),
        }


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.floats(1.0, 5_000.0), st.floats(0.0, 3.0), st.booleans()),
        st.tuples(st.just("piece"), st.integers(0, 30), st.none(), st.none()),
        st.tuples(st.just("remove"), st.integers(0, 30), st.none(), st.none()),
        st.tuples(st.just("scrape"), st.integers(0, 20), st.integers(0, 9), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
@settings(max_examples=120, deadline=None)
def test_the_kept_facts_say_what_counting_anew_says(steps: list[tuple[str, float, float, bool]]) -> None:
    there, plain, sent, now_s = state(), Plain(), [], 0.0
    for what, first, second, streams in steps:
        now_s += 0.37
        if what == "add":
            each = Dispatch(now_s, first, first * 0.7, now_s + second, first / 9.0, streams)
            sent.append(each)
            there.inflight.add(each, second)
            plain.open[each] = second
            plain.prefills.append((now_s, second))
        elif what == "scrape":
            there.scraped(page(now_s, first, second))
            plain.scrape(now_s, first, second)
        elif sent:
            each = sent[int(first) % len(sent)]
            if what == "piece" and each in plain.open:
                there.inflight.piece(each, now_s)
                plain.seen.add(each)
            elif what == "remove":
                there.inflight.remove(each)
                plain.open.pop(each, None)
        found = load(there, now_s)
        for name, value in plain.load(now_s).items():
            assert getattr(found, name) == pytest.approx(value, rel=1e-9, abs=1e-6), name
