"""CarbonPolicy on a real API server: targets, conflicts, enforcement, the marker, and what is left when it goes."""

from collections.abc import Callable

import pytest
from tests.contract.operator.cluster import Api, conditions
from tests.contract.operator.process import OperatorProcess, eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

MARKER = "heliotrope.io/CarbonPolicyAffected"


def marker(api: Api, pool: str = "pool") -> str | None:
    found: str | None = api.get("InferencePool", pool)["metadata"].get("annotations", {}).get(MARKER)
    return found


def accepted(api: Api, policy: str) -> tuple[str, str] | None:
    return conditions(api.get("CarbonPolicy", policy)).get("Accepted")


def test_a_policy_holds_marks_its_pool_and_prints_well(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool(), api.policy("green"))

    eventually(lambda: accepted(api, "green") == ("True", "Accepted"))

    eventually(lambda: marker(api) == f"{api.namespace}/green (Enforce)")
    policy = api.get("CarbonPolicy", "green")
    assert conditions(policy)["Enforced"] == ("True", "Enforced")
    (ancestor,) = policy["status"]["ancestors"]
    assert ancestor["controllerName"] == "heliotrope.io/operator"
    assert ancestor["ancestorRef"]["name"] == "pool"
    assert [(each["type"], each["status"]) for each in ancestor["conditions"]] == [("Accepted", "True")]
    row = api.cluster.kubectl("get", "cp", "green", "-n", api.namespace, "--no-headers").split()
    assert row[:7] == ["green", "pool", "Lexicographic", "1s", "50ms", "Enforce", "True"]
    assert api.told("green") == []


def test_a_policy_waits_for_its_pool_and_says_when_it_goes(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.policy("green"))
    eventually(lambda: accepted(api, "green") == ("False", "TargetNotFound"))

    api.apply(api.pool())
    eventually(lambda: accepted(api, "green") == ("True", "Accepted"))
    api.delete("InferencePool", "pool")
    eventually(lambda: accepted(api, "green") == ("False", "TargetNotFound"))

    eventually(lambda: api.events("green")[0].get("series", {}).get("count") == 2)
    assert api.told("green") == [("Warning", "TargetNotFound"), ("Normal", "Accepted")]


def test_the_oldest_policy_wins_and_its_end_hands_the_pool_over(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool(), api.policy("z-older"))
    api.wait_until_older("CarbonPolicy", "z-older")
    api.apply(api.policy("a-younger"))

    eventually(lambda: accepted(api, "a-younger") == ("False", "Conflicted"))
    assert accepted(api, "z-older") == ("True", "Accepted")
    assert conditions(api.get("CarbonPolicy", "a-younger"))["Enforced"] == ("False", "NotAccepted")
    eventually(lambda: marker(api) == f"{api.namespace}/z-older (Enforce)")
    eventually(lambda: api.told("a-younger") == [("Warning", "Conflicted")])

    api.delete("CarbonPolicy", "z-older")

    eventually(lambda: accepted(api, "a-younger") == ("True", "Accepted"))
    eventually(lambda: marker(api) == f"{api.namespace}/a-younger (Enforce)")
    eventually(lambda: api.told("a-younger")[-1] == ("Normal", "Accepted"))


def test_policies_conflict_pool_by_pool(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool("one"), api.pool("two"), api.policy("first", "one"))
    api.wait_until_older("CarbonPolicy", "first")
    api.apply(api.policy("second", "one", "two"))

    eventually(lambda: accepted(api, "second") == ("False", "Conflicted"))

    found = api.get("CarbonPolicy", "second")
    by_pool = {each["ancestorRef"]["name"]: each["conditions"][0] for each in found["status"]["ancestors"]}
    assert (by_pool["one"]["reason"], by_pool["two"]["reason"]) == ("Conflicted", "Accepted")
    assert conditions(found)["Enforced"] == ("True", "Enforced")
    eventually(
        lambda: (
            (marker(api, "one"), marker(api, "two"))
            == (
                f"{api.namespace}/first (Enforce)",
                f"{api.namespace}/second (Enforce)",
            )
        )
    )


def test_a_policy_that_turns_advise_stops_acting_and_everybody_can_see_it(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool(), api.policy("green"))
    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("Enforced") == ("True", "Enforced"))
    eventually(lambda: marker(api) == f"{api.namespace}/green (Enforce)")

    api.apply(api.policy("green", enforcement="Advise"))

    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["Enforced"] == ("False", "AdviseOnly"))
    assert accepted(api, "green") == ("True", "Accepted")
    assert api.get("CarbonPolicy", "green")["status"]["observedGeneration"] == 2
    eventually(lambda: marker(api) == f"{api.namespace}/green (Advise)")
    eventually(lambda: api.told("green") == [("Normal", "AdviseOnly")])


def test_nothing_is_left_of_a_policy_that_is_gone(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool())
    api.merge("InferencePool", "pool", {"metadata": {"annotations": {"theirs": "1"}}})
    api.apply(api.policy("green"))
    eventually(lambda: marker(api) is not None)
    found = api.get("CarbonPolicy", "green")
    assert "finalizers" not in found["metadata"]
    assert found["metadata"].get("annotations", {}) == {}

    api.delete("CarbonPolicy", "green")

    eventually(lambda: marker(api) is None)
    assert api.get("InferencePool", "pool")["metadata"]["annotations"]["theirs"] == "1"
    assert api.get("CarbonPolicy", "green") == {}


def test_a_marker_that_somebody_removed_or_forged_is_put_right(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool(), api.policy("green"))
    right = f"{api.namespace}/green (Enforce)"
    eventually(lambda: marker(api) == right)

    for wrong in (None, "ns/forged (Enforce)"):
        api.merge("InferencePool", "pool", {"metadata": {"annotations": {MARKER: wrong}}})
        eventually(lambda: marker(api) == right)


def test_entries_of_other_controllers_survive(api: Api, operator: OperatorProcess) -> None:
    api.apply(api.pool(), api.policy("green"))
    eventually(lambda: accepted(api, "green") == ("True", "Accepted"))
    ancestors = api.get("CarbonPolicy", "green")["status"]["ancestors"]
    foreign = ancestors[0] | {"controllerName": "example.com/other"}
    api.merge("CarbonPolicy", "green", {"status": {"ancestors": [*ancestors, foreign]}}, "status")

    api.apply(api.policy("green", enforcement="Advise"))

    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["Enforced"] == ("False", "AdviseOnly"))
    names = [each["controllerName"] for each in api.get("CarbonPolicy", "green")["status"]["ancestors"]]
    assert names == ["heliotrope.io/operator", "example.com/other"]


def test_the_signal_of_a_policy_follows_its_regions(
    api: Api, operator: OperatorProcess, unique: Callable[[str], str]
) -> None:
    here, there = unique("here"), unique("there")
    api.apply(api.pool(), api.policy("green"), api.variant("v", target=None, regionRef={"name": here}))

    def signals() -> tuple[str, str] | None:
        return conditions(api.get("CarbonPolicy", "green")).get("SignalsFresh")

    eventually(lambda: signals() == ("False", "SignalsStale"))
    api.apply(api.region(here))
    eventually(lambda: signals() == ("True", "SignalsFresh"))
    marginal = {"type": "marginal", "emissionFactor": "direct"}
    api.apply(api.region(there, signal=marginal), api.variant("w", target=None, regionRef={"name": there}))
    eventually(lambda: signals() == ("False", "MixedSignals"))
    api.delete("WorkloadVariant", "w")
    eventually(lambda: signals() == ("True", "SignalsFresh"))
