"""What is counted of policies that were not followed."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.core.decide.pools import NOW, POLICY, REQUEST, THREE, pool
from tests.unit.epp.director.test_director import POLICY as LIVE
from tests.unit.epp.director.test_director import Bench, Gateway, chat

from heliotrope.decide.compared import Comparison
from heliotrope.decide.decision import decide
from heliotrope_epp.telemetry.advice import AdviceCounters


def test_the_modelled_saving_is_the_difference_of_two_counters() -> None:
    registry = CollectorRegistry()
    counters = AdviceCounters(registry)
    decision = decide(REQUEST, pool(["c", "a"], THREE), POLICY, NOW)
    both = Comparison(decision.planned(0), decision.planned(1))
    counters.compared(both, "unsteered")
    counters.compared(Comparison(decision.planned(0), None), "unsteered")
    counters.compared(Comparison(None, decision.planned(1)), "unsteered")

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(name, {"arm": "unsteered", **labels}) or 0.0

    ran, advised = (value("heliotrope_compared_grams_co2e_total", plan=plan) for plan in ("ran", "advised"))
    assert ran - advised == pytest.approx(both.saved("grams_co2e"))
    assert ran > advised > 0.0
    plans = {"placement": "aggregated", "action": "Recompute"}
    assert value("heliotrope_advised_plans_total", plan="another", **plans) == 1.0
    assert value("heliotrope_advised_plans_total", plan="none", **plans) == 1.0
    assert value("heliotrope_advised_plans_total", plan="none", placement="none", action="none") == 1.0


def test_what_is_followed_is_compared_with_nothing() -> None:
    for policy, compared in ((LIVE, 0), (replace(LIVE, enforce=False), 1), (replace(LIVE, holdout_percent=100), 1)):
        bench = Bench(policy=policy)
        bench.send(Gateway(chat()))
        samples = [
            sample
            for family in bench.registry.collect()
            if family.name == "heliotrope_advised_plans"
            for sample in family.samples
            if sample.name.endswith("_total")
        ]
        assert sum(sample.value for sample in samples) == compared
