"""Replicas on a real API server: taken, followed, left to whoever else decides, and given back."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.actuating import Actuating
from tests.contract.operator.cluster import Api, Document
from tests.contract.operator.process import eventually
from tests.contract.operator.scaled import (
    ORIGINAL,
    granted_world,
    hpa,
    message,
    original,
    policy,
    replicas,
    said,
    scaled_object,
    untouched,
    with_metadata,
)
from tests.support.controlplane import Cluster

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.kinds.targets import ScaleTarget, actuation_key
from heliotrope_operator.resources import Kind

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

KEDA = Path(__file__).parents[2] / "support" / "keda"


@pytest.fixture(scope="session")
def keda(control_plane: Cluster) -> None:
    """KEDA's kinds are served."""
    control_plane.apply_crds(KEDA)


@pytest.fixture
def world(api: Api) -> Api:
    """See `granted_world`."""
    return granted_world(api)


async def test_replicas_are_taken_followed_and_given_back(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.settle()
        assert said(world) == ("Unknown", "Pending")
        assert untouched(world), "nothing was decided yet"
        operator.want("v", 5)
        await operator.settle()

        assert replicas(world) == 5
        taken = original(world)
        assert taken is not None
        assert (taken["field"], taken["value"], taken["variant"]) == ("spec.replicas", 3, "v")
        assert taken["owners"] == [{"manager": "kubectl-client-side-apply", "operation": "Update"}]
        assert said(world) == ("True", "Scaled")
        assert "carries 12 requests/s" in message(world)
        assert world.get("WorkloadVariant", "v")["status"]["desiredReplicas"] == 5

        operator.want("v", 2)
        await operator.settle()
        assert (replicas(world), original(world)) == (2, taken), "the original stays while the value is ours"
        before = len(operator.kube.written)
        await operator.settle()
        assert len(operator.kube.written) == before, "nothing is written that is so already"

        world.delete("CarbonPolicy", "green")
        await operator.settle()
        assert replicas(world) == 3
        assert untouched(world)
        assert said(world) is None
        assert "desiredReplicas" not in world.get("WorkloadVariant", "v")["status"]
    assert ("Normal", "Rescaled") in world.told("v")
    assert ("Normal", "Restored") in world.told("v")


async def test_what_was_found_is_not_asked_for_again(world: Api, account: Path) -> None:
    """A plan of many variants in other words every half minute costs the API server nothing."""
    target = actuation_key(ScaleTarget(world.namespace, "apps", "Deployment", "engine"))

    def requests() -> float:
        return sum(operator.samples("heliotrope_kubernetes_requests_total").values())

    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        before = requests()
        for _ in range(3):
            await operator.actuation.controllers[Kind.ACTUATION].reconcile(target)
        assert requests() == before
        world.cluster.kubectl("scale", "deployment/engine", "-n", world.namespace, "--replicas=4")
        await operator.settle()
        assert replicas(world) == 5


@pytest.mark.parametrize("manner", ["client", "server"])
async def test_the_owner_can_apply_again_afterwards(api: Api, account: Path, manner: str) -> None:
    """Without a conflict, and with the ownership that it had: what it drops from its manifest goes."""
    flags = [] if manner == "client" else ["--server-side"]
    api.cluster.kubectl("label", "namespace", api.namespace, "heliotrope.io/allow-scaling=true")
    manifest = api.workload()
    manifest["spec"]["replicas"] = 3
    api.cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))
    api.apply(api.pool(), policy(api, "Scale"), api.variant("v", maxReplicas=20))
    before = api.get("Deployment", "engine")["metadata"]["managedFields"]
    async with Actuating(account, api.namespace) as operator:
        await operator.look()
        operator.want("v", 7)
        await operator.settle()
        assert replicas(api) == 7
        api.apply(policy(api, "MetricsOnly"))
        await operator.settle()
        assert said(api) == ("False", "MetricsOnly")

    def owned(entries: list[Document]) -> list[tuple[str, str, bool]]:
        return [(e["manager"], e["operation"], "f:replicas" in e["fieldsV1"].get("f:spec", {})) for e in entries]

    assert owned(api.get("Deployment", "engine")["metadata"]["managedFields"]) == owned(before)
    manifest["spec"]["replicas"] = 4
    api.cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))
    assert replicas(api) == 4
    del manifest["spec"]["replicas"]
    api.cluster.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(manifest))
    assert replicas(api) == 1, "the API's default"


