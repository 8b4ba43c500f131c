"""WorkloadVariant on a real API server: targets of any kind with /scale, conflicts, and targets that go."""

from collections.abc import Callable

import pytest
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


def replicas(api: Api, variant: str) -> int | None:
    found: int | None = api.get("WorkloadVariant", variant).get("status", {}).get("currentReplicas")
    return found


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
def test_a_target_is_found_its_replicas_are_followed_and_its_end_is_told(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str], kind: str
) -> None:
    region = unique("es")
    api.apply(api.region(region), api.variant("v", kind=kind, regionRef={"name": region}))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("False", "TargetNotFound"))
    assert replicas(api, "v") is None

    api.apply(api.workload(kind=kind))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["TargetResolved"] == ("True", "TargetResolved"))
    assert replicas(api, "v") == 0
    api.set_replicas(kind, "engine", 3)
    eventually(lambda: replicas(api, "v") == 3)
    found = conditions(api.get("WorkloadVariant", "v"))
    assert found["Conflicted"] == ("False", "NoConflict")
    assert found["RegionResolved"] == ("True", "RegionResolved")

    api.delete(kind, "engine")
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["TargetResolved"] == ("False", "TargetNotFound"))
    assert replicas(api, "v") is None
    eventually(lambda: api.events("v")[0].get("series", {}).get("count") == 2)
    assert api.told("v") == [("Warning", "TargetNotFound"), ("Normal", "TargetResolved")]


def test_the_columns_of_a_variant(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.workload(), api.variant("v"))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("True", "TargetResolved"))

    header, row = api.cluster.kubectl("get", "wv", "v", "-n", api.namespace).splitlines()

    assert header.split()[-5:] == ["DESIRED", "CURRENT", "ACTIVE", "RESOLVED", "AGE"]
    assert row.split()[-3:-1] == ["0", "True"]


def test_of_two_variants_on_a_target_the_younger_is_conflicted_until_the_older_goes(
    api: Api, operator: OperatorProcess
) -> None:
    api.apply(api.workload(), api.variant("z-older"))
    api.wait_until_older("WorkloadVariant", "z-older")
    api.apply(api.variant("a-younger"))
    eventually(lambda: conditions(api.get("WorkloadVariant", "a-younger")).get("Conflicted") == ("True", "TargetTaken"))
    assert conditions(api.get("WorkloadVariant", "z-older"))["Conflicted"] == ("False", "NoConflict")

    api.delete("WorkloadVariant", "z-older")

    eventually(lambda: conditions(api.get("WorkloadVariant", "a-younger"))["Conflicted"] == ("False", "NoConflict"))
    eventually(lambda: api.told("a-younger") == [("Warning", "TargetTaken"), ("Normal", "NoConflict")])


@pytest.mark.parametrize(
    ("kind", "version", "reason"),
    [
        ("DaemonSet", "apps/v1", "NotScalable"),
        ("Rollout", "argoproj.io/v1alpha1", "KindNotFound"),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "KindNotFound"),
    ],
)
def test_a_target_that_cannot_be_scaled_is_said(
    api: Api, operator: OperatorProcess, kind: str, version: str, reason: str
) -> None:
    target = {"apiVersion": version, "kind": kind, "name": "engine"}
    api.apply(api.variant("v", target=None, scaleTargetRef=target))

    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("False", reason))


def test_any_kind_with_scale_works_once_its_rule_is_granted(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    """ReplicaSets are not watched; with one more rule they are read now and then."""
    name = unique("replicasets")
    api.cluster.kubectl("create", "role", name, "-n", api.namespace, "--verb=get", "--resource=replicasets.apps/scale")
    account = "--serviceaccount=heliotrope-system:heliotrope-operator"
    api.cluster.kubectl("create", "rolebinding", name, "-n", api.namespace, f"--role={name}", account)
    api.apply(api.workload(kind="ReplicaSet"), api.variant("v", kind="ReplicaSet"))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("True", "TargetResolved"))

    api.set_replicas("ReplicaSet", "engine", 2)

    eventually(lambda: replicas(api, "v") == 2)
    api.delete("ReplicaSet", "engine")
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["TargetResolved"] == ("False", "TargetNotFound"))


def test_a_kind_without_its_rule_says_which_right_is_missing(
    api: Api, operator: OperatorProcess, refusals_allowed: None
) -> None:
    api.apply(api.workload(kind="ReplicaSet"), api.variant("v", kind="ReplicaSet"))

    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("False", "NotPermitted"))

    (condition,) = (
        each for each in api.get("WorkloadVariant", "v")["status"]["conditions"] if each["type"] == "TargetResolved"
    )
    assert "allow its service account `get`" in condition["message"]


def test_a_region_that_comes_and_goes_is_followed(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    region = unique("es")
    api.apply(api.variant("v", target=None, regionRef={"name": region}))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("RegionResolved") == ("False", "RegionNotFound"))

    api.apply(api.region(region))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["RegionResolved"] == ("True", "RegionResolved"))
    api.delete("RegionProfile", region)
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["RegionResolved"] == ("False", "RegionNotFound"))
