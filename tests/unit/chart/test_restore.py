"""The Job that puts everything back before the release is deleted."""

from typing import Any

import pytest
from tests.support.chart import Chart, Object, named, of_kind

from heliotrope_cli.commands.restore import restore
from heliotrope_cli.main import build_app

pytestmark = pytest.mark.controlplane

NAME = "heliotrope-operator-restore"


def job(chart: Chart, values: dict[str, Any] | None = None) -> Object:
    return named(chart.objects(values), "Job", NAME)


def stopping(objects: list[Object]) -> list[tuple[list[str], list[str]]]:
    """What Roles of the release's own namespace say of scaling Deployments: names and verbs."""
    rules = [
        rule
        for role in of_kind(objects, "Role")
        if role["metadata"]["namespace"] == "heliotrope-system"
        for rule in role["rules"]
        if "deployments/scale" in rule["resources"]
    ]
    return [(rule["resourceNames"], rule["verbs"]) for rule in rules]


def test_helm_runs_it_before_it_deletes_and_runs_it_anew_after_a_failure(chart: Chart) -> None:
    annotations = job(chart)["metadata"]["annotations"]
    assert annotations["helm.sh/hook"] == "pre-delete"
    assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    spec = job(chart)["spec"]
    assert spec["activeDeadlineSeconds"] < 300, "helm itself waits for five minutes"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("operator", "namespaces"), [({}, {}), ({"namespaces": ["llm", "batch"]}, {"namespaces": ("llm", "batch")})]
)
def test_the_command_understands_its_arguments(
    chart: Chart, operator: dict[str, Any], namespaces: dict[str, Any]
) -> None:
    (container,) = job(chart, {"operator": operator})["spec"]["template"]["spec"]["containers"]
    command, bound, _ = build_app().parse_args(container["args"], print_error=False, exit_on_error=False)
    assert command is restore
    stopped = {"operator_namespace": "heliotrope-system", "stop": "heliotrope-operator"}
    assert bound.arguments == stopped | namespaces


def test_it_acts_as_the_operator_and_may_stop_that_one_deployment(chart: Chart) -> None:
    objects = chart.objects()
    deployment = named(objects, "Deployment", "heliotrope-operator")
    own, its = job(chart)["spec"]["template"], deployment["spec"]["template"]
    assert own["spec"]["serviceAccountName"] == its["spec"]["serviceAccountName"]
    assert own["spec"]["containers"][0]["image"] == its["spec"]["containers"][0]["image"]
    assert stopping(objects) == [(["heliotrope-operator"], ["get", "patch"])]


def test_it_meets_the_restricted_standard_and_no_service_selects_it(chart: Chart) -> None:
    template = job(chart)["spec"]["template"]
    assert template["spec"]["securityContext"]["runAsNonRoot"] is True
    assert template["spec"]["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "memory" in template["spec"]["containers"][0]["resources"]["limits"]
    for service in of_kind(chart.objects(), "Service", "NetworkPolicy"):
        selector = service["spec"].get("selector") or service["spec"]["podSelector"]["matchLabels"]
        assert not selector.items() <= template["metadata"]["labels"].items()


@pytest.mark.parametrize("operator", [{"restoreOnUninstall": False}, {"parts": {"scaling": False}}, {"enabled": False}])
def test_without_anything_to_put_back_or_on_request_there_is_none(chart: Chart, operator: dict[str, Any]) -> None:
    objects = chart.objects({"operator": operator})
    assert of_kind(objects, "Job") == []
    assert stopping(objects) == []