@pytest.mark.parametrize(
    "end", ["deleted", "advise", "metrics", "grant", "variant", "retargeted", "no-autoscaling", "no-maximum"]
)
async def test_every_end_gives_back(world: Api, account: Path, end: str) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        assert replicas(world) == 5
        match end:
            case "deleted":
                world.delete("CarbonPolicy", "green")
            case "advise":
                world.apply(policy(world, "Scale", enforcement="Advise"))
            case "metrics":
                world.apply(policy(world, "MetricsOnly"))
            case "grant":
                world.cluster.kubectl("label", "namespace", world.namespace, "heliotrope.io/allow-scaling-")
            case "variant":
                world.delete("WorkloadVariant", "v")
            case "retargeted":
                world.apply(world.variant("v", target="other", maxReplicas=20))
            case "no-autoscaling":
                world.apply(world.policy("green"))
            case "no-maximum":
                world.apply(world.variant("v"))
        await operator.settle()

        assert replicas(world) == 3
        assert untouched(world)
        expected = {"advise": "AdviseOnly", "metrics": "MetricsOnly", "grant": "NotGranted", "no-maximum": "NoMaximum"}
        if end in expected:
            assert said(world) == ("False", expected[end])
            assert world.get("WorkloadVariant", "v")["status"]["desiredReplicas"] == 5, (
                "it is still said what is wanted"
            )


