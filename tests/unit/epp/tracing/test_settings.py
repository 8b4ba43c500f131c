"""From variables and flags to settings."""

import pytest

from heliotrope_epp.tracing.sampling import Sampler
from heliotrope_epp.tracing.settings import Protocol, TracingFlags, TracingSettings, tracing_settings

NO_FLAGS = TracingFlags()
COLLECTOR = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


def from_environment(**variables: str) -> TracingSettings:
    settings, warnings = tracing_settings(NO_FLAGS, variables)
    assert warnings == []
    return settings


def test_without_a_collector_nothing_is_traced() -> None:
    assert from_environment() == TracingSettings()
    assert not from_environment(OTEL_EXPORTER_OTLP_ENDPOINT="  ").enabled


@pytest.mark.parametrize(
    "variables",
    [
        COLLECTOR,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        {"OTEL_TRACES_EXPORTER": "console"},
    ],
)
def test_a_configured_collector_switches_tracing_on(variables: dict[str, str]) -> None:
    assert from_environment(**variables).enabled
    assert not tracing_settings(TracingFlags(tracing=False), variables)[0].enabled


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "True"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_the_environment_can_switch_it_off_and_the_command_line_on(off: dict[str, str]) -> None:
    assert not from_environment(**COLLECTOR, **off).enabled
    assert tracing_settings(TracingFlags(tracing=True), {**COLLECTOR, **off})[0].enabled


def test_flags_come_before_variables() -> None:
    flags = TracingFlags(endpoint="http://here:1", protocol=Protocol.HTTP, ratio=0.5)
    settings, _ = tracing_settings(flags, {**COLLECTOR, "OTEL_TRACES_SAMPLER": "always_on"})
    assert settings.enabled
    assert (settings.endpoint, settings.protocol, settings.sampler) == ("http://here:1", Protocol.HTTP, Sampler(0.5))


@pytest.mark.parametrize(
    ("sampler", "argument", "expected"),
    [
        ("", "", Sampler(0.1)),
        ("", "0.3", Sampler(0.3)),
        ("always_on", "0.3", Sampler(1.0, parent_based=False)),
        ("always_off", "", Sampler(0.0, parent_based=False)),
        ("traceidratio", "0.3", Sampler(0.3, parent_based=False)),
        ("parentbased_always_on", "", Sampler(1.0)),
        ("parentbased_always_off", "", Sampler(0.0)),
        ("parentbased_traceidratio", "1", Sampler(1.0)),
        ("PARENTBASED_TRACEIDRATIO", "0", Sampler(0.0)),
    ],
)
def test_samplers(sampler: str, argument: str, expected: Sampler) -> None:
    assert from_environment(OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG=argument).sampler == expected


def test_protocols() -> None:
    assert from_environment(OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf").protocol is Protocol.HTTP
    both = {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}
    assert from_environment(**both).protocol is Protocol.GRPC
    assert from_environment(OTEL_TRACES_EXPORTER="console").protocol is Protocol.CONSOLE


def test_the_queue_follows_the_batch_processors_variables() -> None:
    settings = from_environment(
        OTEL_BSP_MAX_QUEUE_SIZE="100", OTEL_BSP_MAX_EXPORT_BATCH_SIZE="500", OTEL_BSP_SCHEDULE_DELAY="250"
    )
    assert (settings.max_queue_spans, settings.max_batch_spans, settings.delay_s) == (100, 100, 0.25)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ("OTEL_TRACES_SAMPLER_ARG", "often"),
        ("OTEL_TRACES_SAMPLER_ARG", "1.5"),
        ("OTEL_TRACES_SAMPLER_ARG", "nan"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-5"),
        ("OTEL_BSP_SCHEDULE_DELAY", "soon"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "9" * 5000),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
    ],
)
def test_what_cannot_be_understood_is_told_and_ignored(name: str, value: str) -> None:
    settings, warnings = tracing_settings(NO_FLAGS, {name: value})
    assert len(warnings) == 1
    assert name in warnings[0]
    assert settings.sampler == Sampler(0.1)
    assert (settings.max_queue_spans, settings.max_batch_spans, settings.delay_s) == (2048, 512, 5.0)
