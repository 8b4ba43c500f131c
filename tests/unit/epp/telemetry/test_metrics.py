import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from heliotrope.carbon.signal import ABSENT, CarbonSignal, EmissionFactor, Reading, SignalType
from heliotrope.decide.candidates import RegionView
from heliotrope_epp.parsers.openai import Usage
from heliotrope_epp.plugins.interface import LlmRequest
from heliotrope_epp.telemetry.metrics import Metrics, StateCollector
from heliotrope_epp.transport.interface import Cause, Report, Stats

NOW = 1_000.0


def collector(regions: list[RegionView]) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(
        StateCollector(
            transport=lambda: Stats(open_streams=3, routed=2, refused_total={"body": 4}),
            endpoints=lambda: [("llm/a", "north", 0.25, 2), ("llm/b", "unknown", None, 0)],
            regions=lambda: regions,
            source_healthy=lambda: False,
            problems=lambda: 1,
            unix_clock=lambda: NOW,
        )
    )
    return registry


def test_a_signal_shows_value_age_and_freshness_and_absence_is_not_zero() -> None:
    reading = Reading(0.0, NOW - 90.0, "static", SignalType.MARGINAL, EmissionFactor.DIRECT)
    registry = collector(
        [
            RegionView("clean", CarbonSignal(reading, stale_after_s=60.0), pue=1.2),
            RegionView("silent", ABSENT, pue=1.2),
        ]
    )
    labels = {"region": "clean", "signal_type": "marginal", "source": "static"}
    assert registry.get_sample_value("heliotrope_carbon_intensity_grams_per_kwh", labels) == 0.0
    assert registry.get_sample_value("heliotrope_carbon_signal_age_seconds", {"region": "clean"}) == 90.0
    assert registry.get_sample_value("heliotrope_carbon_signal_fresh", {"region": "clean"}) == 0.0
    assert registry.get_sample_value("heliotrope_carbon_signal_fresh", {"region": "silent"}) == 0.0
    assert registry.get_sample_value("heliotrope_carbon_signal_age_seconds", {"region": "silent"}) is None


def test_endpoints_transport_and_source() -> None:
    registry = collector([])
    at_a = {"endpoint": "llm/a", "region": "north"}
    assert registry.get_sample_value("heliotrope_endpoint_metrics_age_seconds", at_a) == 0.25
    assert registry.get_sample_value("heliotrope_endpoint_requests_in_flight", at_a) == 2
    at_b = {"endpoint": "llm/b", "region": "unknown"}
    assert registry.get_sample_value("heliotrope_endpoint_metrics_age_seconds", at_b) is None
    assert registry.get_sample_value("heliotrope_requests_in_flight") == 2
    assert registry.get_sample_value("heliotrope_refused_requests_total", {"reason": "body"}) == 4
    assert registry.get_sample_value("heliotrope_source_healthy") == 0
    assert registry.get_sample_value("heliotrope_resource_problems") == 1


def test_a_finished_stream_gives_ttft_tpot_and_tokens() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    request = LlmRequest("r", "/v1/chat/completions", "m", b"", 10, None, 100.0, True)
    report = Report(200, {}, None, 11, 500, 0.0, 1.0, 1.3, 2.3, 2.4, b"", Cause.COMPLETE)
    metrics.finished(request, "north", report, Usage(10, 11, 4))
    where = {"region": "north"}
    assert registry.get_sample_value("heliotrope_time_to_first_token_seconds_sum", where) == pytest.approx(0.3)
    assert registry.get_sample_value("heliotrope_time_per_output_token_seconds_sum", where) == pytest.approx(0.1)
    assert registry.get_sample_value("heliotrope_output_tokens_total", where) == 11
    assert registry.get_sample_value("heliotrope_cached_tokens_total", where) == 4


def test_a_request_that_died_has_no_code_and_no_latency() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    request = LlmRequest("r", "/v1/chat/completions", "m", b"", 10, None, 100.0, True)
    report = Report(None, {}, None, 0, 0, 0.0, 1.0, None, None, 2.4, b"", Cause.DISCONNECTED)
    metrics.finished(request, None, report, None)
    labels = {"model": "m", "region": "unknown", "code": "unknown", "cause": "disconnected"}
    assert registry.get_sample_value("heliotrope_requests_total", labels) == 1
    assert registry.get_sample_value("heliotrope_time_to_first_token_seconds_sum", {"region": "unknown"}) is None


def test_models_beyond_the_largest_number_are_other_and_any_name_leaves_the_page_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("heliotrope_epp.telemetry.metrics.MAX_MODEL_LABELS", 2)
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    report = Report(200, {}, None, 1, 1, 0.0, 1.0, None, None, 2.4, b"", Cause.COMPLETE)
    for name in ("m\ud800", "a", "b", "c", "a"):
        metrics.finished(LlmRequest("r", "/", name, b"", 10, None, 100.0, False), None, report, None)
    generate_latest(registry)
    counts = {
        sample.labels["model"]: sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "heliotrope_requests_total"
    }
    assert counts == {"m?": 1, "a": 2, "other": 2}
