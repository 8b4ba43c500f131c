"""What is remembered of other people's autoscalers, and of targets that are held."""

from typing import Any

import pytest
from tests.unit.operator import objects

from heliotrope_operator.actuation.held import HeldTargets
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.autoscalers import Autoscaler
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kinds.targets import ScaleTarget, actuation_key
from heliotrope_operator.resources import SCALE_TARGETS, Key, Kind
from heliotrope_operator.settings import Parts

TARGET = ScaleTarget("ns", "apps", "Deployment", "engine")
ACTUATION = actuation_key(TARGET)
DEPLOYMENTS = SCALE_TARGETS[0]


def document(kind: str, spec: dict[str, Any], version: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "metadata": objects.metadata("a", version=version) | metadata,
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "engine"}} | spec,
    }


def remembered(kind: Kind, found: dict[str, Any]) -> Autoscaler:
    cluster = Cluster(watched(Parts(scaling=True)))
    cluster.observe(kind, found)
    value = cluster.table(kind).get(Key(kind, "ns", "a"))
    assert isinstance(value, Autoscaler)
    return value


@pytest.mark.parametrize(
    ("kind", "spec", "metadata", "expected"),
    [
        (Kind.HORIZONTAL_POD_AUTOSCALER, {"maxReplicas": 9}, {}, Autoscaler(TARGET, 1, 9)),
        (Kind.HORIZONTAL_POD_AUTOSCALER, {"maxReplicas": 9, "minReplicas": 3}, {}, Autoscaler(TARGET, 3, 9)),
        (
            Kind.HORIZONTAL_POD_AUTOSCALER,
            {"maxReplicas": 9},
            {"labels": {"scaledobject.keda.sh/name": "so"}},
            Autoscaler(TARGET, 1, 9, keda="so"),
        ),
        (
            Kind.HORIZONTAL_POD_AUTOSCALER,
            {"maxReplicas": 9},
            {"annotations": {"llm-d.ai/managed": "true", "heliotrope.io/original": "{}"}},
            Autoscaler(TARGET, 1, 9, llmd=True, original="{}"),
        ),
        (Kind.SCALED_OBJECT, {}, {}, Autoscaler(TARGET, 0, None)),
        (Kind.SCALED_OBJECT, {"scaleTargetRef": {"name": "engine"}}, {}, Autoscaler(TARGET, 0, None)),
        (
            Kind.SCALED_OBJECT,
            {"maxReplicaCount": 0},
            {"annotations": {"autoscaling.keda.sh/paused-replicas": "0"}},
            Autoscaler(TARGET, 0, 0, paused="autoscaling.keda.sh/paused-replicas"),
        ),
        (Kind.SCALED_OBJECT, {}, {"annotations": {"autoscaling.keda.sh/paused": "false"}}, Autoscaler(TARGET)),
        (Kind.VARIANT_AUTOSCALING, {}, {}, Autoscaler(TARGET, llmd=True)),
    ],
)
def test_what_is_remembered(kind: Kind, spec: Any, metadata: Any, expected: Autoscaler) -> None:
    assert remembered(kind, document(kind.value, spec, **metadata)) == expected


def test_a_change_wakes_the_actuation_of_the_targets_before_and_after_and_a_status_wakes_nobody() -> None:
    cluster = Cluster(watched(Parts(scaling=True)))
    kind = Kind.HORIZONTAL_POD_AUTOSCALER
    assert cluster.observe(kind, document(kind.value, {"maxReplicas": 9})) == {ACTUATION}
    quiet = document(kind.value, {"maxReplicas": 9}, version=2) | {"status": {"desiredReplicas": 3}}
    assert cluster.observe(kind, quiet) == set()
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"}
    moved = document(kind.value, {"maxReplicas": 9, "scaleTargetRef": other}, version=3)
    other_key = actuation_key(ScaleTarget("ns", "apps", "Deployment", "other"))
    assert cluster.observe(kind, moved) == {ACTUATION, other_key}
    assert cluster.forget(Key(kind, "ns", "a")) == {other_key}


def test_policies_and_variants_wake_the_actuation_of_what_they_concern() -> None:
    cluster = Cluster(watched(Parts(scaling=True)))
    cluster.observe(Kind.INFERENCE_POOL, objects.pool())
    assert ACTUATION in cluster.observe(Kind.WORKLOAD_VARIANT, objects.variant())
    assert ACTUATION in cluster.observe(Kind.CARBON_POLICY, objects.policy(autoscaling={"actuation": "Scale"}))
    changed = objects.policy(version=2, autoscaling={"actuation": "Ceiling"})
    assert ACTUATION in cluster.observe(Kind.CARBON_POLICY, changed)
    longer = objects.policy(version=3, autoscaling={"actuation": "Ceiling", "lookAhead": "2h"})
    assert ACTUATION not in cluster.observe(Kind.CARBON_POLICY, longer)
    assert ACTUATION in cluster.forget(Key(Kind.CARBON_POLICY, "ns", "green"))
    assert ACTUATION in cluster.forget(Key(Kind.WORKLOAD_VARIANT, "ns", "v"))


def test_without_the_part_nothing_of_it_is_watched_or_woken() -> None:
    cluster = objects.cluster_of(objects.pool())
    touched = cluster.observe(Kind.WORKLOAD_VARIANT, objects.variant())
    touched |= cluster.observe(Kind.CARBON_POLICY, objects.policy(autoscaling={"actuation": "Scale"}))
    assert Kind.ACTUATION not in {key.kind for key in touched}
    assert Kind.HORIZONTAL_POD_AUTOSCALER not in cluster.specs


def deployment(generation: int, annotation: str | None = None, uid: str = "1") -> dict[str, Any]:
    annotations = {} if annotation is None else {"heliotrope.io/original": annotation}
    return {"metadata": {"uid": uid, "generation": generation, "annotations": annotations}}


def test_targets_are_followed_while_a_variant_wants_them_or_they_are_held() -> None:
    held = HeldTargets()

    def see(found: dict[str, Any] | None, *, wanted: bool) -> bool:
        return held.observe(TARGET, DEPLOYMENTS, found, wanted=wanted)

    assert not see(deployment(1), wanted=False), "nobody's business"
    assert see(deployment(1), wanted=True)
    assert not see(deployment(1), wanted=True), "a status says nothing new"
    assert see(deployment(2), wanted=True)
    assert see(deployment(2, "{}"), wanted=True)
    assert held.get(TARGET) is DEPLOYMENTS
    assert see(deployment(3, "{}"), wanted=False), "an orphan"
    assert see(deployment(1, "{}", uid="2"), wanted=False)
    assert see(deployment(2, uid="2"), wanted=False)
    assert (held.get(TARGET), len(held)) == (None, 0)
    assert not see(None, wanted=False)


def test_a_target_that_goes_is_forgotten() -> None:
    held = HeldTargets()
    held.observe(TARGET, DEPLOYMENTS, deployment(1, "{}"), wanted=True)
    assert list(held) == [TARGET]
    assert held.observe(TARGET, DEPLOYMENTS, None, wanted=True)
    assert list(held) == []