async def test_what_happened_while_it_was_away_is_made_up_for(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
    world.delete("WorkloadVariant", "v")

    async with Actuating(account, world.namespace) as operator:
        await operator.settle()

    assert replicas(world) == 3
    assert untouched(world)


async def test_after_a_restart_it_holds_until_something_is_decided(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
    async with Actuating(account, world.namespace) as operator:
        await operator.settle()
        assert operator.kube.written == []
        assert world.get("WorkloadVariant", "v")["status"]["desiredReplicas"] == 5
        operator.want("v", None)
        await operator.settle()
        assert operator.kube.written == []
        assert (replicas(world), said(world)) == (5, ("Unknown", "Pending"))


async def test_a_value_that_somebody_set_meanwhile_is_not_clobbered(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
    world.cluster.kubectl("scale", "deployment/engine", "-n", world.namespace, "--replicas=9")
    world.delete("CarbonPolicy", "green")

    async with Actuating(account, world.namespace) as operator:
        await operator.settle()

    assert replicas(world) == 9
    assert untouched(world)


async def test_what_an_owner_sets_anew_becomes_the_original(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        world.cluster.kubectl("scale", "deployment/engine", "-n", world.namespace, "--replicas=9")
        await operator.settle()
        taken = original(world)
        assert taken is not None
        assert (replicas(world), taken["value"]) == (5, 9)
        world.delete("CarbonPolicy", "green")
        await operator.settle()
    assert replicas(world) == 9


async def test_a_value_undone_again_and_again_is_left_to_whoever_does_it(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        for _ in range(3):
            assert replicas(world) == 5
            world.cluster.kubectl("scale", "deployment/engine", "-n", world.namespace, "--replicas=9")
            await operator.settle()

        assert replicas(world) == 9
        assert said(world, "Conflicted") == ("True", "ValueReverted")
        assert said(world) == ("False", "Conflicted")
        assert "kubectl has set spec.replicas of Deployment engine from 5 back to 9 3 times" in message(world)
        again = next(seconds for key, seconds in operator.again_s.items() if key.name == "Deployment.apps/engine")
        assert again is not None
        assert 500 < again <= 600

        world.apply(world.variant("v", maxReplicas=19))
        await operator.settle()
        assert replicas(world) == 5, "a change of the variant begins anew"
        assert said(world, "Conflicted") == ("False", "NoConflict")
    assert world.told("v").count(("Warning", "ValueReverted")) == 1


@pytest.mark.parametrize("foreign", ["hpa", "scaledobject", "llmd", "keda"])
async def test_what_somebody_else_scales_is_left_alone(world: Api, account: Path, keda: None, foreign: str) -> None:
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "so", "uid": "1", "controller": True}
    documents = {
        "hpa": [hpa(world)],
        "scaledobject": [scaled_object(world)],
        "llmd": [with_metadata(hpa(world), annotations={"llm-d.ai/managed": "true"})],
        "keda": [scaled_object(world), with_metadata(hpa(world, "keda-hpa-so"), ownerReferences=[owner])],
    }
    reasons = {
        "hpa": "HorizontalPodAutoscaler", "scaledobject": "ScaledObject", "llmd": "LlmdAutoscaler",
        "keda": "ScaledObject",
    }  # fmt: skip
    world.apply(*documents[foreign])
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()

        assert operator.kube.written == []
        assert said(world, "Conflicted") == ("True", reasons[foreign])
        assert said(world) == ("False", "Conflicted")
        assert documents[foreign][0]["metadata"]["name"] in message(world, "Conflicted")
        for document in documents[foreign]:
            world.delete(document["kind"], document["metadata"]["name"])
        await operator.settle()
        assert replicas(world) == 5
        assert said(world, "Conflicted") == ("False", "NoConflict")


async def test_an_autoscaler_that_comes_later_ends_writing_and_the_original_stays_restorable(
    world: Api, account: Path
) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        world.apply(hpa(world))
        operator.want("v", 6)
        await operator.settle()
        assert (replicas(world), said(world, "Conflicted")) == (5, ("True", "HorizontalPodAutoscaler"))
        world.delete("CarbonPolicy", "green")
        await operator.settle()
    assert replicas(world) == 3
    assert untouched(world)


async def test_a_second_installation_does_not_write_what_the_first_holds(world: Api, account: Path) -> None:
    """llm-d-autoscaling#1044: two installations scaled one workload up without load."""
    async with Actuating(account, world.namespace) as first:
        await first.look()
        first.want("v", 5)
        await first.settle()
    async with Actuating(account, world.namespace, operator="other-system") as second:
        await second.look()
        second.want("v", 8)
        await second.settle()
        assert second.kube.written == []
        assert said(world, "Conflicted") == ("True", "OtherInstallation")
        assert "heliotrope restore --operator-namespace heliotrope-system" in message(world, "Conflicted")
        conflicts = second.samples("heliotrope_actuation_conflicts_total")
        assert conflicts == {(("reason", "OtherInstallation"),): 1.0}
        world.delete("CarbonPolicy", "green")
        await second.settle()
        assert (second.kube.written, replicas(world)) == ([], 5), "nor does it give back what is not its own"


async def test_of_two_variants_on_a_target_the_older_is_made_so(world: Api, account: Path) -> None:
    world.wait_until_older("WorkloadVariant", "v")
    world.apply(world.variant("a-younger", maxReplicas=20))
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        operator.want("a-younger", 8)
        await operator.settle()
        assert replicas(world) == 5
        assert said(world, "Conflicted", "a-younger") == ("True", "TargetTaken")
        assert said(world, variant="a-younger") is None
        world.delete("WorkloadVariant", "v")
        await operator.settle()
        assert replicas(world) == 8
        taken = original(world)
        assert taken is not None
        assert taken["value"] == 3
        world.delete("WorkloadVariant", "a-younger")
        await operator.settle()
    assert replicas(world) == 3


async def test_a_target_made_anew_is_another(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        world.delete("Deployment", "engine")
        await operator.settle()
        assert said(world) == ("False", "TargetNotFound")
        manifest = world.workload()
        manifest["spec"]["replicas"] = 2
        world.apply(manifest)
        await operator.settle()
        taken = original(world)
        assert taken is not None
        assert (replicas(world), taken["value"]) == (5, 2)


async def test_an_annotation_that_somebody_removed_is_written_again(world: Api, account: Path) -> None:
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 5)
        await operator.settle()
        world.merge("Deployment", "engine", {"metadata": {"annotations": {ORIGINAL: None}}})
        await operator.settle()
        taken = original(world)
        assert taken is not None
        assert taken["value"] == 3
        world.delete("CarbonPolicy", "green")
        await operator.settle()
    assert replicas(world) == 3


# Ceilings


async def test_a_ceiling_moves_between_the_bounds_of_the_hpa_and_returns(world: Api, account: Path) -> None:
    world.apply(policy(world, "Ceiling"), hpa(world, minReplicas=2))
    kind = "HorizontalPodAutoscaler"

    def ceiling() -> int:
        found: int = world.get(kind, "own")["spec"]["maxReplicas"]
        return found

    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        for wanted, expected in [(6, 6), (1, 2), (0, 2), (50, 10), (4, 4)]:
            operator.want("v", wanted, Actuation.CEILING)
            await operator.settle()
            assert ceiling() == expected
            assert said(world) == ("True", "CeilingSet")
        taken = original(world, kind, "own")
        assert taken is not None
        assert (taken["field"], taken["value"]) == ("spec.maxReplicas", 10)
        assert replicas(world) == 3
        assert untouched(world), "the target itself is the HPA's"
        writes = operator.kube.written[:1]
        assert ORIGINAL in json.dumps(writes[0][1]), "the original is in the first write"
        world.apply(policy(world, "Ceiling", enforcement="Advise"))
        await operator.settle()
    assert ceiling() == 10
    assert untouched(world, kind, "own")
    world.apply(hpa(world, minReplicas=2))


@pytest.mark.parametrize("set_by_user", [8, None])
async def test_a_scaled_object_has_its_ceiling_moved_and_not_the_hpa_that_keda_makes(
    world: Api, account: Path, keda: None, set_by_user: int | None
) -> None:
    """llm-d-autoscaling#1338: its least may be none."""
    given: dict[str, Any] = {} if set_by_user is None else {"maxReplicaCount": set_by_user}
    owner = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "so", "uid": "1"}
    world.apply(
        policy(world, "Ceiling"),
        scaled_object(world, minReplicaCount=0, **given),
        with_metadata(hpa(world, "keda-hpa-so"), ownerReferences=[owner]),
    )

    def ceiling() -> int | None:
        found: int | None = world.get("ScaledObject", "so")["spec"].get("maxReplicaCount")
        return found

    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        for wanted, expected in [(4, 4), (0, 1), (1000, set_by_user or 100)]:
            operator.want("v", wanted, Actuation.CEILING)
            await operator.settle()
            assert ceiling() == expected
        assert untouched(world, "HorizontalPodAutoscaler", "keda-hpa-so")
        operator.want("v", 2, Actuation.CEILING)
        world.merge("ScaledObject", "so", {"metadata": {"annotations": {"autoscaling.keda.sh/paused": "true"}}})
        await operator.settle()
        assert (said(world), ceiling()) == (("False", "AutoscalerPaused"), set_by_user or 100)
        world.merge("ScaledObject", "so", {"metadata": {"annotations": {"autoscaling.keda.sh/paused": None}}})
        await operator.settle()
        assert ceiling() == 2
        world.delete("CarbonPolicy", "green")
        await operator.settle()
    assert ceiling() == set_by_user
    assert untouched(world, "ScaledObject", "so")


async def test_a_ceiling_needs_exactly_one_autoscaler(world: Api, account: Path, keda: None) -> None:
    world.apply(policy(world, "Ceiling"))
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 4, Actuation.CEILING)
        await operator.settle()
        assert said(world) == ("False", "NoAutoscaler")
        world.apply(hpa(world), hpa(world, "second"))
        await operator.settle()
        assert said(world, "Conflicted") == ("True", "SeveralAutoscalers")
        assert operator.kube.written == []
        world.delete("HorizontalPodAutoscaler", "second")
        await operator.settle()
        assert said(world) == ("True", "CeilingSet")


async def test_from_ceiling_to_scale_and_back_each_field_returns(world: Api, account: Path) -> None:
    world.apply(policy(world, "Ceiling"), hpa(world))
    kind = "HorizontalPodAutoscaler"
    async with Actuating(account, world.namespace) as operator:
        await operator.look()
        operator.want("v", 4, Actuation.CEILING)
        await operator.settle()
        world.apply(policy(world, "Scale"))
        operator.want("v", 4)
        await operator.settle()
        assert world.get(kind, "own")["spec"]["maxReplicas"] == 10
        assert untouched(world, kind, "own")
        assert said(world, "Conflicted") == ("True", kind)
        world.delete(kind, "own")
        await operator.settle()
        assert replicas(world) == 4
        world.apply(policy(world, "Ceiling"), hpa(world))
        await operator.settle()
        assert replicas(world) == 3
        assert world.get(kind, "own")["spec"]["maxReplicas"] == 4


# Kinds


LWS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: leaderworkersets.leaderworkerset.x-k8s.io
  annotations: {api-approved.kubernetes.io: "unapproved, a test's stand-in"}
spec:
  group: leaderworkerset.x-k8s.io
  scope: Namespaced
  names: {kind: LeaderWorkerSet, listKind: LeaderWorkerSetList, plural: leaderworkersets, singular: leaderworkerset}
  versions:
    - name: v1
      served: true
      storage: true
      subresources:
        status: {}
        scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                replicas: {type: integer, format: int32, default: 1}
                leaderWorkerTemplate: {type: object, properties: {size: {type: integer, format: int32}}}
            status: {type: object, properties: {replicas: {type: integer, format: int32}}}
"""


@pytest.fixture
def leader_worker_sets(control_plane: Cluster, tmp_path: Path) -> Any:
    """A kind with the group, the names and the `/scale` of LeaderWorkerSet, for as long as a test takes."""
    path = tmp_path / "lws.yaml"
    path.write_text(LWS)
    control_plane.apply_crds(path)
    yield
    control_plane.kubectl("delete", "-f", str(path), "--wait=true")


async def test_a_leader_worker_set_is_counted_in_groups(api: Api, account: Path, leader_worker_sets: None) -> None:
    """llm-d-autoscaling#1302: counted in pods, it seemed to be in transition for ever."""
    kind = "LeaderWorkerSet"
    group = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "engine", "namespace": api.namespace},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 4}},
    }
    ref = {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": kind, "name": "engine"}
    api.cluster.kubectl("label", "namespace", api.namespace, "heliotrope.io/allow-scaling=true")
    api.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(group))
    api.apply(api.pool(), policy(api, "Scale"), api.variant("v", target=None, scaleTargetRef=ref, maxReplicas=20))
    api.set_replicas(kind, "engine", 2)
    async with Actuating(account, api.namespace) as operator:
        await operator.look()
        operator.want("v", 3)
        await operator.settle()
        assert replicas(api, kind) == 3
        assert said(api) == ("True", "Scaled")
        labels = (("accelerator_type", "H100"), ("namespace", api.namespace), ("variant_name", "v"))
        assert operator.samples("wva_current_replicas") == {labels: 2.0}, "groups, not their 8 pods"
        assert operator.samples("wva_desired_ratio") == {labels: 1.5}
        api.delete("CarbonPolicy", "green")
        await operator.settle()
    assert replicas(api, kind) == 2
    assert untouched(api, kind)
    api.cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(group))


