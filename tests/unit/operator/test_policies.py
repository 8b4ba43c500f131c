"""CarbonPolicy: where it holds, whether it acts, whether carbon counts; and the marker on its pools."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.operator import objects
from tests.unit.operator.objects import NOW, cluster_of, key_of

from heliotrope.api.v1alpha1.carbonpolicy import CarbonPolicyStatus
from heliotrope.api.v1alpha1.regionprofile import EmissionFactor, Freshness, Signal, SignalType
from heliotrope_operator.controllers.policies import (
    PolicyFacts,
    Region,
    Target,
    policy_facts,
    policy_status,
    policy_transitions,
)
from heliotrope_operator.controllers.pools import affected_marker

OURS = "ns/green"
AVERAGE = Signal()
DIRECT = Signal(type=SignalType.MARGINAL, emission_factor=EmissionFactor.DIRECT)
ES = Region("es", AVERAGE, Freshness.FRESH)


def target(name: str = "pool", *, exists: bool = True, served: bool = True, winner: str | None = OURS) -> Target:
    return Target(name, exists, served, winner)


def facts(*targets: Target, regions: tuple[Region, ...] = (ES,)) -> PolicyFacts:
    return PolicyFacts(targets or (target(),), regions)


def said(status: CarbonPolicyStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status.value, condition.reason) for condition in status.conditions}


def message(status: CarbonPolicyStatus, kind: str) -> str:
    return next(condition.message for condition in status.conditions if condition.type == kind)


def as_document(status: CarbonPolicyStatus) -> dict[str, Any]:
    return status.model_dump(by_alias=True, exclude_none=True, mode="json")


def test_a_policy_that_holds_and_acts() -> None:
    status = policy_status(objects.read_policy(enforcement="Enforce"), facts(), NOW)

    assert said(status) == {
        "Accepted": ("True", "Accepted"),
        "Enforced": ("True", "Enforced"),
        "SignalsFresh": ("True", "SignalsFresh"),
    }
    (ancestor,) = status.ancestors
    assert ancestor.controller_name == "heliotrope.io/operator"
    assert (ancestor.ancestor_ref.name, ancestor.ancestor_ref.namespace) == ("pool", "ns")
    assert [(each.type, each.reason) for each in ancestor.conditions] == [("Accepted", "Accepted")]


@pytest.mark.parametrize(
    ("at", "reason", "words"),
    [
        (target(winner="ns/older"), "Conflicted", "the older CarbonPolicy ns/older holds on InferencePool pool"),
        (target(exists=False), "TargetNotFound", "there is no InferencePool ns/pool"),
        (target(exists=False, served=False), "TargetNotFound", "install the CRDs"),
    ],
)
def test_a_policy_that_does_not_hold(at: Target, reason: str, words: str) -> None:
    status = policy_status(objects.read_policy(enforcement="Enforce"), facts(at), NOW)

    assert said(status)["Accepted"] == ("False", reason)
    assert words in message(status, "Accepted")
    assert said(status)["Enforced"] == ("False", "NotAccepted")
    assert status.ancestors[0].conditions[0].reason == reason


def test_of_several_pools_one_that_fails_speaks_for_the_policy_and_the_others_are_acted_on() -> None:
    policy = objects.read_policy("green", "a", "b", "c", enforcement="Enforce")
    status = policy_status(policy, facts(target("a"), target("b", winner="ns/older"), target("c")), NOW)

    assert said(status)["Accepted"] == ("False", "Conflicted")
    assert message(status, "Accepted").startswith("holds on 2 of 3 pools: ")
    assert said(status)["Enforced"] == ("True", "Enforced")
    assert message(status, "Enforced") == "acts on InferencePools a, c"
    assert [each.conditions[0].status.value for each in status.ancestors] == ["True", "False", "True"]


def test_a_policy_that_flips_to_advise_is_not_enforced_and_says_so_once() -> None:
    enforced = policy_status(objects.read_policy(enforcement="Enforce"), facts(), NOW)
    later = NOW + timedelta(hours=1)

    advised = policy_status(objects.read_policy(status=as_document(enforced)), facts(), later)
    again = policy_status(objects.read_policy(status=as_document(advised)), facts(), later)

    assert said(advised)["Enforced"] == ("False", "AdviseOnly")
    assert [each.last_transition_time for each in advised.conditions] == [NOW, later, NOW]
    assert [(each.warning, each.reason) for each in policy_transitions(enforced, advised)] == [(False, "AdviseOnly")]
    assert again == advised


def test_a_loser_that_becomes_the_winner_says_so() -> None:
    loser = policy_status(objects.read_policy(), facts(target(winner="ns/older")), NOW)
    winner = policy_status(objects.read_policy(status=as_document(loser)), facts(), NOW)

    assert [(each.warning, each.reason) for each in policy_transitions(None, loser)] == [(True, "Conflicted")]
    (change,) = policy_transitions(loser, winner)
    assert (change.warning, change.reason) == (False, "Accepted")
    assert change.message == "holds on InferencePool pool"


@pytest.mark.parametrize(
    ("regions", "expected", "words"),
    [
        ((ES, Region("fr", AVERAGE, Freshness.STALE)), ("False", "SignalsStale"), "fr is Stale"),
        ((ES, Region("fr", AVERAGE, Freshness.ABSENT)), ("False", "SignalsStale"), "fr is Absent"),
        ((ES, Region("fr", None, None)), ("False", "SignalsStale"), "there is no RegionProfile fr"),
        ((ES, Region("fr", AVERAGE, None)), ("Unknown", "SignalsPending"), "being asked"),
        (
            (ES, Region("ca", DIRECT, Freshness.FRESH)),
            ("False", "MixedSignals"),
            "es is average lifecycle, ca is marginal direct",
        ),
        ((), ("Unknown", "NoRegions"), "no WorkloadVariant"),
    ],
)
def test_carbon_counts_only_where_every_region_has_a_fresh_signal_of_one_kind(
    regions: tuple[Region, ...], expected: tuple[str, str], words: str
) -> None:
    status = policy_status(objects.read_policy(), facts(regions=regions), NOW)

    assert said(status)["SignalsFresh"] == expected
    assert words in message(status, "SignalsFresh")


def test_entries_of_other_controllers_stay() -> None:
    foreign = {
        "ancestorRef": {"name": "gateway", "kind": "Gateway", "group": "gateway.networking.k8s.io"},
        "controllerName": "example.com/other",
        "conditions": [
            {
                "type": "Programmed",
                "status": "True",
                "reason": "Programmed",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    policy = objects.read_policy(status={"ancestors": [foreign], "conditions": []})

    status = policy_status(policy, facts(), NOW)

    assert [each.controller_name for each in status.ancestors] == ["heliotrope.io/operator", "example.com/other"]
    assert policy_transitions(policy.status, status) == []


def test_the_regions_are_those_of_variants_that_can_be_in_the_pools() -> None:
    fresh = {"freshness": "Fresh", "conditions": []}
    policy = objects.policy("green")
    cluster = cluster_of(
        objects.pool(),
        policy,
        objects.region("es", status=fresh),
        objects.region("fr"),
        objects.region("elsewhere"),
        objects.variant("a", region="es", labels={"app": "vllm", "llm-d.ai/role": "decode"}),
        objects.variant("b", region="fr"),
        objects.variant("c", region="gone"),
        objects.variant("d", region="elsewhere", labels={"app": "sglang"}),
        objects.variant("e", region=None),
    )

    found = policy_facts(cluster, key_of(policy), objects.read_policy())
    allowed = policy_facts(
        cluster, key_of(policy), objects.read_policy(placement={"allowedRegions": ["fr", "nowhere"]})
    )

    assert found.targets == (Target("pool", exists=True, served=True, winner=OURS),)
    assert found.regions == (
        Region("es", AVERAGE, Freshness.FRESH),
        Region("fr", AVERAGE, None),
        Region("gone", None, None),
    )
    assert [region.name for region in allowed.regions] == ["fr"]


@pytest.mark.parametrize(
    ("enforcement", "marker"), [("Enforce", "ns/green (Enforce)"), ("Advise", "ns/green (Advise)")]
)
def test_the_marker_names_the_policy_and_whether_it_acts(enforcement: str, marker: str) -> None:
    assert affected_marker(objects.read_policy(enforcement=enforcement)) == marker


def test_a_pool_without_a_policy_has_no_marker() -> None:
    assert affected_marker(None) is None
