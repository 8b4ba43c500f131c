"""WorkloadVariant: target, owner, region and replicas."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.memory import UNAVAILABLE, MemoryApi, MemoryKube
from tests.unit.operator.objects import NOW

from heliotrope.api.v1alpha1.common import ScaleTargetRef
from heliotrope.api.v1alpha1.workloadvariant import WorkloadVariantStatus
from heliotrope.scale.facts import Direction, ScalingState
from heliotrope_operator.controllers.variants import VariantFacts, variant_status
from heliotrope_operator.errors import ForbiddenError, UnavailableError
from heliotrope_operator.scales import KNOWN_FOR_S, UNKNOWN_FOR_S, Scale, ScaleProblem, Scales


def said(status: WorkloadVariantStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status.value, condition.reason) for condition in status.conditions}


def status_of(scale: Scale | None, *, owner: str = "v", region: bool = True, **spec: Any) -> WorkloadVariantStatus:
    return variant_status(objects.read_variant(**spec), VariantFacts(scale, owner, region), NOW)


def test_a_variant_in_order() -> None:
    status = status_of(Scale(replicas=3))

    assert said(status) == {
        "TargetResolved": ("True", "TargetResolved"),
        "Conflicted": ("False", "NoConflict"),
        "RegionResolved": ("True", "RegionResolved"),
    }
    assert (status.current_replicas, status.observed_generation) == (3, 1)


def test_no_replicas_are_a_number_and_an_unknown_number_is_none() -> None:
    assert status_of(Scale(replicas=0)).current_replicas == 0
    assert status_of(Scale(problem=ScaleProblem.TARGET_NOT_FOUND)).current_replicas is None


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (ScaleProblem.TARGET_NOT_FOUND, "there is no Deployment engine in namespace ns"),
        (ScaleProblem.KIND_NOT_FOUND, "this cluster has no Deployment of apps/v1"),
        (ScaleProblem.NOT_SCALABLE, "it has no /scale"),
        (ScaleProblem.NOT_PERMITTED, "allow its service account"),
    ],
)
def test_a_target_that_cannot_be_read_is_said(problem: ScaleProblem, words: str) -> None:
    status = status_of(Scale(problem=problem))

    assert said(status)["TargetResolved"] == ("False", problem.value)
    assert words in status.conditions[0].message


def test_the_younger_of_two_variants_on_a_target_is_conflicted() -> None:
    status = status_of(Scale(replicas=1), owner="older")

    assert said(status)["Conflicted"] == ("True", "TargetTaken")
    assert "WorkloadVariant older scales Deployment engine" in status.conditions[1].message


def test_a_region_that_does_not_exist_is_said() -> None:
    assert said(status_of(Scale(replicas=1), region=False))["RegionResolved"] == ("False", "RegionNotFound")


def test_what_a_variant_does_not_name_is_not_judged() -> None:
    assert said(status_of(None, target=None, region_ref=None)) == {"RegionResolved": ("True", "RegionResolved")}
    bare = variant_status(
        objects.read_variant(target=None, region=None), VariantFacts(None, None, region_exists=False), NOW
    )
    assert bare.conditions == ()


def test_what_others_decided_stays() -> None:
    variant = objects.read_variant()
    decided = variant.model_copy(update={"status": WorkloadVariantStatus(desired_replicas=7, active_engines=2)})

    status = variant_status(decided, VariantFacts(Scale(replicas=1), "v", region_exists=True), NOW)

    assert (status.desired_replicas, status.active_engines) == (7, 2)


def test_what_a_decision_remembers_is_written_and_what_nothing_was_decided_about_stays() -> None:
    state = ScalingState(NOW.timestamp(), Direction.DOWN, NOW.timestamp() + 0.5, 3)
    facts = VariantFacts(Scale(replicas=1), "v", region_exists=True, looked=True, memory=state)
    remembered = variant_status(objects.read_variant(), facts, NOW)
    assert remembered.scaling is not None
    assert (remembered.scaling.last_change, remembered.scaling.lower_since) == (NOW, NOW)
    assert (remembered.scaling.last_direction, remembered.scaling.lower_peak) == ("Down", 3)
    after = objects.read_variant().model_copy(update={"status": remembered})
    assert variant_status(after, replace(facts, memory=None), NOW).scaling == remembered.scaling
    assert variant_status(after, replace(facts, memory=ScalingState()), NOW).scaling is None


def kube_with_apps() -> tuple[MemoryApi, MemoryKube]:
    api = MemoryApi()
    api.objects["/apis/apps/v1"] = {
        "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": True},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
            {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
        ]
    }
    api.objects["/apis/apps/v1/namespaces/ns/deployments/engine/scale"] = {
        "spec": {"replicas": 5},
        "status": {"replicas": 4},
    }
    return api, MemoryKube(api)


def ref(kind: str = "Deployment", name: str = "engine", version: str = "apps/v1") -> ScaleTargetRef:
    return ScaleTargetRef(api_version=version, kind=kind, name=name)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (ref(), Scale(replicas=4, wanted=5)),
        (ref(name="gone"), Scale(problem=ScaleProblem.TARGET_NOT_FOUND)),
        (ref("DaemonSet"), Scale(problem=ScaleProblem.NOT_SCALABLE)),
        (ref("Rollout"), Scale(problem=ScaleProblem.KIND_NOT_FOUND)),
        (ref("LeaderWorkerSet", version="leaderworkerset.x-k8s.io/v1"), Scale(problem=ScaleProblem.KIND_NOT_FOUND)),
        (ref("ReplicationController", version="v1"), Scale(problem=ScaleProblem.KIND_NOT_FOUND)),
    ],
)
async def test_scale_is_read_wherever_discovery_says_it_is(asked: ScaleTargetRef, expected: Scale) -> None:
    _, kube = kube_with_apps()

    assert await Scales(kube).read("ns", asked) == expected  # type: ignore[arg-type]


async def test_a_refusal_is_an_answer_and_silence_is_not() -> None:
    _, kube = kube_with_apps()
    scales = Scales(kube)  # type: ignore[arg-type]
    path = "/apis/apps/v1/namespaces/ns/deployments/engine/scale"

    kube.denied[path] = ForbiddenError("no")
    assert await scales.read("ns", ref()) == Scale(problem=ScaleProblem.NOT_PERMITTED)
    kube.denied[path] = UNAVAILABLE
    with pytest.raises(UnavailableError):
        await scales.read("ns", ref())


@pytest.mark.looptime
async def test_discovery_is_asked_again_after_a_while_sooner_for_what_was_missing() -> None:
    import asyncio

    api, kube = kube_with_apps()
    scales = Scales(kube)  # type: ignore[arg-type]

    def discoveries() -> int:
        return sum(path == "/apis/apps/v1" for _, path in api.requests)

    for _ in range(3):
        await scales.read("ns", ref())
        await scales.read("ns", ref("Rollout"))
    assert discoveries() == 2
    await asyncio.sleep(UNKNOWN_FOR_S)
    await scales.read("ns", ref())
    await scales.read("ns", ref("Rollout"))
    assert discoveries() == 3
    await asyncio.sleep(KNOWN_FOR_S)
    await scales.read("ns", ref())
    assert discoveries() == 4
