"""Trust in beliefs about caches: what it must converge to, its bounds, and what false claims do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliotrope.cache.calibration import BINS, CacheCalibration, age_bin


def test_a_belief_is_taken_at_its_word_until_something_is_learned() -> None:
    trust = CacheCalibration().trust("e", 5.0)
    assert (trust.share, trust.deviation) == (1.0, 0.0)


def test_claims_that_prove_false_are_believed_no_more() -> None:
    learned = CacheCalibration()
    for _ in range(40):
        learned.learn("liar", 5.0, 1000.0, 0.0)
        learned.learn("honest", 5.0, 1000.0, 1000.0)
    assert learned.trust("liar", 5.0).share < 0.1
    assert learned.trust("honest", 5.0).share > 0.9
    assert learned.false_claims_total == 40
    # An endpoint that nothing is known of is as good as the others on average.
    assert learned.trust("new", 5.0).share == pytest.approx(0.5, abs=0.05)
    assert learned.trust("new", 5.0).deviation > 0.4


def test_what_was_used_long_ago_is_learned_apart() -> None:
    learned = CacheCalibration()
    for _ in range(60):
        learned.learn("e", 2.0, 500.0, 500.0)
        learned.learn("e", 900.0, 500.0, 0.0)
    assert learned.trust("e", 3.0).share > 0.95
    assert learned.trust("e", 700.0).share < 0.1
    assert learned.trust("e", 20.0).share == 1.0


def test_an_engine_that_keeps_its_cache_again_is_believed_again() -> None:
    learned = CacheCalibration()
    for _ in range(300):
        learned.learn("e", 5.0, 100.0, 0.0)
    for _ in range(300):
        learned.learn("e", 5.0, 100.0, 100.0)
    assert learned.trust("e", 5.0).share > 0.9


def test_shares_converge_to_the_true_one() -> None:
    rng = np.random.default_rng(7)
    learned = CacheCalibration()
    for _ in range(2_000):
        learned.learn("e", 30.0, 800.0, 800.0 if rng.random() < 0.7 else 0.0)
    trust = learned.trust("e", 30.0)
    assert trust.share == pytest.approx(0.7, abs=0.15)  # it remembers some 64 requests
    assert trust.deviation == pytest.approx(0.46, abs=0.06)


def test_a_forgotten_endpoint_has_a_clean_slate_but_for_the_pool() -> None:
    learned = CacheCalibration()
    for _ in range(50):
        learned.learn("e", 1.0, 100.0, 0.0)
    before = learned.trust("e", 1.0).share
    learned.forget("e")
    learned.forget("never seen")
    assert before < learned.trust("e", 1.0).share < 0.2
    assert len(learned) == 0


@pytest.mark.parametrize(("believed", "true"), [(0.0, 5.0), (float("nan"), 5.0), (5.0, float("nan")), (-1.0, 0.0)])
def test_nothing_is_learned_from_what_is_no_belief(believed: float, true: float) -> None:
    learned = CacheCalibration()
    learned.learn("e", 1.0, believed, true)
    assert learned.learned_total == 0


def test_the_number_of_endpoints_is_bounded() -> None:
    learned = CacheCalibration(max_endpoints=3)
    for i in range(10):
        learned.learn(f"e{i}", 1.0, 10.0, 10.0)
        learned.learn("kept", 1.0, 10.0, 0.0)
    assert len(learned) == 3
    assert learned.forgotten_total == 8
    assert learned.trust("kept", 1.0).share < learned.trust("gone", 1.0).share


observations = st.tuples(
    st.sampled_from("abc"), st.floats(0.0, 1e6), st.floats(1e-3, 1e6), st.floats(-10.0, 1e7), st.booleans()
)


@settings(deadline=None)
@given(st.lists(observations, max_size=60), st.floats(allow_nan=True))
def test_trust_stays_in_its_bounds(script: list[tuple[str, float, float, float, bool]], age: float) -> None:
    learned = CacheCalibration(max_endpoints=2)
    for endpoint, seconds, believed, true, forget in script:
        learned.learn(endpoint, seconds, believed, true)
        if forget:
            learned.forget(endpoint)
        for name in "abcd":
            trust = learned.trust(name, age)
            assert 0.0 <= trust.share <= 1.0
            assert 0.0 <= trust.deviation < 0.75
        assert len(learned) <= 2
    assert learned.true_tokens_total <= learned.believed_tokens_total * (1 + 1e-12)


@given(st.floats(0.0, 1e12), st.floats(0.0, 1e12))
def test_bins_follow_age(a: float, b: float) -> None:
    low, high = sorted((a, b))
    assert 0 <= age_bin(low) <= age_bin(high) < BINS
    assert [age_bin(x) for x in (0.0, 0.9, 1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, float("nan"))] == [
        0, 0, 1, 2, 3, 4, 5, 6, 7, 7,
    ]  # fmt: skip
