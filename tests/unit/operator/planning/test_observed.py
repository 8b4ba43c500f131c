"""What is asked of a pool: sums over pickers, restarts, silences, and engines."""

import pytest
from tests.unit.operator import objects

from heliotrope_operator.planning.observed import SILENCE_S, PoolObserver
from heliotrope_operator.planning.page import EngineLine, ModelLine, PickerPage
from heliotrope_operator.planning.pickers import Asked
from heliotrope_operator.planning.tails import Buckets
from heliotrope_operator.planning.watch import variant_load
from heliotrope_operator.resources import Key, Kind


def page(time_s: float, requests: float, *, held: float = 0.0, **engines: EngineLine) -> PickerPage:
    line = ModelLine(requests, requests * 100, requests * 10, held)
    return PickerPage("i", time_s, 0.0, {"m": line}, engines)


def rounds(observer: PoolObserver, *asked: tuple[float, Asked]) -> None:
    for now_s, each in asked:
        observer.take(each, now_s)


def test_rates_of_all_pickers_are_summed() -> None:
    observer = PoolObserver()
    observer.take(Asked({"a": page(0, 0), "b": page(0, 50)}, frozenset()), 0)
    assert observer.models is None
    observer.take(Asked({"a": page(10, 20), "b": page(10, 60, held=3)}, frozenset()), 10)
    assert observer.models is not None
    rates = observer.models["m"]
    assert (rates.requests_per_second, rates.prompt_tokens_per_second, rates.held) == (3.0, 300.0, 3.0)
    assert observer.held == {"m": 3.0}


def test_one_silent_picker_counts_with_its_last_rates_and_then_nothing_is_known() -> None:
    observer = PoolObserver()
    for now_s in (0, 10):
        observer.take(Asked({"a": page(now_s, now_s), "b": page(now_s, now_s)}, frozenset()), now_s)
    observer.take(Asked({"a": page(20, 20)}, frozenset({"b"})), 20)
    assert observer.models is not None
    assert observer.models["m"].requests_per_second == 2.0
    late = 10 + SILENCE_S + 1
    observer.take(Asked({"a": page(late, late)}, frozenset({"b"})), late)
    assert observer.models is None


def test_a_picker_that_is_gone_counts_no_longer() -> None:
    """llm-d-autoscaling#368: replicas that are gone counted on, and numbers went 2 → 1 → 2."""
    observer = PoolObserver()
    for now_s in (0, 10):
        observer.take(Asked({"a": page(now_s, now_s), "b": page(now_s, now_s)}, frozenset()), now_s)
    observer.take(Asked({"a": page(20, 20)}, frozenset()), 20)
    assert observer.models is not None
    assert observer.models["m"].requests_per_second == 1.0


def test_nobody_to_ask_is_unknown_not_nothing() -> None:
    """llm-d-autoscaling#360: missing samples became zeros, and busy engines looked idle."""
    observer = PoolObserver()
    observer.take(Asked({}, frozenset(), "no picker"), 0)
    assert observer.models is None
    assert observer.problem == "no picker"


def test_a_new_picker_makes_the_sum_unknown_until_it_has_told_twice() -> None:
    observer = PoolObserver()
    for now_s in (0, 10):
        observer.take(Asked({"a": page(now_s, now_s)}, frozenset()), now_s)
    observer.take(Asked({"a": page(20, 20), "b": page(20, 900)}, frozenset()), 20)
    assert observer.models is None
    observer.take(Asked({"a": page(30, 30), "b": page(30, 910)}, frozenset()), 30)
    assert observer.models is not None
    assert observer.models["m"].requests_per_second == 2.0


def test_engines_that_were_stale_come_back_without_a_jump() -> None:
    observer = PoolObserver()
    known = EngineLine(running=1.0, first_tokens_total=100.0, generation_tokens_total=1000.0)
    observer.take(Asked({"a": page(0, 0, e=known)}, frozenset()), 0)
    observer.take(Asked({"a": page(10, 0, e=EngineLine())}, frozenset()), 10)
    assert observer.engines["e"].requests_per_second is None
    again = EngineLine(running=1.0, first_tokens_total=120.0, generation_tokens_total=1000.0)
    observer.take(Asked({"a": page(20, 0, e=again)}, frozenset()), 20)
    assert observer.engines["e"].requests_per_second == 1.0
    assert observer.engines["e"].prompt_tokens_per_second is None
    observer.take(Asked({"a": page(30, 0)}, frozenset()), 30)
    assert observer.engines == {}


def test_the_tail_of_latencies_is_what_a_promise_is_compared_with() -> None:
    def engine(fast: float, slow: float) -> EngineLine:
        grown = Buckets((0.1, 1.0), (fast, fast + slow, fast + slow))
        return EngineLine(running=1.0, first_tokens_total=fast + slow, first_token=grown, output_token=grown)

    observer = PoolObserver()
    rounds(
        observer,
        (0, Asked({"a": page(0, 0, e=engine(500, 500))}, frozenset())),
        (10, Asked({"a": page(10, 0, e=engine(590, 510))}, frozenset())),
    )
    load = variant_load([(Key(Kind.POD, "ns", "e"), objects.read_pod("e"))], observer.engines, 10.0)
    assert load is not None
    assert load.ttft_seconds == pytest.approx(0.91), "the 99th of 100 is among the ten slow ones, not the mean"
    assert load.tpot_seconds == pytest.approx(0.91)
