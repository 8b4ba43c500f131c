"""`helm install`, `upgrade`, `rollback` and `uninstall` on a real API server, as docs/install.md tells."""

import os
import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e import our_crds
from tests.support.chart import CHART, LOADER
from tests.support.controlplane import Cluster, CommandError

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


class Site:
    """Two namespaces of a cluster: one for the operator, and one with an InferencePool."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        run = uuid.uuid4().hex[:8]
        self.cluster = cluster
        self.folder = folder
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        self.system = cluster.namespace(f"heliotrope-{run}", **restricted)
        self.models = cluster.namespace(f"models-{run}", **restricted)
        self.pool = f"llama-{run}"
        self.region = f"spain-{run}"
        cluster.apply(
            {
                "apiVersion": "inference.networking.k8s.io/v1",
                "kind": "InferencePool",
                "metadata": {"name": self.pool, "namespace": self.models},
                "spec": {
                    "selector": {"matchLabels": {"app": "llama"}},
                    "targetPorts": [{"number": 8000}],
                    "endpointPickerRef": {"name": "another-picker", "port": {"number": 9002}},
                },
            }
        )

    def helm(self, command: str, *arguments: str, values: dict[str, Any] | None = None, chart: Path = CHART) -> str:
        """Install or upgrade the release with values."""
        file = self.folder / "values.yaml"
        file.write_text(yaml.safe_dump(values or {}))
        flags = ["--namespace", self.system, "--values", str(file), *arguments]
        return self.cluster.helm(command, "heliotrope", str(chart), *flags)

    def release(self, command: str, *arguments: str) -> str:
        """Another command on the release."""
        return self.cluster.helm(command, "heliotrope", *arguments, "--namespace", self.system)

    def with_picker(self, **values: Any) -> dict[str, Any]:
        return {"pool": {"name": self.pool, "namespace": self.models}} | values

    def create_region(self) -> None:
        our_crds.wait(self.cluster)
        self.cluster.apply(
            {
                "apiVersion": "heliotrope.io/v1alpha1",
                "kind": "RegionProfile",
                "metadata": {"name": self.region},
                "spec": {"zone": "ES", "source": {"static": {"intensityGramsPerKwh": "140"}}},
            }
        )

    def regions(self) -> list[str]:
        return self.cluster.kubectl("get", "regionprofiles", "-o", "name").split()

    def remove(self) -> None:
        self.cluster.helm("uninstall", "heliotrope", "--namespace", self.system, "--ignore-not-found")
        our_crds.remove(self.cluster)
        self.cluster.kubectl("delete", "namespace", self.system, self.models, "--wait=false")


@pytest.fixture
def site(bare_cluster: Cluster, tmp_path: Path) -> Iterator[Site]:
    site = Site(bare_cluster, tmp_path)
    try:
        yield site
    finally:
        site.remove()


def test_the_defaults_install(site: Site) -> None:
    notes = site.helm("install")
    assert "helm --namespace" in notes
    our_crds.wait(site.cluster)
    found = site.cluster.get("deployments", "--namespace", site.system)["items"]
    assert [each["metadata"]["name"] for each in found] == ["heliotrope-operator"]


def test_what_the_notes_say_works(site: Site) -> None:
    """Every command that they give for the next steps, as it is copied from the screen."""
    notes = site.helm("install", values=site.with_picker())
    our_crds.wait(site.cluster)
    commands = re.findall(r"^  (kubectl [^\n]*?(?:<<EOF\n.*?^EOF)?)$", notes, re.DOTALL | re.MULTILINE)
    assert sum("rollout status" in command for command in commands) == 2
    next_steps = [command for command in commands if "rollout status" not in command]
    assert len(next_steps) == 5
    environment = os.environ | {
        "KUBECONFIG": str(site.cluster.kubeconfig),
        "PATH": f"{site.cluster.programs}{os.pathsep}{os.environ['PATH']}",
    }
    for command in next_steps:
        subprocess.run(["bash", "-euc", command], env=environment, check=True, capture_output=True, timeout=60)
    pool = site.cluster.get("inferencepools", site.pool, "--namespace", site.models)
    reference = pool["spec"]["endpointPickerRef"]
    service = site.cluster.get("service", reference["name"], "--namespace", site.models)
    assert reference["port"]["number"] in {port["port"] for port in service["spec"]["ports"]}
    policy = site.cluster.get("carbonpolicies", site.pool, "--namespace", site.models)
    assert policy["spec"]["enforcement"] == "Advise"


def test_pods_are_admitted_where_the_restricted_standard_is_enforced(site: Site) -> None:
    site.helm("install", values=site.with_picker(picker={"tls": {"secretName": "picker-tls"}}))
    for namespace, name in ((site.system, "heliotrope-operator"), (site.models, "heliotrope-picker")):
        spec = site.cluster.get("deployment", name, "--namespace", namespace)["spec"]["template"]["spec"]
        site.cluster.apply(_pod("admitted", namespace, spec))
        privileged = _pod("refused", namespace, spec | {"securityContext": {"runAsUser": 0}})
        with pytest.raises(CommandError, match="violates PodSecurity"):
            site.cluster.apply(privileged)


def _pod(name: str, namespace: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def test_upgrade_changes_values_and_crds_and_rollback_takes_both_back(site: Site) -> None:
    site.helm("install", values=site.with_picker())
    site.create_region()
    newer = site.folder / "newer"
    shutil.copytree(CHART, newer)
    _add_field(newer / "files" / "crds" / "heliotrope.io_regionprofiles.yaml", "operatorNote")

    site.helm("upgrade", values=site.with_picker(picker={"replicas": 2}), chart=newer)
    assert "operatorNote" in site.cluster.kubectl("get", "crd", "regionprofiles.heliotrope.io", "-o", "yaml")
    assert _replicas(site) == 2
    site.cluster.get("poddisruptionbudget", "heliotrope-picker", "--namespace", site.models)
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"]

    site.release("rollback", "1")
    assert "operatorNote" not in site.cluster.kubectl("get", "crd", "regionprofiles.heliotrope.io", "-o", "yaml")
    assert _replicas(site) == 1
    with pytest.raises(CommandError, match="NotFound"):
        site.cluster.get("poddisruptionbudget", "heliotrope-picker", "--namespace", site.models)
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"]


def _add_field(path: Path, name: str) -> None:
    definition = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"][name] = {"type": "string", "maxLength": 10}
    text = yaml.safe_dump(definition, sort_keys=False)
    path.write_text(f"# A changed definition.\n{text}", encoding="utf-8")


def _replicas(site: Site) -> int:
    found = site.cluster.get("deployment", "heliotrope-picker", "--namespace", site.models)
    return int(found["spec"]["replicas"])


def test_uninstall_leaves_what_people_wrote_and_a_new_installation_finds_it(site: Site) -> None:
    site.helm("install", values=site.with_picker())
    site.create_region()
    said = site.release("uninstall")
    assert all(f"{kind}.heliotrope.io" in said for kind in our_crds.KINDS), "helm names what it keeps"
    for namespace in (site.system, site.models):
        kinds = "deployments,services,configmaps,serviceaccounts,roles,rolebindings,networkpolicies"
        selector = "app.kubernetes.io/part-of=heliotrope"
        assert site.cluster.get(kinds, "--namespace", namespace, "--selector", selector)["items"] == []
    cluster_wide = site.cluster.kubectl("get", "clusterroles,clusterrolebindings", "-o", "name")
    assert "heliotrope" not in cluster_wide
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"]

    site.helm("install", values=site.with_picker())
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"]


@pytest.mark.timeout(300)
def test_uninstall_removes_everything_when_told_so_before(site: Site) -> None:
    site.helm("install")
    site.create_region()
    site.helm("upgrade", values={"crds": {"install": False}})
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"], "kept when let go of, too"
    site.helm("upgrade", values={"crds": {"keep": False}})
    assert site.regions() == [f"regionprofile.heliotrope.io/{site.region}"]
    with our_crds.nudged(site.cluster):
        site.release("uninstall", "--wait")
    assert our_crds.present(site.cluster) == []


def test_region_profiles_in_the_values_come_with_an_upgrade_and_go_with_the_release(site: Site) -> None:
    profiles = {site.region: {"zone": "NO", "source": {"static": {"intensityGramsPerKwh": "34"}}}}
    with pytest.raises(CommandError, match="Install first without regionProfiles"):
        site.helm("install", values={"regionProfiles": profiles})
    site.helm("install")
    our_crds.wait(site.cluster)
    site.helm("upgrade", values={"regionProfiles": profiles})
    assert site.cluster.get("regionprofile", site.region)["spec"]["zone"] == "NO"
    site.helm("upgrade", values={"regionProfiles": {}})
    assert site.regions() == []


def test_one_more_pool_is_one_more_release(site: Site) -> None:
    site.helm("install", values=site.with_picker())
    values = site.folder / "second.yaml"
    values.write_text(
        yaml.safe_dump({"operator": {"enabled": False}, "crds": {"install": False}, "pool": {"name": "mistral"}})
    )
    site.cluster.helm("install", "heliotrope-mistral", str(CHART), "--namespace", site.models, "--values", str(values))
    found = site.cluster.get("deployments", "--namespace", site.models)["items"]
    assert {each["metadata"]["name"] for each in found} == {"heliotrope-picker", "heliotrope-mistral-picker"}
    site.cluster.helm("uninstall", "heliotrope-mistral", "--namespace", site.models)
    site.cluster.get("deployment", "heliotrope-picker", "--namespace", site.models)


def test_a_team_installs_a_picker_with_rights_in_its_namespace_only(site: Site) -> None:
    """As docs/install.md splits the work: the administrator grants, the team installs, upgrades and uninstalls."""
    site.helm("install")
    flags = ["--namespace", site.models, "--set", f"pool.name={site.pool}"]
    flags += ["--set", "operator.enabled=false", "--set", "crds.install=false"]
    rights = site.cluster.helm(
        "template", "green", str(CHART), *flags, "--kube-version=1.34.0", "--show-only=templates/picker/rbac.yaml"
    )
    site.cluster.kubectl("apply", "-f", "-", stdin=rights)
    site.cluster.apply(*_team(site.models))
    team = site.cluster.service_account_kubeconfig(site.models, "team")
    as_team = [*flags, "--set", "rbac.create=false", f"--kubeconfig={team}"]
    with pytest.raises(CommandError, match="forbidden"):
        site.cluster.helm("install", "green", str(CHART), *flags, f"--kubeconfig={team}")
    site.cluster.helm("uninstall", "green", "--namespace", site.models, "--ignore-not-found")
    site.cluster.kubectl("apply", "-f", "-", stdin=rights)

    site.cluster.helm("install", "green", str(CHART), *as_team)
    site.cluster.helm("upgrade", "green", str(CHART), *as_team, "--set", "picker.replicas=2")
    deployment = site.cluster.get("deployment", "green-heliotrope-picker", "--namespace", site.models)
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    may = ["auth", "can-i", "list", "pods", f"--as=system:serviceaccount:{site.models}:{account}"]
    assert site.cluster.kubectl(*may, "--namespace", site.models).strip() == "yes"
    site.cluster.helm("uninstall", "green", "--namespace", site.models, f"--kubeconfig={team}")
    site.cluster.kubectl("delete", "-f", "-", stdin=rights)


def _team(namespace: str) -> list[dict[str, Any]]:
    """A service account with the rights that docs/install.md lists for a team."""
    verbs = ["create", "get", "list", "patch", "update", "delete"]
    kinds = {
        "": ["secrets", "configmaps", "services", "serviceaccounts"],
        "apps": ["deployments"],
        "networking.k8s.io": ["networkpolicies"],
        "policy": ["poddisruptionbudgets"],
    }
    name = {"name": "team", "namespace": namespace}
    rules = [{"apiGroups": [group], "resources": names, "verbs": verbs} for group, names in kinds.items()]
    rbac = "rbac.authorization.k8s.io"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": name},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": name, "rules": rules},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": name,
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "team"},
            "subjects": [{"kind": "ServiceAccount", **name}],
        },
    ]
