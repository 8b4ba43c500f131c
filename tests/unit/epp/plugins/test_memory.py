"""What a picker remembers of its own past, and what decisions get of it."""

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.epp.plugins.builders import ENGINE, NOW_S, STALE_AFTER_S, metrics, state

from heliotrope.decide.policy import DecisionPolicy, PowerLimit, Term
from heliotrope_epp.datalayer.endpoint import EngineMetrics, Traits
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.plugins import memory
from heliotrope_epp.plugins.memory import PickerMemory, power_columns
from heliotrope_epp.plugins.options import Options

NAN = float("nan")
RISKY = DecisionPolicy("p", order=(Term.RISK, Term.CARBON))
POWER = DecisionPolicy("p", power=PowerLimit())


def options(*states: EndpointState) -> Options:
    return Options.at(states, [0.0] * len(states), NOW_S, STALE_AFTER_S)


def powered(
    watts: float | None, limit: float | None = None, *, throttled: bool | None = None, age_s: float = 0.1
) -> EngineMetrics:
    return replace(metrics(age_s=age_s), power_watts=watts, power_limit_watts=limit, throttled=throttled)


def test_a_decision_gets_only_what_its_policy_compares() -> None:
    kept = PickerMemory("a")
    kept.sent(state("e", region="north"))
    plain = kept.standing(options(state("e", metrics=metrics())), DecisionPolicy("p"), NOW_S)
    assert (plain.failure_rate, plain.headroom_watts, plain.region_counts) == (None, None, {})
    assert plain.draw_seed != PickerMemory("b").standing(options(), DecisionPolicy("p"), NOW_S).draw_seed
    capped = kept.standing(options(), DecisionPolicy("p", largest_region_share=0.5), NOW_S)
    assert capped.region_counts == pytest.approx({"north": 1.0})


def test_failures_raise_an_endpoints_rate_above_the_pools() -> None:
    kept = PickerMemory("a")
    bad, good, new = (state(name, metrics=metrics()) for name in ("bad", "good", "new"))
    for _ in range(20):
        kept.ended(bad, 1.0, NOW_S)
        kept.ended(good, 0.0, NOW_S)
    rates = kept.standing(options(bad, good, new), RISKY, NOW_S).failure_rate
    assert rates is not None
    pool = (20 + 0.2) / (40 + 20)
    assert rates.tolist() == pytest.approx([(20 + 4 * pool) / 24, 4 * pool / 24, pool])
    alone = kept.standing(options(new), RISKY, NOW_S).failure_rate
    assert alone is not None
    assert np.isnan(alone).all()
    assert kept.failure_rate("default/bad", NOW_S) == pytest.approx(rates[0])
    kept.forget("default/bad")
    assert np.isnan(kept.failure_rate("default/bad", NOW_S))


def test_preemptions_per_request_follow_the_engines_counters() -> None:
    kept, endpoint = PickerMemory("a"), state("e")

    def page(preemptions: float | None, first_tokens: float | None, scraped_s: float) -> None:
        endpoint.metrics = EngineMetrics(
            scraped_s, 1.0, 0.0, 0.1, preemptions_total=preemptions, first_tokens_total=first_tokens
        )
        kept.ended(endpoint, 0.0, scraped_s)

    def rate() -> float:
        column = kept.standing(options(endpoint), RISKY, NOW_S).preemptions_per_request
        assert column is not None
        return float(column[0])

    page(None, 10.0, 90.0)
    assert np.isnan(rate())
    page(100.0, 1000.0, 91.0)
    assert np.isnan(rate())  # what was before this picker looked says nothing of now
    page(105.0, 1010.0, 92.0)
    assert rate() == pytest.approx(0.5)
    page(0.0, 1.0, 93.0)  # a new engine
    page(0.0, 11.0, 94.0)
    assert 0.0 < rate() < 0.5


def test_the_number_of_endpoints_that_are_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MAX_ENDPOINTS", 3)
    kept = PickerMemory("a")
    for name in ("a", "b", "c", "a", "d"):
        kept.ended(state(name), 1.0, NOW_S)
    assert kept.dropped == 1
    kept.forget("default/a")
    kept.ended(state("new"), 0.0, NOW_S)
    kept.ended(state("a"), 1.0, NOW_S)
    assert kept.dropped == 2
    assert kept.failure_rate("default/new", NOW_S) < kept.failure_rate("default/a", NOW_S)
    kept.forget("default/new")
    assert [np.isnan(kept.failure_rate(f"default/{name}", NOW_S)) for name in "abcd"] == [False, True, True, False]


def test_more_endpoints_than_fit_at_first() -> None:
    kept = PickerMemory("a")
    states = [state(f"e{i}", metrics=metrics()) for i in range(200)]
    for i, each in enumerate(states):
        kept.ended(each, float(i % 2), NOW_S)
    rates = kept.standing(options(*states), RISKY, NOW_S).failure_rate
    assert rates is not None
    assert (rates[1::2] > rates[::2]).all()
    backwards = kept.standing(options(*reversed(states)), RISKY, NOW_S).failure_rate
    assert backwards is not None
    assert backwards.tolist() == rates[::-1].tolist()


def test_headroom_is_of_the_metrics_else_of_the_variant_else_unknown() -> None:
    stated = Traits(engine=ENGINE, power_limit_watts=700.0)
    states = (
        state("told", metrics=powered(400.0, 500.0, throttled=False), traits=stated),
        state("stated", metrics=powered(400.0), traits=stated),
        state("unknown", metrics=powered(400.0)),
        state("silent", metrics=powered(None, 500.0), traits=stated),
        state("over", metrics=powered(510.0, 500.0, throttled=True)),
        state("stale", metrics=powered(400.0, 500.0, throttled=True, age_s=60.0)),
        state("never", traits=stated),
    )
    headroom, throttled = power_columns(options(*states))
    np.testing.assert_array_equal(headroom, [100.0, 300.0, NAN, NAN, -10.0, NAN, NAN])
    np.testing.assert_array_equal(throttled, [0.0, NAN, NAN, NAN, 1.0, NAN, NAN])
    standing = PickerMemory("a").standing(options(*states), POWER, NOW_S)
    assert standing.headroom_watts is not None
