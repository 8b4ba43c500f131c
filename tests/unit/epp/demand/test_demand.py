"""What is counted by model, and how it is told."""

import json

from prometheus_client import CollectorRegistry

from heliotrope_epp.datalayer.endpoint import Endpoint, EngineMetrics
from heliotrope_epp.datalayer.state import EndpointState
from heliotrope_epp.demand.book import MAX_CLIENT_NAMES, DemandBook
from heliotrope_epp.demand.holding import Flow, HoldQueue, HoldSettings
from heliotrope_epp.demand.page import EndpointLine, PoolName, demand_page, encode
from heliotrope_epp.telemetry.demand import DemandCollector
from heliotrope_epp.telemetry.engine_lines import endpoint_lines

UNKNOWN = dict.fromkeys(EndpointLine.__struct_fields__)


def test_names_of_clients_cannot_crowd_out_the_models_that_are_served() -> None:
    book = DemandBook(lambda: frozenset({"served"}))
    for i in range(MAX_CLIENT_NAMES + 50):
        book.arrived(f"junk-{i}", 1)
    book.arrived("served", 7)
    assert book.models["served"].prompt_tokens_total == 7
    assert book.models["other"].requests_total == 50
    assert len(book.models) == MAX_CLIENT_NAMES + 2


def test_the_page_has_totals_and_what_is_held_now() -> None:
    now_s = 100.0
    queue: HoldQueue[str] = HoldQueue(
        HoldSettings(),
        is_open=lambda: False,
        can_go=lambda _: False,
        go=lambda _: None,
        refuse=lambda _, __: None,
        monotonic=lambda: now_s,
    )
    book = DemandBook()
    book.arrived("a", 30)
    book.routed("a")
    book.arrived("a", 12)
    book.routed("a")
    book.ended("a", 5)
    book.arrived("b", 1)
    queue.offer("b", Flow("b", ""), 9)
    now_s = 103.5
    fresh = EndpointState(
        Endpoint("b", "ns", "10.0.0.1", 8000), metrics=EngineMetrics(100.0, running=2.0, asleep=False)
    )
    stale = EndpointState(Endpoint("a", "ns", "10.0.0.2", 8000), metrics=EngineMetrics(98.0, running=2.0))
    page = demand_page(
        book,
        queue.held_by(book.name),
        endpoint_lines([fresh, stale], 103.5, 5.0),
        pool=PoolName("ns", "p"),
        instance="i",
        now_unix_s=1e9,
        started_unix_s=9e8,
    )
    assert json.loads(encode(page)) == {
        "schema": 1,
        "pool": {"namespace": "ns", "name": "p"},
        "instance": "i",
        "time_unix_s": 1e9,
        "started_unix_s": 9e8,
        "models": [
            {
                "model": "a",
                "requests_total": 2,
                "prompt_tokens_total": 42,
                "output_tokens_total": 5,
                "in_flight": 1,
                "held": 0,
                "oldest_held_s": None,
            },
            {
                "model": "b",
                "requests_total": 1,
                "prompt_tokens_total": 1,
                "output_tokens_total": 0,
                "in_flight": 0,
                "held": 1,
                "oldest_held_s": 3.5,
            },
        ],
        "endpoints": [UNKNOWN | {"name": "a"}, UNKNOWN | {"name": "b", "asleep": False, "running": 2.0}],
    }
    registry = CollectorRegistry()
    registry.register(DemandCollector(book, queue))
    sample = registry.get_sample_value
    assert sample("heliotrope_demand_requests_total", {"model": "a"}) == 2
    assert sample("heliotrope_demand_output_tokens_total", {"model": "a"}) == 5
    assert sample("heliotrope_held_requests", {"model": "b"}) == 1
    assert sample("heliotrope_oldest_held_seconds", {"model": "b"}) == 3.5
    assert sample("heliotrope_held_bytes") == 9
    assert sample("heliotrope_hold_dropped_total", {"reason": "expired"}) == 0
