"""Samples of engines become rates: what is stale, doubled or broken is unknown, and never zero."""

from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.demand_memory import Engine

from heliotrope.providers.prometheus_api import RawSeries
from heliotrope_operator.planning.scraped import (
    FIRST_TOKENS,
    KV_USAGE,
    KV_USAGE_BEFORE,
    LONGEST_INTERVAL_S,
    OUTPUT_TOKENS,
    SLEEP_STATE,
    WAITING,
    Scraped,
    scraped,
)

NOW = 1_000_000.0
POD = "p"


def series(engine: Engine, pod: str = POD) -> list[RawSeries]:
    return [raw(each["metric"], each["values"]) for each in engine.series(pod, NOW)]


def raw(metric: dict[str, str], values: list[Any]) -> RawSeries:
    return RawSeries(metric, tuple(time for time, _ in values), tuple(float(value) for _, value in values))


def read(*engines: Engine) -> Scraped:
    return scraped([each for engine in engines for each in series(engine)], NOW)[POD]


def line(name: str, *values: float, interval_s: float = 15.0, **labels: str) -> RawSeries:
    times = tuple(NOW - interval_s * n for n in range(len(values)))[::-1]
    return RawSeries({"__name__": name, "pod": POD, "instance": "p:8000", **labels}, times, values)


@pytest.mark.parametrize("interval_s", [5.0, 15.0, 30.0, 60.0])
def test_rates_are_of_the_newest_minute_whatever_the_interval(interval_s: float) -> None:
    found = read(Engine(rate=3.0, waiting=2.0, interval_s=interval_s))

    assert found.rates.requests_per_second == pytest.approx(3.0)
    assert found.rates.prompt_tokens_per_second == pytest.approx(1_500.0)
    assert found.rates.output_tokens_per_second == pytest.approx(600.0)
    assert (found.rates.waiting, found.queued, found.rates.running) == (2.0, 2.0, 2.0)
    assert found.fresh_for_s == pytest.approx(3 * interval_s - 5.0)


def test_a_burst_is_seen_within_a_minute() -> None:
    values = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 66.0, 126.0, 186.0, 246.0]

    found = scraped([line(FIRST_TOKENS, *values)], NOW)[POD]

    assert found.rates.requests_per_second == pytest.approx(240.0 / 60.0)


@pytest.mark.parametrize(("interval_s", "fresh"), [(15.0, 45.0), (60.0, 180.0), (90.0, 3 * LONGEST_INTERVAL_S)])
def test_what_is_older_than_three_intervals_is_unknown(interval_s: float, fresh: float) -> None:
    before = read(Engine(interval_s=interval_s, age_s=fresh - 1.0))
    after = read(Engine(interval_s=interval_s, age_s=fresh + 1.0))

    assert before.rates.requests_per_second is not None
    assert (after.rates.requests_per_second, after.queued, after.rates.kv_usage) == (None, None, None)
    assert after.fresh_for_s == 0.0


def test_a_single_sample_is_no_rate() -> None:
    assert read(Engine(young_s=16.0)).rates.requests_per_second is None


@pytest.mark.parametrize("broken", [nan, -1.0])
def test_a_series_with_anything_but_numbers_is_unknown(broken: float) -> None:
    found = scraped([line(FIRST_TOKENS, 1.0, broken, 3.0), line(WAITING, 0.0, 0.0, broken)], NOW)[POD]

    assert (found.rates.requests_per_second, found.queued, found.rates.waiting) == (None, None, None)


def test_a_counter_that_begins_anew_has_grown_from_zero() -> None:
    found = scraped([line(FIRST_TOKENS, 1_000.0, 1_015.0, 1_030.0, 15.0, 30.0)], NOW)[POD]

    assert found.rates.requests_per_second == pytest.approx(1.0)


@pytest.mark.parametrize(
    "other", [{"job": "other"}, {"prometheus_replica": "b"}, {"service": "x", "endpoint": "y", "container": "z"}]
)
def test_a_target_that_is_scraped_twice_counts_once(other: dict[str, str]) -> None:
    found = read(Engine(rate=2.0, waiting=1.0), Engine(rate=2.0, waiting=1.0, labels=other))

    assert found.rates.requests_per_second == pytest.approx(2.0)
    assert found.queued == 1.0


def test_of_a_target_that_is_scraped_twice_the_fresher_counts() -> None:
    found = read(Engine(rate=7.0, age_s=200.0, labels={"job": "old"}), Engine(rate=2.0))

    assert found.rates.requests_per_second == pytest.approx(2.0)


def test_two_engines_in_one_pod_count_together_and_one_of_them_unknown_is_all_unknown() -> None:
    second = {"instance": "p:8001"}
    assert read(Engine(rate=2.0), Engine(rate=3.0, labels=second)).rates.requests_per_second == pytest.approx(5.0)
    assert read(Engine(rate=2.0), Engine(rate=3.0, labels={"engine": "1"})).rates.requests_per_second == pytest.approx(
        5.0
    )
    stale = read(Engine(rate=2.0), Engine(rate=3.0, age_s=100.0, labels=second))
    assert stale.rates.requests_per_second is None


def test_what_is_missing_is_unknown_and_not_zero() -> None:
    found = read(Engine(without=(FIRST_TOKENS, OUTPUT_TOKENS, WAITING)))

    assert (found.rates.requests_per_second, found.rates.output_tokens_per_second) == (None, None)
    assert (found.queued, found.rates.waiting, found.fresh_for_s) == (None, None, 0.0)
    assert found.rates.running == 2.0


def test_what_names_no_pod_or_is_of_another_name_is_nobodys() -> None:
    assert scraped([RawSeries({"__name__": FIRST_TOKENS}, (NOW,), (1.0,))], NOW) == {}
    assert scraped([line("vllm:something_else", 1.0, 2.0)], NOW) == {}


def test_older_engines_call_their_memory_by_another_name() -> None:
    assert scraped([line(KV_USAGE_BEFORE, 0.5, 0.6)], NOW)[POD].rates.kv_usage == 0.6
    both = scraped([line(KV_USAGE_BEFORE, 0.5, 0.6), line(KV_USAGE, 0.1, 0.2)], NOW)[POD]
    assert both.rates.kv_usage == 0.2


@pytest.mark.parametrize(("awake", "asleep"), [(1.0, False), (0.0, True)])
def test_an_engine_that_sleeps_says_so(awake: float, asleep: bool) -> None:
    states = [
        line(SLEEP_STATE, awake, awake, sleep_state="awake"),
        line(SLEEP_STATE, 0.0, 1.0 - awake, sleep_state="discard_all"),
    ]
    assert scraped(states, NOW)[POD].rates.asleep is asleep
    assert read(Engine()).rates.asleep is None


@given(
    st.lists(st.floats(0.0, 1e6), min_size=2, max_size=20),
    st.lists(st.floats(0.1, 120.0), min_size=2, max_size=20),
    st.floats(0.0, 400.0),
)
def test_rates_are_never_negative_nor_anything_but_numbers(
    values: list[float], gaps: list[float], age_s: float
) -> None:
    count = min(len(values), len(gaps))
    times = [NOW - age_s - sum(gaps[:n]) for n in range(count)][::-1]
    found = scraped([RawSeries({"__name__": FIRST_TOKENS, "pod": POD}, tuple(times), tuple(values[:count]))], NOW)
    rate = found[POD].rates.requests_per_second
    assert rate is None or 0.0 <= rate < float("inf")
