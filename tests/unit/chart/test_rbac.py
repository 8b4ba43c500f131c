"""Rights: no more than the documents of operator and picker say, each rule explained, every binding whole."""

import re
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from tests.support.chart import CHART, ROOT, Chart, HelmError, Object, of_kind

pytestmark = pytest.mark.controlplane

Right = tuple[str, str, str, str]
"""Group, resource, name of the object or empty, verb."""

AGENT: dict[str, Any] = {"agent": {"enabled": True}}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"pool": {"name": "llama", "namespace": "llm"}},
    {"pool": {"name": "llama", "namespace": "llm"}, "operator": {"namespaces": ["llm", "batch"]}},
    AGENT,
]
OWN_DELETES = {"nodepowers": {"delete"}}
"""The operator creates NodePowers, and nobody else deletes them for it."""
SYSTEM = "heliotrope-system"
AGGREGATED = {"heliotrope.io/aggregate-to-operator": "true"}
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


def aggregated(role: Object) -> bool:
    """Whether its rules reach the operator through the role that collects them."""
    return AGGREGATED.items() <= role["metadata"]["labels"].items()


def all_rights(found: list[Object]) -> set[Right]:
    return set().union(*(rights(each["rules"]) for each in found))


@pytest.mark.parametrize("values", VARIANTS)
def test_no_wildcards_and_no_way_up(chart: Chart, values: dict[str, Any]) -> None:
    objects = of_kind(chart.objects(values), "Role", "ClusterRole")
    assert objects
    for each in objects:
        if "aggregationRule" in each:
            assert each["aggregationRule"] == {"clusterRoleSelectors": [{"matchLabels": AGGREGATED}]}
            assert each["rules"] == []
        for rule in each["rules"]:
            assert "nonResourceURLs" not in rule
        for group, resource, _, verb in rights(each["rules"]):
            assert "*" not in (group, verb)
            assert "*" not in resource
            assert verb in {"get", "list", "watch"} | WRITES - {"delete", "deletecollection"} | OWN_DELETES.get(
                resource, set()
            )
            assert resource not in {"serviceaccounts/token", "pods/exec", "nodes/proxy"}
            if resource == "secrets":
                assert (each["kind"], each["metadata"]["namespace"], verb) == ("Role", SYSTEM, "get")
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
    bound = set()
    for each in bindings:
        kind, name = each["roleRef"]["kind"], each["roleRef"]["name"]
        assert kind == each["kind"].removesuffix("Binding") or name.endswith("-scaling")
        role = (kind, each["metadata"].get("namespace") if kind == "Role" else None, name)
        assert role in existing
        bound.add(role)
        for subject in each["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in existing
    own = [each for each in of_kind(objects, "Role", "ClusterRole") if not aggregated(each)]
    assert bound == {(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in own}


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
    (cluster,) = [each for each in of_kind(listed, "ClusterRole") if each["rules"] and not aggregated(each)]
    cluster_wide = {
        "regionprofiles",
        "regionprofiles/status",
        "customresourcedefinitions",
        "namespaces",
        "nodes",
        "nodepowers",
    }
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
    return _documented_rights((ROOT / "docs" / "operator.md").read_text(encoding="utf-8"))


def _documented_rights(text: str) -> set[Right]:
    found: set[Right] = set()
    has_names = False
    for line in text.splitlines():
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
    documented = of_kind(
        list(yaml.safe_load_all(block.replace("POOL-NAME]", "llama]").replace("[POOL-NAMESPACE]", "[llm]"))),
        "Role",
        "ClusterRole",
    )
    shipped = roles(chart.objects(VARIANTS[1]), "picker")
    for kind in ("Role", "ClusterRole"):
        assert all_rights(of_kind(shipped, kind)) == all_rights(of_kind(documented, kind))


def test_without_parts_the_operator_knows_no_pods(chart: Chart) -> None:
    off = dict.fromkeys(("scaling", "activation", "power", "deferral"), False)
    found = all_rights(roles(chart.objects({"operator": {"parts": off}}), "operator"))
    assert not {resource for _, resource, _, _ in found} & {"pods", "nodes", "namespaces", "nodepowers"}


def test_what_may_be_scaled_is_one_role_per_kind_where_the_operator_serves(chart: Chart) -> None:
    objects = chart.objects({"operator": {"namespaces": ["llm", "batch"]}})
    kinds = {
        each["metadata"]["name"].rpartition("-")[2]: each
        for each in of_kind(objects, "ClusterRole")
        if aggregated(each)
    }
    assert kinds.keys() == {"deployments", "statefulsets", "leaderworkersets"}
    for plural, role in kinds.items():
        assert {(resource, verb) for _, resource, _, verb in rights(role["rules"])} == {
            (resource, verb) for resource in (plural, f"{plural}/scale") for verb in ("get", "patch")
        }
    bindings = [each for each in of_kind(objects, "RoleBinding") if each["metadata"]["name"].endswith("-scaling")]
    assert {each["metadata"]["namespace"] for each in bindings} == {"llm", "batch"}
    assert not [
        each for each in of_kind(objects, "ClusterRoleBinding") if each["metadata"]["name"].endswith("-scaling")
    ]


def test_without_scaling_nothing_of_other_people_is_written(chart: Chart) -> None:
    objects = chart.objects({"operator": {"parts": {"scaling": False}}})
    assert not [each for each in of_kind(objects, "ClusterRole") if aggregated(each) or "aggregationRule" in each]
    written = {
        (group, resource) for group, resource, _, verb in all_rights(roles(objects, "operator")) if verb == "patch"
    }
    assert not written & {
        ("autoscaling", "horizontalpodautoscalers"), ("keda.sh", "scaledobjects"), ("apps", "deployments"),
        ("apps", "deployments/scale"),
    }  # fmt: skip
    assert of_kind(objects, "Job") == []


def test_kueue_is_touched_only_where_it_is_asked_for(chart: Chart) -> None:
    def granted(values: dict[str, Any]) -> set[tuple[str, str]]:
        found = all_rights(roles(chart.objects(values), "operator"))
        return {(resource, verb) for group, resource, _, verb in found if group == "kueue.x-k8s.io"}

    parts = {"operator": {"parts": {"kueue": True}}}
    reads = {(kind, verb) for kind in ("admissionchecks", "workloads") for verb in ("get", "list", "watch")}
    assert granted({}) == set()
    assert granted(parts) == reads | {("admissionchecks/status", "patch"), ("workloads/status", "patch")}
    assert granted({"operator": {"parts": {"kueue": True, "deferral": False}}}) == set()


def test_the_agent_has_the_rights_of_its_document(chart: Chart) -> None:
    objects = chart.objects(AGENT)
    rules = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8").partition("\n## Rights in the cluster")[2]
    assert all_rights(roles(objects, "agent")) == _documented_rights(rules.partition("\n## ")[0])
    accounts = {each["metadata"]["name"]: each for each in of_kind(objects, "ServiceAccount")}
    assert accounts["heliotrope-agent"]["automountServiceAccountToken"] is False
    (policy,) = of_kind(objects, "ValidatingAdmissionPolicy")
    (binding,) = of_kind(objects, "ValidatingAdmissionPolicyBinding")
    assert binding["spec"] == {"policyName": policy["metadata"]["name"], "validationActions": ["Deny"]}
    assert policy["spec"]["failurePolicy"] == "Fail"
    (condition,) = policy["spec"]["matchConditions"]
    assert condition["expression"].endswith("== 'system:serviceaccount:heliotrope-system:heliotrope-agent'")
    written = {(group, resource) for group, resource, _, verb in all_rights(roles(objects, "agent")) if verb in WRITES}
    ruled = {
        (group, resource)
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert written <= ruled


def test_the_binding_to_the_node_can_be_left_out_where_the_cluster_is_too_old(chart: Chart) -> None:
    old = ("template", "release", str(CHART), "--kube-version=1.29.0")
    with pytest.raises(HelmError, match=r"needs Kubernetes 1\.30"):
        chart.run(*old, values=AGENT)
    without = {"agent": {"enabled": True, "admissionPolicy": False}}
    assert "kind: ValidatingAdmissionPolicy" not in chart.run(*old, values=without)


def test_the_hub_has_no_rights(chart: Chart) -> None:
    objects = chart.objects({"hub": {"enabled": True, "plan": {"schema": 1}, "tlsSecretName": "tls"}})
    (account,) = [each for each in of_kind(objects, "ServiceAccount") if each["metadata"]["name"] == "heliotrope-hub"]
    assert account["automountServiceAccountToken"] is False
    bound = {
        subject["name"]
        for each in of_kind(objects, "RoleBinding", "ClusterRoleBinding")
        for subject in each["subjects"]
    }
    assert "heliotrope-hub" not in bound
