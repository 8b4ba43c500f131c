"""Engines that are slower or faster than their model: learned slowly, within bounds, only from what was measured."""

import pytest
from tests.unit.operator import objects

from heliotrope.api.v1alpha1.common import Role
from heliotrope.engine import profiles
from heliotrope.scale.facts import Mix
from heliotrope.scale.throughput import LONGEST_CORRECTION, Correction, latency
from heliotrope_operator.capacities import Capacities
from heliotrope_operator.kinds.pools import pool_key
from heliotrope_operator.planning.corrections import CorrectionCollector, Corrections, Measured
from heliotrope_operator.planning.observed import EngineRates
from heliotrope_operator.planning.watch import variant_load
from heliotrope_operator.resources import Key, Kind

KEY = Key(Kind.WORKLOAD_VARIANT, "ns", "v")
PROFILE = "llama-3.1-8b-h100"
ENGINE = profiles.load(PROFILE)
MIX = Mix(1_000.0, 200.0)
EXPECTED = latency(ENGINE, MIX, 2.0, 1.0, Role.BOTH)


def learned(
    corrections: Corrections, prefill: float, decode: float, times: int = 1, rate: float | None = 2.0
) -> Correction:
    measured = Measured(rate, EXPECTED.ttft_seconds * prefill, EXPECTED.tpot_seconds * decode)
    for _ in range(times):
        corrections.learn(KEY, ENGINE, Role.BOTH, MIX, measured)
    return corrections.of(KEY)


def test_an_engine_as_its_model_says_is_not_corrected() -> None:
    assert learned(Corrections(), 1.0, 1.0, 50) == Correction()
    assert Corrections().of(KEY) == Correction()


def test_a_slow_engine_is_learned_slowly_and_forgotten_when_it_is_fast_again() -> None:
    corrections = Corrections()
    once = learned(corrections, 1.0, 2.0)
    assert once.decode < 1.15
    often = learned(corrections, 1.0, 2.0, 60)
    assert often.decode == pytest.approx(2.0, rel=0.06)
    assert often.prefill == 1.0
    again = learned(corrections, 1.0, 1.0, 80)
    assert again.decode == 1.0


def test_no_measurement_teaches_more_than_the_bounds() -> None:
    slow = learned(Corrections(), 1e6, 1e6, 200)
    fast = learned(Corrections(), 1e-6, 1e-6, 200)
    for factor in (slow.prefill, slow.decode, 1.0 / fast.prefill, 1.0 / fast.decode):
        assert factor <= LONGEST_CORRECTION * 1.05


@pytest.mark.parametrize("rate", [None, 0.0, 0.01, 1e6])
def test_what_is_unknown_too_little_or_overloaded_teaches_nothing(rate: float | None) -> None:
    assert learned(Corrections(), 3.0, 3.0, 50, rate) == Correction()
    corrections = Corrections()
    corrections.learn(KEY, ENGINE, Role.BOTH, MIX, Measured(2.0, None, None))
    assert corrections.of(KEY) == Correction()


def test_a_slower_engine_carries_less() -> None:
    variant = objects.read_variant("v", engine={"profile": PROFILE})
    policy = objects.read_policy("p", "pool")
    capacities = Capacities({PROFILE: ENGINE})
    usual = capacities.of(variant, policy, MIX)
    slow = capacities.of(variant, policy, MIX, Correction(1.0, 2.0))
    assert usual is not None
    assert slow is not None
    assert slow.requests_per_second < 0.8 * usual.requests_per_second
    assert capacities.of(variant, policy, MIX) is usual


def test_variants_that_are_gone_are_forgotten_and_the_rest_is_published() -> None:
    corrections = Corrections()
    learned(corrections, 1.0, 2.0, 60)
    (family,) = CorrectionCollector(corrections).collect()
    found = {sample.labels["phase"]: sample.value for sample in family.samples}
    assert found == {"prefill": 1.0, "decode": pytest.approx(2.0, rel=0.06)}
    corrections.keep([pool_key("ns", "other")])
    assert corrections.known() == {}


def test_latencies_of_engines_are_weighed_by_their_requests() -> None:
    pods = [(Key(Kind.POD, "ns", name), objects.read_pod(name)) for name in ("a", "b", "c")]
    engines = {
        "a": EngineRates(requests_per_second=3.0, output_tokens_per_second=30.0, ttft_seconds=0.1, tpot_seconds=0.01),
        "b": EngineRates(requests_per_second=1.0, output_tokens_per_second=10.0, ttft_seconds=0.5, tpot_seconds=0.05),
        "c": EngineRates(requests_per_second=0.0, output_tokens_per_second=0.0),
    }
    load = variant_load(pods, engines, 0.0)
    assert load is not None
    assert (load.mean_ttft_seconds, load.mean_tpot_seconds) == (pytest.approx(0.2), pytest.approx(0.02))
    idle = variant_load(pods[2:], engines, 0.0)
    assert idle is not None
    assert idle.mean_ttft_seconds is None
