"""Metrics of policies, read as a scraper reads them."""

from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.epp.director.test_director import POLICY, Bench, Gateway, chat, report

from heliotrope.decide.policy import Comparison, DemandEvent, Objective, ServiceClass, Term
from heliotrope_epp.datalayer.policy_history import PolicyHistory
from heliotrope_epp.telemetry.policies import PolicyCollector

EVENING = Comparison(Objective.LEXICOGRAPHIC, order=(Term.ENERGY,))
FULL = replace(
    POLICY,
    revision="generation 3",
    classes=(ServiceClass("batch"),),
    events=(DemandEvent("evening", 0.0, 2e9),),
    event_comparison=EVENING,
)


def test_decisions_are_counted_by_class_event_wish_and_limit() -> None:
    bench = Bench(policy=FULL)
    bench.send(Gateway(chat(), given={"x-heliotrope-class": "batch", "x-slo-ttft-ms": "900"}))
    bench.send(Gateway(chat(), given={"x-heliotrope-regions": "clean"}))
    assert bench.count("heliotrope_class_requests_total", service_class="batch", event="evening") == 1
    assert bench.count("heliotrope_class_requests_total", service_class="", event="evening") == 1
    assert bench.count("heliotrope_overrides_total", override="slo", result="applied") == 1
    assert bench.count("heliotrope_overrides_total", override="regions", result="refused") == 1
    assert bench.count("heliotrope_relaxed_limits_total", limit="largest region share") == 0
    capped = replace(POLICY, largest_region_share=0.5, allowed_regions=frozenset({"clean"}))
    bench = Bench(policy=capped)
    for _ in range(3):
        bench.send(Gateway(chat()))
    assert bench.count("heliotrope_relaxed_limits_total", limit="largest region share") == 1


def test_the_version_in_force_and_the_recent_past_are_gauges() -> None:
    bench = Bench(policy=FULL)
    history, registry = PolicyHistory(), CollectorRegistry()
    memory = bench.director._pipeline.memory
    registry.register(PolicyCollector(history, bench.store, memory, clock=lambda: bench.now_s))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    history.follow(bench.store.world, 1.0)
    answer = bench.send(Gateway(chat()))
    bench.director.done(answer.ctx, report(500))
    assert value("heliotrope_policy_info", policy="p", revision="generation 3", enforced="true") == 1.0
    assert value("heliotrope_policy_outdated") == 0.0
    assert value("heliotrope_policy_changes_total", result="applied") == 1.0
    assert value("heliotrope_region_share", region=answer.ctx.region) == pytest.approx(1.0)
    failing = value(
        "heliotrope_endpoint_failure_rate", endpoint=answer.ctx.state.endpoint.key, region=answer.ctx.region
    )
    assert failing is not None
    assert failing > 0.1
    history.follow(replace(bench.store.world, policy_outdated_because="why"), 2.0)
    assert value("heliotrope_policy_outdated") == 1.0
    assert value("heliotrope_policy_changes_total", result="refused") == 1.0
