"""Starting, stopping, restarting, standing by: what the operator does to itself and what it leaves alone."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.operator.cluster import NAMESPACE, Api, Document, conditions, operator_account
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import OperatorProcess, eventually
from tests.support.controlplane import Cluster, free_ports

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]

MARKER = "heliotrope.io/CarbonPolicyAffected"


def world(api: Api, region: str) -> list[tuple[str, str]]:
    """One object of everything, in several states; returns their kinds and names."""
    api.apply(api.region(region), api.pool(), api.workload(), api.policy("green"))
    api.wait_until_older("CarbonPolicy", "green")
    api.apply(api.policy("rival"), api.variant("v", regionRef={"name": region}), api.variant("lost", target="gone"))
    return [
        ("RegionProfile", region),
        ("InferencePool", "pool"),
        ("CarbonPolicy", "green"),
        ("CarbonPolicy", "rival"),
        ("WorkloadVariant", "v"),
        ("WorkloadVariant", "lost"),
    ]


def settled(api: Api) -> bool:
    return (
        conditions(api.get("CarbonPolicy", "green")).get("SignalsFresh") == ("True", "SignalsFresh")
        and conditions(api.get("CarbonPolicy", "rival")).get("SignalsFresh") == ("True", "SignalsFresh")
        and conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("True", "TargetResolved")
        and conditions(api.get("WorkloadVariant", "lost")).get("TargetResolved") == ("False", "TargetNotFound")
        and MARKER in api.get("InferencePool", "pool")["metadata"].get("annotations", {})
    )


def snapshot(api: Api, objects: list[tuple[str, str]]) -> tuple[list[Document], list[tuple[str, str]]]:
    return (
        [api.get(kind, name)["metadata"]["resourceVersion"] for kind, name in objects],
        [told for _, name in objects for told in api.told(name)],
    )


def all_reconciled(operator: OperatorProcess, at_least: int) -> bool:
    done = operator.metric("heliotrope_reconcile_total", {"outcome": "success"})
    return done >= at_least and operator.metric("heliotrope_reconcile_queue_depth") == 0


def test_a_restart_writes_nothing_and_tells_nothing(api: Api, start: Start, unique: Callable[[str], str]) -> None:
    first = start("first").wait_ready()
    objects = world(api, unique("es"))
    eventually(lambda: settled(api))
    eventually(lambda: all_reconciled(first, len(objects)))
    time.sleep(1)
    before = snapshot(api, objects)
    assert before[1] == [("Warning", "Conflicted"), ("Warning", "TargetNotFound")]

    assert first.terminate()[0] == 0
    second = start("second").wait_ready()
    eventually(lambda: all_reconciled(second, len(objects)))
    time.sleep(1)

    assert snapshot(api, objects) == before
    assert second.metric("heliotrope_reconcile_status_writes_total") == 0
    assert second.metric("heliotrope_events_total") == 0


def test_what_happened_while_it_was_away_is_made_up_for(api: Api, start: Start, unique: Callable[[str], str]) -> None:
    first = start("first").wait_ready()
    region = unique("es")
    world(api, region)
    eventually(lambda: settled(api))
    first.kill()

    api.delete("CarbonPolicy", "green")
    api.delete("Deployment", "engine")
    api.delete("RegionProfile", region)
    start("second").wait_ready()

    eventually(lambda: conditions(api.get("CarbonPolicy", "rival"))["Accepted"] == ("True", "Accepted"))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["TargetResolved"] == ("False", "TargetNotFound"))
    assert conditions(api.get("WorkloadVariant", "v"))["RegionResolved"] == ("False", "RegionNotFound")
    annotations = eventually(lambda: api.get("InferencePool", "pool")["metadata"]["annotations"])
    eventually(
        lambda: (
            api.get("InferencePool", "pool")["metadata"]["annotations"][MARKER] == f"{api.namespace}/rival (Enforce)"
        ),
        str(annotations),
    )


def test_an_orphaned_marker_is_removed_at_start(api: Api, start: Start) -> None:
    api.apply(api.pool())
    api.merge("InferencePool", "pool", {"metadata": {"annotations": {MARKER: "ns/long-gone (Enforce)"}}})

    start().wait_ready()

    eventually(lambda: MARKER not in api.get("InferencePool", "pool")["metadata"].get("annotations", {}))


def test_it_stops_within_seconds_and_gives_its_lease_back(api: Api, start: Start) -> None:
    operator = start().wait_ready()

    status, seconds = operator.terminate()

    assert status == 0
    assert seconds < 10
    assert api.get("Lease", "heliotrope-operator", NAMESPACE)["spec"]["holderIdentity"] == ""


def test_of_two_replicas_one_writes_and_the_other_takes_over(
    api: Api, start: Start, unique: Callable[[str], str]
) -> None:
    first = start("first").wait_ready()
    second = start("second").wait_alive()
    objects = world(api, unique("es"))
    eventually(lambda: settled(api))
    time.sleep(2)
    before = snapshot(api, objects)

    assert first.metric("heliotrope_reconcile_leader") == 1
    assert second.metric("heliotrope_reconcile_leader") == 0
    assert second.metric("heliotrope_kubernetes_requests_total", {"method": "PATCH"}) == 0
    assert second.metric("heliotrope_events_total") == 0
    assert second.health()[0] == 200
    first.kill()
    second.wait_ready()
    eventually(lambda: all_reconciled(second, len(objects)))
    time.sleep(1)
    assert snapshot(api, objects) == before
    api.apply(api.policy("green", enforcement="Advise"))
    eventually(lambda: conditions(api.get("CarbonPolicy", "green"))["Enforced"] == ("False", "AdviseOnly"))


def test_liveness_fails_when_nothing_is_reconciled(start: Start) -> None:
    operator = start(workers=0, stalled_after_s=3.0)

    eventually(lambda: operator._alive_and("liveness on port") and operator.health()[0] == 200)
    status, _ = eventually(lambda: (found := operator.health())[0] == 500 and found, seconds=60)

    assert status == 500
    assert "nothing was reconciled for" in operator.text()


def test_the_metrics_are_there(api: Api, start: Start, unique: Callable[[str], str]) -> None:
    operator = start().wait_ready()
    name = unique("es")
    api.apply(api.region(name))
    eventually(lambda: api.get("RegionProfile", name).get("status"))

    text = operator._fetch("metrics", "/metrics")[1]

    for metric in (
        'heliotrope_reconcile_total{kind="RegionProfile",outcome="success"}',
        'heliotrope_reconcile_duration_seconds_bucket{kind="RegionProfile"',
        'heliotrope_reconcile_last_success_timestamp_seconds{kind="RegionProfile"}',
        "heliotrope_reconcile_queue_depth ",
        "heliotrope_reconcile_leader 1.0",
        'heliotrope_kubernetes_requests_total{code="200",method="PATCH"}',
        f'heliotrope_carbon_intensity_grams_per_kwh{{region="{name}",signal_type="average",source="static"}} 140.0',
        f'heliotrope_carbon_signal_fresh{{region="{name}"}} 1.0',
        f'heliotrope_carbon_polls_total{{outcome="success",region="{name}"}} 1.0',
    ):
        assert metric in text, metric


def test_only_the_namespaces_asked_for_are_served(
    api: Api, control_plane: Cluster, start: Start, unique: Callable[[str], str]
) -> None:
    other = Api(control_plane, control_plane.namespace(unique("other")))
    own, region = unique("limited"), unique("es")
    account = operator_account(control_plane, own, {"operator": {"namespaces": [api.namespace]}})
    operator = start(kubeconfig=account, namespace=own, namespaces=[api.namespace]).wait_ready()

    for each in (api, other):
        each.apply(each.region(region), each.pool(), each.workload(), each.policy("green"))
        each.apply(each.variant("v", regionRef={"name": region}))

    eventually(lambda: conditions(api.get("CarbonPolicy", "green")).get("SignalsFresh") == ("True", "SignalsFresh"))
    eventually(lambda: conditions(api.get("WorkloadVariant", "v")).get("TargetResolved") == ("True", "TargetResolved"))
    api.delete("Deployment", "engine")
    eventually(lambda: conditions(api.get("WorkloadVariant", "v"))["TargetResolved"] == ("False", "TargetNotFound"))
    eventually(lambda: all_reconciled(operator, 4))
    assert "status" not in other.get("CarbonPolicy", "green")
    assert "status" not in other.get("WorkloadVariant", "v")


def test_the_command_runs_it(account: Path, tmp_path: Path) -> None:
    metrics, health = free_ports(2)
    command = [sys.executable, "-m", "heliotrope_cli.main", "operator", "--log-format=json", "--host=127.0.0.1"]
    flags = [f"--kubeconfig={account}", f"--metrics-port={metrics}", f"--health-port={health}"]
    environment = os.environ | {"POD_NAMESPACE": NAMESPACE, "POD_NAME": "from-the-command"}
    log = tmp_path / "log"
    with log.open("w") as file, subprocess.Popen([*command, *flags], stderr=file, env=environment) as process:
        try:
            eventually(lambda: "from-the-command leads and writes" in log.read_text() or process.poll() is not None)
            process.terminate()
            assert process.wait(30) == 0, log.read_text()
        finally:
            process.kill()
