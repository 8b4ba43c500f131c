"""Rights: no more than the documents of operator and picker say, each rule explained, every binding whole."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from tests.support.chart import ROOT, Chart, Object, of_kind

pytestmark = pytest.mark.controlplane

Right = tuple[str, str, str, str]
"""Group, resource, name of the object or empty, verb."""

VARIANTS: list[dict[str, Any]] = [
    {},
    {"pool": {"name": "llama", "namespace": "llm"}},
    {"pool": {"name": "llama", "namespace": "llm"}, "operator": {"namespaces": ["llm", "batch"]}},
]
WRITES = {"create", "update", "patch", "delete", "deletecollection"}


def rights(rules: Iterable[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, name, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
        for verb in rule["verbs"]
    }


def roles(objects: list[Object], part: str) -> list[Object]:
    found = [
        each
        for each in of_kind(objects, "Role", "ClusterRole")
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == part
    ]
    assert found
    return found


def all_rights(found: list[Object]) -> set[Right]:
    return set().union(*(rights(each["rules"]) for each in found))


@pytest.mark.parametrize("values", VARIANTS)
def test_no_wildcards_and_no_way_up(chart: Chart, values: dict[str, Any]) -> None:
    objects = of_kind(chart.objects(values), "Role", "ClusterRole")
    assert objects
    for each in objects:
        assert "aggregationRule" not in each
        for rule in each["rules"]:
            assert "nonResourceURLs" not in rule
        for group, resource, _, verb in rights(each["rules"]):
            assert "*" not in (group, verb)
            assert "*" not in resource
            assert verb in {"get", "list", "watch"} | WRITES - {"delete", "deletecollection"}
            assert resource not in {"secrets", "serviceaccounts/token", "pods/exec", "nodes/proxy"}
            assert group not in {"rbac.authorization.k8s.io", "authentication.k8s.io", "authorization.k8s.io"}


def test_the_picker_only_reads(chart: Chart) -> None:
    assert not {verb for *_, verb in all_rights(roles(chart.objects(VARIANTS[1]), "picker"))} & WRITES


@pytest.mark.parametrize("values", VARIANTS)
def test_every_rule_says_what_it_is_for(chart: Chart, values: dict[str, Any]) -> None:
    lines = chart.template(values).splitlines()
    rules = [number for number, line in enumerate(lines) if re.match(r"\s*- apiGroups:", line)]
    assert len(rules) >= 8
    for number in rules:
        assert re.match(r"\s*# \w.+\.$", lines[number - 1]), f"no reason above {lines[number : number + 3]}"


@pytest.mark.parametrize("values", VARIANTS)
def test_every_binding_names_a_role_and_an_account_that_exist(chart: Chart, values: dict[str, Any]) -> None:
    objects = chart.objects(values)
    existing = {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in objects}
    bindings = of_kind(objects, "RoleBinding", "ClusterRoleBinding")
    assert len(bindings) == len(of_kind(objects, "Role", "ClusterRole"))
    for each in bindings:
        kind = each["roleRef"]["kind"]
        assert kind == each["kind"].removesuffix("Binding")
        assert (kind, each["metadata"].get("namespace"), each["roleRef"]["name"]) in existing
        for subject in each["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in existing


def test_operator_and_picker_have_accounts_of_their_own(chart: Chart) -> None:
    objects = chart.objects(VARIANTS[1])
    accounts = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    assert accounts.keys() == {"heliotrope-operator", "heliotrope-picker"}
    assert not any(each["automountServiceAccountToken"] for each in accounts.values())
    used = {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]["serviceAccountName"]
        for each in of_kind(objects, "Deployment")
    }
    assert used == {"heliotrope-operator": "heliotrope-operator", "heliotrope-picker": "heliotrope-picker"}


def test_listed_namespaces_take_the_place_of_the_cluster(chart: Chart) -> None:
    everywhere = roles(chart.objects(), "operator")
    listed = roles(chart.objects({"operator": {"namespaces": ["llm", "batch"]}}), "operator")
    (cluster,) = of_kind(listed, "ClusterRole")
    cluster_wide = {"regionprofiles", "regionprofiles/status", "customresourcedefinitions"}
    assert {resource for _, resource, _, _ in rights(cluster["rules"])} == cluster_wide
    assert all_rights(listed) == all_rights(everywhere)
    assert {each["metadata"].get("namespace") for each in listed} == {
        None, "heliotrope-system", "llm", "batch", "default",
    }  # fmt: skip


def test_rights_can_be_left_to_an_administrator(chart: Chart) -> None:
    objects = chart.objects(VARIANTS[2] | {"rbac": {"create": False}})
    assert of_kind(objects, "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding") == []
    assert len(of_kind(objects, "ServiceAccount")) == 2


def _documented_operator_rights() -> set[Right]:
    """The tables of docs/operator.md."""
    found: set[Right] = set()
    has_names = False
    for line in (ROOT / "docs" / "operator.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] == "apiGroups":
            has_names = "resourceNames" in cells
        elif line.startswith("|") and re.match(r"`[a-z0-9.-]+`|\(core\)", cells[0]):
            group = cells[0].strip("`").replace("(core)", "")
            object_names = re.findall(r"`([^`]+)`", cells[3]) if has_names else []
            verbs = [verb.strip() for verb in cells[2].split(",")]
            found |= rights(
                [
                    {"apiGroups": [group], "resources": re.findall(r"`([^`]+)`", cells[1]), "verbs": verbs}
                    | ({"resourceNames": object_names} if object_names else {})
                ]
            )
    return found


def test_operator_has_the_rights_of_its_document(chart: Chart) -> None:
    documented = _documented_operator_rights()
    assert len(documented) > 20
    assert all_rights(roles(chart.objects(), "operator")) == documented


def test_picker_has_the_rights_of_its_document(chart: Chart) -> None:
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    (block,) = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "kind: ClusterRole\n" in each]
    documented = of_kind(list(yaml.safe_load_all(block.replace("POOL-NAME]", "llama]"))), "Role", "ClusterRole")
    shipped = roles(chart.objects(VARIANTS[1]), "picker")
    for kind in ("Role", "ClusterRole"):
        assert all_rights(of_kind(shipped, kind)) == all_rights(of_kind(documented, kind))
