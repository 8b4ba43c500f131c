"""The API server goes away, forgets, or lacks our kinds: the operator reconnects and converges, and repeats nothing."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.contract.operator.cluster import NAMESPACE, Api, conditions, operator_account
from tests.contract.operator.conftest import ROOT, Start
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.controlplane import ControlPlane

pytestmark = [pytest.mark.controlplane, pytest.mark.slow, pytest.mark.timeout(240)]

MARKER = "heliotrope.io/CarbonPolicyAffected"


def marker(api: Api) -> str | None:
    found: str | None = api.get("InferencePool", "pool")["metadata"].get("annotations", {}).get(MARKER)
    return found


def holds(api: Api, policy: str) -> bool:
    return conditions(api.get("CarbonPolicy", policy)).get("Accepted") == ("True", "Accepted")


def enforcement(api: Api, policy: str) -> tuple[str, str] | None:
    return conditions(api.get("CarbonPolicy", policy)).get("Enforced")


def test_it_survives_a_restart_of_the_api_server(
    restartable: ControlPlane, api: Api, start: Start, unique: Callable[[str], str], refusals_allowed: None
) -> None:
    operator = start().wait_ready()
    name = unique("es")
    api.apply(api.region(name), api.pool(), api.policy("green"))
    eventually(lambda: holds(api, "green") and marker(api))
    before = api.get("CarbonPolicy", "green")["metadata"]["resourceVersion"]

    restartable.restart_apiserver()
    api.apply(api.policy("later"))

    eventually(lambda: conditions(api.get("CarbonPolicy", "later")).get("Accepted") == ("False", "Conflicted"))
    assert api.get("CarbonPolicy", "green")["metadata"]["resourceVersion"] == before
    assert api.told("green") == []
    assert operator.health()[0] == 200


def test_an_outage_longer_than_the_lease_ends_with_the_same_replica_in_charge(
    restartable: ControlPlane, api: Api, start: Start, refusals_allowed: None
) -> None:
    operator = start().wait_ready()
    api.apply(api.pool(), api.policy("green"))
    eventually(lambda: holds(api, "green"))

    restartable.stop_apiserver()
    eventually(lambda: operator.metric("heliotrope_reconcile_leader") == 0)
    assert operator.health()[0] == 200  # a new start would not bring the API server back
    time.sleep(5)
    restartable.start_apiserver()

    eventually(lambda: operator.metric("heliotrope_reconcile_leader") == 1)
    api.apply(api.policy("green", enforcement="Advise"))
    eventually(lambda: enforcement(api, "green") == ("False", "AdviseOnly"))


def test_a_deletion_that_the_watch_can_no_longer_tell_is_found(
    restartable: ControlPlane, api: Api, start: Start, refusals_allowed: None
) -> None:
    """410 Gone: between the end of the watch and the new list, a policy has vanished."""
    operator = start().wait_ready()
    api.apply(api.pool(), api.policy("older"))
    api.wait_until_older("CarbonPolicy", "older")
    api.apply(api.policy("younger"))
    eventually(lambda: holds(api, "older") and marker(api) == f"{api.namespace}/older (Enforce)")
    eventually(lambda: conditions(api.get("CarbonPolicy", "younger")).get("Accepted") == ("False", "Conflicted"))

    operator.freeze()
    restartable.restart_apiserver()  # its watches are cut, and it cannot reconnect
    api.delete("CarbonPolicy", "older")
    for number in range(5):
        api.apply(api.policy(f"noise-{number}", "no-pool"))
    restartable.compact()
    restartable.restart_apiserver()
    operator.thaw()

    eventually(lambda: holds(api, "younger"))
    eventually(lambda: marker(api) == f"{api.namespace}/younger (Enforce)")
    eventually(lambda: "Restarting the watch-stream for carbonpolicies" in operator.text(), "the server says 410 Gone")
    assert operator.health()[0] == 200


def test_a_change_that_races_with_ours_is_kept(api: Api, operator: OperatorProcess) -> None:
    """Status writes hold for one version of an object only; whoever loses the race looks again."""
    api.apply(api.pool(), api.policy("green"))
    for number in range(30):
        mode = "Advise" if number % 2 else "Enforce"
        api.apply(api.policy("green", enforcement=mode, holdoutPercent=number))

    eventually(lambda: api.get("CarbonPolicy", "green")["status"].get("observedGeneration") == 30)
    eventually(lambda: enforcement(api, "green") == ("False", "AdviseOnly"))
    assert api.get("CarbonPolicy", "green")["spec"]["holdoutPercent"] == 29


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane without any of our kinds, nor InferencePools."""
    with ControlPlane.start(tmp_path) as cluster:
        yield cluster


@pytest.mark.parametrize("limited", [False, True])
def test_kinds_that_are_installed_after_the_start_are_served(
    bare: ControlPlane, start: Start, tmp_path: Path, limited: bool
) -> None:
    namespace = bare.namespace("team")
    values = {"operator": {"namespaces": [namespace]}} if limited else {}
    account = operator_account(bare, NAMESPACE, values)
    options = {"kubeconfig": account, "namespaces": [namespace] if limited else [], "resync_s": 2.0}
    operator = start("before", **options).wait_ready()
    assert operator.health()[0] == 200
    api = Api(bare, namespace)

    bare.apply_crds(ROOT / "crds")
    if limited:
        # Limited to namespaces it cannot watch for new kinds, so it asks for a new start, which its Deployment gives.
        assert operator.wait_end() == 1
        assert "a new start is needed" in operator.text()
        operator = start("after", **options).wait_ready()
    api.apply(api.region("es"), api.policy("green"))
    eventually(lambda: api.get("RegionProfile", "es").get("status", {}).get("freshness") == "Fresh")
    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("Accepted") == ("False", "TargetNotFound"))
    (condition, *_) = api.get("CarbonPolicy", "green")["status"]["conditions"]
    assert "install the CRDs" in condition["message"]

    bare.apply_crds(ROOT / "tests" / "support" / "crds")
    if limited:
        assert operator.wait_end() == 1
        operator = start("at-last", **options).wait_ready()
    api.apply(api.pool())
    eventually(lambda: holds(api, "green"))
    assert Api(bare, namespace).refused() == 0
