"""What the containers run exists: every flag with its value, and the configuration that is mounted."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.chart import Chart, Object, named

from heliotrope_cli.commands.epp import epp
from heliotrope_cli.commands.operator import operator
from heliotrope_cli.commands.trainer import trainer
from heliotrope_cli.main import build_app
from heliotrope_epp.config.loader import load
from heliotrope_epp.plugins.builtin import builtin_registry

pytestmark = pytest.mark.controlplane

POOL: dict[str, Any] = {"pool": {"name": "llama", "namespace": "llm"}}


def container(chart: Chart, values: dict[str, Any], deployment: str) -> Object:
    spec = named(chart.objects(values), "Deployment", deployment)["spec"]["template"]["spec"]
    found: Object = spec["containers"][0]
    return found


def called(found: Object) -> tuple[Any, dict[str, Any]]:
    """The function that a container's arguments call, and with what; an unknown flag or a bad value raises."""
    command, bound, _ = build_app().parse_args(found["args"], print_error=False, exit_on_error=False)
    return command, dict(bound.arguments)


def listening(found: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in found["ports"]}


@pytest.mark.parametrize(
    ("values", "tls"),
    [
        ({}, {"secure_serving": True}),
        ({"tls": {"secretName": "x"}}, {"secure_serving": True, "cert_path": Path("/etc/heliotrope/tls")}),
        ({"tls": {"enabled": False}}, {"secure_serving": False}),
        ({"homeRegion": "spain"}, {"secure_serving": True, "home_region": "spain"}),
        (
            {"learning": {"trainerUrl": "http://trainer:8000"}},
            {"secure_serving": True, "trainer_url": "http://trainer:8000"},
        ),
        (
            {"sessions": {"gate": {"configMap": {"name": "session-gate"}}}},
            {"secure_serving": True, "session_gate": Path("/etc/heliotrope/gate/gate")},
        ),
        (
            {
                "models": {
                    "quality": {"configMap": {"name": "quality"}},
                    "scorerUrl": "http://scorer.llm:8080/score",
                    "scorerTimeoutMilliseconds": 150,
                }
            },
            {
                "secure_serving": True,
                "quality_model": Path("/etc/heliotrope/quality/quality"),
                "quality_url": "http://scorer.llm:8080/score",
                "quality_timeout": 0.15,
            },
        ),
        (
            {"energy": {"port": 9400}},
            {"secure_serving": True, "energy_port": 9400, "energy_path": "/metrics"},
        ),
    ],
)
def test_the_picker_understands_its_arguments(chart: Chart, values: dict[str, Any], tls: dict[str, Any]) -> None:
    found = container(chart, POOL | {"picker": values, "logLevel": "debug"}, "heliotrope-picker")
    command, arguments = called(found)
    assert command is epp
    ports = listening(found)
    mounts = {mount["name"]: mount["mountPath"] for mount in found["volumeMounts"]}
    assert arguments == tls | {
        "pool_name": "llama",
        "pool_namespace": "llm",
        "config_file": Path("/etc/heliotrope/config/config.yaml"),
        "grpc_port": ports["grpc-ext-proc"],
        "health_port": ports["grpc-health"],
        "metrics_port": ports["http-metrics"],
        "max_sessions": 1_000_000,
        "router_core_watts": 10.0,
        "learn": True,
        "state_dir": Path(mounts["learned"]),
        "meter": True,
        "ledger": True,
        "ledger_dir": Path(mounts["ledger"]),
        "ledger_max_bytes": 805_306_368,
        "ledger_max_days": 400.0,
        "drain_seconds": 5.0,
        "grace_seconds": 120.0,
        "log_level": "debug",
        "log_format": "json",
    }


@pytest.mark.parametrize(("ratio", "secret"), [(0.25, ""), (0, "collector-token"), (0.000001, "")])
def test_the_picker_is_told_where_spans_go(chart: Chart, ratio: float, secret: str) -> None:
    tracing = {"endpoint": "https://c:4318", "protocol": "http/protobuf", "ratio": ratio, "headersSecret": secret}
    found = container(chart, POOL | {"tracing": tracing}, "heliotrope-picker")
    _, arguments = called(found)
    assert arguments["otlp_endpoint"] == "https://c:4318"
    assert arguments["otlp_protocol"] == "http/protobuf"
    assert arguments["trace_ratio"] == ratio
    given = {variable["name"]: variable for variable in found["env"]}
    assert given["OTEL_RESOURCE_ATTRIBUTES"]["value"] == "k8s.namespace.name=$(POD_NAMESPACE),k8s.pod.name=$(POD_NAME)"
    headers = given.get("OTEL_EXPORTER_OTLP_HEADERS")
    expected = {"secretKeyRef": {"name": secret, "key": "OTEL_EXPORTER_OTLP_HEADERS"}}
    assert (headers is None) if not secret else (headers is not None and headers["valueFrom"] == expected)


def test_without_a_collector_nothing_is_said_of_traces(chart: Chart) -> None:
    found = container(chart, POOL, "heliotrope-picker")
    assert not [
        text for text in (*found["args"], *(e["name"] for e in found["env"])) if "otlp" in text or "OTEL" in text
    ]


@pytest.mark.parametrize(
    ("namespaces", "scope"), [([], {"all_namespaces": True}), (["llm", "batch"], {"namespaces": ("llm", "batch")})]
)
def test_the_operator_understands_its_arguments(chart: Chart, namespaces: list[str], scope: dict[str, Any]) -> None:
    found = container(chart, {"operator": {"namespaces": namespaces}}, "heliotrope-operator")
    command, arguments = called(found)
    assert command is operator
    ports = listening(found)
    assert arguments == scope | {
        "metrics_port": ports["http-metrics"],
        "health_port": ports["http-health"],
        "log_level": "info",
        "log_format": "json",
    }


def test_the_trainer_understands_its_arguments(chart: Chart) -> None:
    found = container(chart, POOL | {"trainer": {"enabled": True}}, "heliotrope-trainer")
    command, arguments = called(found)
    assert command is trainer
    ports = listening(found)
    assert arguments == {
        "port": ports["http"],
        "metrics_port": ports["http-metrics"],
        "state_dir": Path(found["volumeMounts"][0]["mountPath"]),
        "log_level": "info",
        "log_format": "json",
    }


def test_the_picker_takes_the_configuration_that_is_mounted(chart: Chart) -> None:
    objects = chart.objects(POOL)
    found = container(chart, POOL, "heliotrope-picker")
    (mount,) = [each for each in found["volumeMounts"] if each["name"] == "config"]
    _, arguments = called(found)
    assert arguments["config_file"].parent == Path(mount["mountPath"])
    text = named(objects, "ConfigMap", "heliotrope-picker")["data"][arguments["config_file"].name]
    loaded = load(text, builtin_registry())
    assert loaded.warnings == ()