async def test_without_the_right_it_says_which_and_goes_on_once_it_has_it(
    api: Api, account: Path, unique: Callable[[str], str], refusals_allowed: None
) -> None:
    manifest = api.workload(kind="ReplicaSet")
    manifest["spec"]["replicas"] = 1
    api.cluster.kubectl("label", "namespace", api.namespace, "heliotrope.io/allow-scaling=true")
    api.apply(manifest, api.pool(), policy(api, "Scale"), api.variant("v", kind="ReplicaSet", maxReplicas=20))
    async with Actuating(account, api.namespace) as operator:
        await operator.look()
        operator.want("v", 2)
        await operator.settle()
        assert said(api) == ("False", "NotPermitted")
        assert "--verb=get,patch --resource=replicasets.apps,replicasets.apps/scale" in message(api)
        assert "heliotrope.io/aggregate-to-operator=true" in message(api)

        name = unique("replicasets")
        flags = ("--verb=get,patch", "--resource=replicasets.apps,replicasets.apps/scale")
        api.cluster.kubectl("create", "role", name, "-n", api.namespace, *flags)
        bind = ("create", "rolebinding", name, "-n", api.namespace, f"--role={name}")
        bind = (*bind, "--serviceaccount=heliotrope-system:heliotrope-operator")
        api.cluster.kubectl(*bind)
        operator.enqueue(operator.actuation.seeds)
        await operator.settle()
        assert replicas(api, "ReplicaSet") == 2

        api.cluster.kubectl("delete", "rolebinding", name, "-n", api.namespace)
        api.apply(policy(api, "MetricsOnly"))
        await operator.settle()
        assert (replicas(api, "ReplicaSet"), said(api)) == (2, ("False", "MetricsOnly"))
        done = operator.samples("heliotrope_actuations_total")
        assert done[("action", "restore"), ("outcome", "forbidden")] >= 1
        api.cluster.kubectl(*bind)
        operator.enqueue(operator.actuation.seeds)
        await operator.settle()
    assert replicas(api, "ReplicaSet") == 1
    assert untouched(api, "ReplicaSet")


