"""`heliotrope restore`, with the operator gone, about to go, or still there; and how `helm uninstall` runs it."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.contract.operator.actuating import Actuating
from tests.contract.operator.cluster import NAMESPACE, Api, aggregated
from tests.contract.operator.conftest import Start
from tests.contract.operator.process import FAST, eventually
from tests.contract.operator.scaled import granted_world, hpa, policy, replicas, untouched
from tests.support.chart import CHART, Chart, of_kind
from tests.support.controlplane import Cluster
from tests.support.jobs import COMPLETED

from heliotrope.api.v1alpha1.controls import Actuation
from heliotrope_operator.actuation.restore import OperatorRunsError, Restored, RestoreSettings, restore
from heliotrope_operator.settings import LeaseSettings

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]


async def hold_replicas(api: Api, account: Path, *, operator: str = NAMESPACE) -> None:
    """A life of the operator that took the Deployment from 3 to 5."""
    async with Actuating(account, api.namespace, operator=operator) as operating:
        await operating.look()
        operating.want("v", 5)
        await operating.settle()
    assert replicas(api) == 5


def told(done: list[Restored]) -> list[tuple[str, int | None, int | None, str]]:
    return sorted((str(each.where), each.before, each.after, each.result.value) for each in done)


async def test_it_puts_back_without_an_operator_and_says_first_what_it_would_do(api: Api, account: Path) -> None:
    granted_world(api)
    await hold_replicas(api, account)
    settings = {"operator_namespace": NAMESPACE, "kubeconfig": account, "namespaces": (api.namespace,)}
    expected = [("spec.replicas of Deployment engine", 5, 3, "restored")]

    assert told(await restore(RestoreSettings(**settings, dry_run=True))) == expected  # type: ignore[arg-type]
    assert replicas(api) == 5
    assert told(await restore(RestoreSettings(**settings))) == expected  # type: ignore[arg-type]
    assert replicas(api) == 3
    assert untouched(api)
    assert await restore(RestoreSettings(**settings)) == []  # type: ignore[arg-type]
    assert api.get("Lease", "heliotrope-operator", NAMESPACE)["spec"]["holderIdentity"] == "", "it gives the Lease back"


async def test_ceilings_and_values_of_others(api: Api, account: Path) -> None:
    granted_world(api)
    await hold_replicas(api, account)
    api.cluster.kubectl("scale", "deployment/engine", "-n", api.namespace, "--replicas=9")
    api.apply(policy(api, "Ceiling"), hpa(api), api.variant("v", target="other", maxReplicas=20))
    held = hpa(api, "held")
    held["spec"]["scaleTargetRef"]["name"] = "other"
    api.apply(held)
    api.delete("HorizontalPodAutoscaler", "own")
    async with Actuating(account, api.namespace) as operating:
        await operating._resync.once(everything=False)
        operating.want("v", 4, Actuation.CEILING)
        while operating._queue:
            key = operating._queue.pop(0)
            if key.name == "Deployment.apps/other":
                await operating._controllers[key.kind].reconcile(key)
    assert api.get("HorizontalPodAutoscaler", "held")["spec"]["maxReplicas"] == 4

    done = await restore(RestoreSettings(operator_namespace=NAMESPACE, kubeconfig=account, namespaces=(api.namespace,)))

    assert told(done) == [
        ("spec.maxReplicas of HorizontalPodAutoscaler held", 4, 10, "restored"),
        ("spec.replicas of Deployment engine", 9, 9, "left"),
    ]
    assert untouched(api)
    assert untouched(api, "HorizontalPodAutoscaler", "held")


async def test_what_another_operator_holds_stays_until_it_is_named(
    api: Api, account: Path, unique: Callable[[str], str]
) -> None:
    granted_world(api)
    gone = unique("gone")
    await hold_replicas(api, account, operator=gone)

    settings = {"kubeconfig": account, "namespaces": (api.namespace,)}
    assert await restore(RestoreSettings(operator_namespace=NAMESPACE, **settings)) == []  # type: ignore[arg-type]
    done = await restore(RestoreSettings(operator_namespace=gone, **settings))  # type: ignore[arg-type]

    assert told(done) == [("spec.replicas of Deployment engine", 5, 3, "restored")]


async def test_a_running_operator_is_not_written_against(api: Api, account: Path, start: Start) -> None:
    granted_world(api)
    await hold_replicas(api, account)
    operator = start(namespaces=[api.namespace]).wait_ready()  # without the part, so it holds nothing itself
    lease: dict[str, Any] = dict(FAST["lease"])  # type: ignore[call-overload]
    settings = RestoreSettings(
        operator_namespace=NAMESPACE,
        kubeconfig=account,
        namespaces=(api.namespace,),
        lease=LeaseSettings(**lease),
        patience_s=8.0,
    )

    with pytest.raises(OperatorRunsError, match="holds the Lease heliotrope-system/heliotrope-operator"):
        await restore(settings)
    assert replicas(api) == 5
    operator.kill()
    assert len(await restore(settings)) == 1, "a Lease that nobody renews runs out"
    assert replicas(api) == 3


async def test_a_running_operator_finds_and_gives_back_what_an_earlier_one_held(
    api: Api, account: Path, start: Start
) -> None:
    granted_world(api)
    await hold_replicas(api, account)
    api.delete("WorkloadVariant", "v")

    start(parts={"scaling": True}, namespaces=[api.namespace]).wait_ready()

    eventually(lambda: replicas(api) == 3 and untouched(api))


async def test_a_running_operator_gives_back_when_the_policy_goes(api: Api, account: Path, start: Start) -> None:
    granted_world(api)
    await hold_replicas(api, account)
    operator = start("first", parts={"scaling": True}, namespaces=[api.namespace]).wait_ready()
    operator.kill()
    assert replicas(api) == 5
    start("second", parts={"scaling": True}, namespaces=[api.namespace]).wait_ready()

    api.delete("CarbonPolicy", "green")

    eventually(lambda: replicas(api) == 3 and untouched(api))


def test_the_command_prints_a_table(api: Api, account: Path) -> None:
    granted_world(api)
    asyncio.run(hold_replicas(api, account))
    command = [sys.executable, "-m", "heliotrope_cli.main", "restore", "--namespace", api.namespace]
    command += ["--operator-namespace", NAMESPACE, "--kubeconfig", str(account)]

    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert result.returncode == 0, result.stderr
    assert f"{api.namespace}  Deployment/engine  spec.replicas  5    3   restored" in result.stdout
    again = subprocess.run([*command, "--dry-run"], capture_output=True, text=True, timeout=60, check=False)
    assert again.stdout == f"the operator of namespace {NAMESPACE} holds nothing\n"


def test_helm_uninstall_puts_everything_back_before_the_rights_go(
    api: Api, control_plane: Cluster, unique: Callable[[str], str]
) -> None:
    """Helm waits for the Job of the chart; no controller runs it here, so the test runs what is in it."""
    system = control_plane.namespace(unique("system"))
    values = ("--set", "crds.install=false", "--set", f"operator.namespaces={{{api.namespace}}}")
    control_plane.helm("install", "heliotrope", str(CHART), "--namespace", system, *values)
    chart = Chart(control_plane.programs / "helm")
    given = {"crds": {"install": False}, "operator": {"namespaces": [api.namespace]}}
    roles = aggregated(of_kind(chart.objects(given, namespace=system), "ClusterRole"))
    control_plane.apply(*[each for each in roles if each["metadata"]["name"].endswith("-scaling")])
    account = control_plane.service_account_kubeconfig(system, "heliotrope-operator")
    granted_world(api)
    asyncio.run(hold_replicas(api, account, operator=system))
    assert control_plane.get("deployment", "heliotrope-operator", "-n", system)["spec"]["replicas"] == 1
    helm = subprocess.Popen(
        [str(control_plane.programs / "helm"), "uninstall", "heliotrope", "--namespace", system],
        env=os.environ | {"KUBECONFIG": str(control_plane.kubeconfig)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        job = eventually(lambda: api.get("Job", "heliotrope-operator-restore", system))
        (container,) = job["spec"]["template"]["spec"]["containers"]
        assert job["spec"]["template"]["spec"]["serviceAccountName"] == "heliotrope-operator"
        command = [sys.executable, "-m", "heliotrope_cli.main", *container["args"], "--kubeconfig", str(account)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert result.returncode == 0, result.stderr
        assert "restored" in result.stdout
        assert control_plane.get("deployment", "heliotrope-operator", "-n", system)["spec"]["replicas"] == 0
        finished(control_plane, system)
        output, _ = helm.communicate(timeout=60)
        assert helm.returncode == 0, output
    finally:
        with contextlib.suppress(ProcessLookupError):
            helm.kill()
    assert replicas(api) == 3
    assert untouched(api)
    assert control_plane.get("deployment", "-n", system)["items"] == []


def finished(cluster: Cluster, namespace: str) -> None:
    """What the Job controller would report."""
    patch = json.dumps({"status": COMPLETED})
    where = ("job", "heliotrope-operator-restore", "-n", namespace, "--subresource=status", "--type=merge")
    cluster.kubectl("patch", *where, "-p", patch)
