"""What the containers run exists: every flag with its value, and the configuration that is mounted."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.support.chart import ROOT, Chart, Object, named

from heliotrope.scale.hub import parse_plan
from heliotrope_cli.commands.agent import agent
from heliotrope_cli.commands.epp import epp
from heliotrope_cli.commands.hub import hub
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
        "hold_requests": 1_000,
        "hold_bytes": 67_108_864,
        "hold_ttl": 180.0,
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
    parts = dict.fromkeys(("scaling", "activation", "power", "deferral"), True) | {"kueue": False}
    assert arguments == scope | parts | {
        "metrics_port": ports["http-metrics"],
        "health_port": ports["http-health"],
        "log_level": "info",
        "log_format": "json",
    }


@pytest.mark.parametrize("part", ["scaling", "activation", "power", "deferral"])
def test_a_part_of_the_operator_can_be_switched_off(chart: Chart, part: str) -> None:
    found = container(chart, {"operator": {"parts": {part: False}}}, "heliotrope-operator")
    _, arguments = called(found)
    assert {
        name: arguments[name] for name in ("scaling", "activation", "power", "deferral") if not arguments[name]
    } == {part: False}


def test_the_operator_is_told_its_hub(chart: Chart) -> None:
    values = yaml.safe_load((ROOT / "examples" / "hub" / "member-values.yaml").read_text())
    found = container(chart, values, "heliotrope-operator")
    _, arguments = called(found)
    (mount,) = found["volumeMounts"]
    assert {name: value for name, value in arguments.items() if name.startswith("hub_")} == {
        "hub_url": values["operator"]["hub"]["url"],
        "hub_member": "madrid",
        "hub_ca": Path(mount["mountPath"]) / "ca.crt",
        "hub_token": Path(mount["mountPath"]) / "token",
    }


@pytest.mark.parametrize("secret", ["", "prometheus"])
def test_the_operator_is_told_its_prometheus(chart: Chart, secret: str) -> None:
    url = "https://thanos.monitoring:9091"
    values = {"operator": {"prometheus": {"url": url, "secretName": secret}}}
    _, arguments = called(container(chart, values, "heliotrope-operator"))
    told = {name: value for name, value in arguments.items() if name.startswith("prometheus_")}
    assert told == {"prometheus_url": url} | ({"prometheus_secret": secret} if secret else {})


@pytest.mark.parametrize(
    ("values", "agent_more", "both_more"),
    [
        ({}, {}, {}),
        (
            {"sampleSeconds": 0.1, "dcgmNames": False, "metricsPort": 9_999},
            {"sample_seconds": 0.1, "dcgm_names": False, "metrics_port": 9_999},
            {},
        ),
        (
            {"originalSmClockMhz": 1_200, "originalMemoryClockMhz": 1_593, "extraArgs": ["--watchdog-seconds=9"]},
            {},
            {"original_sm_clock_mhz": 1_200, "original_memory_clock_mhz": 1_593, "watchdog_seconds": 9.0},
        ),
    ],
)
def test_the_agent_and_its_watchdog_understand_their_arguments(
    chart: Chart, values: dict[str, Any], agent_more: dict[str, Any], both_more: dict[str, Any]
) -> None:
    objects = chart.objects({"agent": values | {"enabled": True}})
    main, watchdog = named(objects, "DaemonSet", "heliotrope-agent")["spec"]["template"]["spec"]["containers"]
    both = {"state_folder": Path("/var/lib/heliotrope"), "log_level": "info", "log_format": "json"} | both_more
    command, arguments = called(main)
    assert command is agent
    port = listening(main)["http-metrics"]
    own = {"require_watchdog": True, "metrics_port": port, "sample_seconds": 1.0, "dcgm_names": True}
    assert arguments == both | own | agent_more
    command, arguments = called(watchdog)
    assert command is agent
    assert arguments == both | {"watchdog": True}
    folders = {mount["mountPath"] for mount in main["volumeMounts"]}
    assert folders >= {"/var/lib/heliotrope", "/var/lib/kubelet/pod-resources"}


def test_the_agents_of_the_example_are_read_by_its_pickers(chart: Chart) -> None:
    example = yaml.safe_load((ROOT / "examples" / "agent" / "values.yaml").read_text())
    objects = chart.objects(POOL | example)
    main, _ = named(objects, "DaemonSet", "heliotrope-agent")["spec"]["template"]["spec"]["containers"]
    _, arguments = called(main)
    assert arguments["lower_dwell_seconds"] == 120.0
    _, picker = called(named(objects, "Deployment", "heliotrope-picker")["spec"]["template"]["spec"]["containers"][0])
    assert picker["energy_port"] == listening(main)["http-metrics"]


def test_the_hub_understands_its_arguments_and_its_plan(chart: Chart) -> None:
    values = yaml.safe_load((ROOT / "examples" / "hub" / "hub-values.yaml").read_text())
    found = container(chart, values, "heliotrope-hub")
    command, arguments = called(found)
    assert command is hub
    ports = listening(found)
    mounts = {mount["name"]: Path(mount["mountPath"]) for mount in found["volumeMounts"]}
    assert arguments == {
        "plan": mounts["plan"] / "plan.yaml",
        "tls_cert": mounts["tls"] / "tls.crt",
        "tls_key": mounts["tls"] / "tls.key",
        "tokens": mounts["tokens"],
        "valid_seconds": 600.0,
        "port": ports["https"],
        "metrics_port": ports["http-metrics"],
        "log_level": "info",
        "log_format": "json",
    }
    written = named(chart.objects(values), "ConfigMap", "heliotrope-hub")["data"]["plan.yaml"]
    shipped = yaml.safe_load((ROOT / "examples" / "hub" / "plan.yaml").read_text())
    assert parse_plan(yaml.safe_load(written)) == parse_plan(shipped)


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