def at_most_ten(api: Api, name: str) -> list[Document]:
    """An administrator's rule for the replicas of a namespace's Deployments."""
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    rule = {
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["deployments/scale"],
    }  # fmt: skip
    here = {"matchLabels": {"kubernetes.io/metadata.name": api.namespace}}
    return [
        about
        | {
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": "object.spec.replicas <= 10", "message": "ten at most"}],
            },
        },
        about
        | {
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": here},
            },
        },
    ]


async def test_what_an_admission_rule_refuses_is_said(world: Api, account: Path, unique: Callable[[str], str]) -> None:
    name = unique("at-most-ten")
    world.cluster.apply(*at_most_ten(world, name))
    try:
        scale = ("scale", "deployment/engine", "-n", world.namespace)
        eventually(lambda: "ten at most" in world.cluster.kubectl(*scale, "--replicas=11", check=False))
        world.cluster.kubectl(*scale, "--replicas=3")
        async with Actuating(account, world.namespace) as operator:
            await operator.look()
            operator.want("v", 12)
            await operator.settle()
            assert said(world) == ("False", "Refused")
            assert "ten at most" in message(world)
            assert replicas(world) == 3
            operator.want("v", 10)
            await operator.settle()
            assert (replicas(world), said(world)) == (10, ("True", "Scaled"))
    finally:
        world.cluster.kubectl("delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", name)
