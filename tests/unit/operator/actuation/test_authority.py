"""Who may change replicas: policy, namespace and variant, and what is not known of them."""

from typing import Any

import pytest
from tests.unit.operator import objects

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.authority import Authority, Verdict, authority
from heliotrope_operator.actuation.metrics import WantedCollector
from heliotrope_operator.actuation.outcome import Reason
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.cluster import Cluster
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.resources import Key, Kind
from heliotrope_operator.settings import Parts
from heliotrope_operator.tables import Tables

VARIANT = Key(Kind.WORKLOAD_VARIANT, "ns", "v")
GRANTED = {"heliotrope.io/allow-scaling": "true"}


def cluster_of(*, labels: dict[str, str] | None = GRANTED, maximum: int | None = 9, **spec: Any) -> Cluster:
    cluster = Cluster(watched(Parts(scaling=True)))
    policy = {"enforcement": "Enforce", "autoscaling": {"actuation": "Scale"}} | spec
    for document in (
        objects.pool(),
        objects.policy("green", **{name: value for name, value in policy.items() if value is not None}),
        objects.variant(**({} if maximum is None else {"maxReplicas": maximum})),
    ):
        cluster.observe(Kind(document["kind"]), document)
    if labels is not None:
        metadata = {"name": "ns", "uid": "1", "resourceVersion": "1", "labels": labels}
        cluster.observe(Kind.NAMESPACE, {"metadata": metadata})
    return cluster


def test_granted_and_enforced_it_may() -> None:
    assert authority(cluster_of(), VARIANT) == Authority(Verdict.ACT, Actuation.SCALE)


@pytest.mark.parametrize(
    ("changed", "verdict", "reason"),
    [
        ({"enforcement": "Advise"}, Verdict.RETURN, Reason.ADVISE_ONLY),
        ({"autoscaling": {"actuation": "MetricsOnly"}}, Verdict.RETURN, Reason.METRICS_ONLY),
        ({"autoscaling": None}, Verdict.RETURN, None),
        ({"maximum": None}, Verdict.RETURN, Reason.NO_MAXIMUM),
        ({"labels": {}}, Verdict.RETURN, Reason.NOT_GRANTED),
        ({"labels": {"heliotrope.io/allow-scaling": "yes"}}, Verdict.RETURN, Reason.NOT_GRANTED),
        ({"labels": None}, Verdict.HOLD, Reason.NAMESPACE_UNKNOWN),
    ],
)
def test_why_not(changed: dict[str, Any], verdict: Verdict, reason: Reason | None) -> None:
    found = authority(cluster_of(**changed), VARIANT)
    assert (found.verdict, found.reason, found.act) == (verdict, reason, False)


def test_a_policy_that_cannot_be_read_may_be_the_one_that_holds() -> None:
    """An older operator in front of a newer CRD gives nothing back."""
    cluster = cluster_of()
    cluster.observe(Kind.CARBON_POLICY, objects.policy("green", version=2, enforcement="Later"))
    found = authority(cluster, VARIANT)
    assert (found.verdict, found.reason) == (Verdict.HOLD, Reason.POLICY_UNREADABLE)
    cluster.forget(Key(Kind.CARBON_POLICY, "ns", "green"))
    assert authority(cluster, VARIANT).verdict is Verdict.RETURN


def test_a_variant_that_is_gone_has_nothing() -> None:
    assert authority(cluster_of(), VARIANT._replace(name="gone")).verdict is Verdict.RETURN


def samples(cluster: Cluster, replicas: int | None, *, leads: bool = True) -> dict[str, float]:
    tables = Tables()
    tables.wanted.put(VARIANT, Wanted(replicas, Actuation.METRICS_ONLY, False, "Planned", "", 0.0))
    collector = WantedCollector(tables, cluster, lambda: leads)
    found = [sample for family in collector.collect() for sample in family.samples]
    assert all(
        sample.labels == {"variant_name": "v", "namespace": "ns", "accelerator_type": "H100"} for sample in found
    )
    return {sample.name: sample.value for sample in found}


def with_current(replicas: int | None) -> Cluster:
    cluster = cluster_of(autoscaling={"actuation": "MetricsOnly"})
    status = {} if replicas is None else {"status": {"currentReplicas": replicas}}
    cluster.observe(Kind.WORKLOAD_VARIANT, objects.variant(version=2, maxReplicas=9) | status)
    return cluster


@pytest.mark.parametrize(
    ("current", "wanted", "expected"),
    [
        (2, 3, {"current": 2, "ratio": 1.5, "desired": 3}),
        (0, 3, {"current": 0, "ratio": 3, "desired": 3}),
        (2, 0, {"current": 2, "ratio": 0, "desired": 0}),
        (None, 3, {"desired": 3}),
        (2, None, {}),
    ],
)
def test_what_is_known_has_a_series_and_nothing_else(
    current: int | None, wanted: int | None, expected: dict[str, float]
) -> None:
    found = samples(with_current(current), wanted)
    named = {"desired": "wva_desired_replicas", "current": "wva_current_replicas", "ratio": "wva_desired_ratio"}
    named_values = {named[name]: value for name, value in expected.items()}
    own = {"heliotrope_desired_replicas": expected["desired"]} if "desired" in expected else {}
    assert found == named_values | own


def test_series_go_with_the_variant_the_policy_and_the_lead() -> None:
    cluster = with_current(2)
    assert samples(cluster, 3, leads=False) == {}
    cluster.forget(Key(Kind.CARBON_POLICY, "ns", "green"))
    assert samples(cluster, 3) == {}
    cluster = with_current(2)
    cluster.forget(VARIANT)
    assert samples(cluster, 3) == {}
