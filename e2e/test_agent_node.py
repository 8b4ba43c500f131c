"""The node agent's DaemonSet on a real kubelet: clocks are set on the right GPUs, and whatever happens to pods, agents
and the node, the driver ends with the settings that it had."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.agent_site import SYSTEM, AgentSite
from e2e.node import images
from e2e.node.node import Node, NodeFailedError
from tests.support.controlplane import CommandError

pytestmark = [pytest.mark.node, pytest.mark.slow, pytest.mark.timeout(300)]

MHZ = 810


@pytest.fixture(scope="module")
def installed(real_node: Node) -> Iterator[AgentSite]:
    site = AgentSite(real_node)
    site.start()
    yield site
    site.stop()


@pytest.fixture
def site(installed: AgentSite) -> Iterator[AgentSite]:
    """Without engines and wishes before and after each test; then every GPU must be as it was found."""
    yield installed
    installed.renew(True)
    installed.clear()
    installed.until(installed.at_rest, "every GPU is as it was found")


def test_the_clock_is_set_on_exactly_the_pods_gpus(site: AgentSite) -> None:
    ours = site.engine("ours", gpus=2)
    site.engine("anothers")

    site.want(ours, mhz=MHZ)

    site.until(site.locked(ours, mhz=MHZ), "both GPUs of the pod are locked, and the other is not")

    def told() -> bool:
        status = site.node.get("nodepower", site.node.name).get("status", {})
        gpus = {each["uuid"]: each for each in status.get("gpus", [])}
        applied = [each for each in status.get("conditions", []) if each["type"] == "Applied"]
        return (
            {uuid for uuid, each in gpus.items() if each.get("requested") == {"smClockMhz": MHZ}} == set(ours.gpus)
            and {each["owner"]["pod"] for uuid, each in gpus.items() if uuid in ours.gpus} == {"ours"}
            and status.get("managedGpus") == 2
            and [each["status"] for each in applied] == ["True"]
        )

    site.until(told, "the NodePower's status says so")
    assert {write.code for write in site.driver.writes()} == {0}  # CAP_SYS_ADMIN suffices, without `privileged`


def test_a_wish_that_ends_puts_the_clock_back(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.node.kubectl("delete", "nodepower", site.node.name)

    site.until(site.at_rest, "it is put back")


def test_a_rolling_update_puts_back_and_sets_again(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    before = site.agent_pod()["metadata"]["name"]
    writes = site.driver.write_count

    site.helm("upgrade", tag=images.AGENT_NEXT_TAG)

    assert site.agent_pod()["metadata"]["name"] != before
    assert site.agent_pod()["spec"]["containers"][0]["image"] == images.AGENT_TAGS[1]
    site.until(site.locked(engine, mhz=MHZ), "the new agent has locked it again")
    functions = [write.function for write in site.driver.writes(writes)]
    assert functions.index("nvmlDeviceResetGpuLockedClocks") < functions.index("nvmlDeviceSetGpuLockedClocks")


@pytest.mark.parametrize("force", [False, True], ids=["with grace", "without grace"])
def test_a_deleted_agent_has_a_successor(site: AgentSite, force: bool) -> None:
    """Without grace, the API forgets the pod at once: its successor comes while it still runs, and must wait."""
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    before, writes = site.agent_pod()["metadata"]["name"], site.driver.write_count

    flags = ("--grace-period=0", "--force") if force else ()
    site.node.kubectl("delete", "pod", before, "--namespace", SYSTEM, *flags)
    site.until(lambda: [pod for pod in site.agent_pods() if pod != before], "the DaemonSet has made another pod")
    site.rolled_out()

    site.until(site.locked(engine, mhz=MHZ), "the new agent has locked it again")
    functions = [write.function for write in site.driver.writes(writes)]
    assert functions.index("nvmlDeviceResetGpuLockedClocks") < functions.index("nvmlDeviceSetGpuLockedClocks")


@pytest.mark.parametrize("force", [False, True], ids=["with grace", "without grace"])
def test_a_deleted_pods_gpu_is_put_back(site: AgentSite, force: bool) -> None:
    engine = site.engine("one", command="stubborn")  # the kubelet has to kill it
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.delete(engine, force=force)

    site.until(site.at_rest, "it is put back though the wish is still there")


def test_a_gpu_that_moved_to_another_pod_is_put_back(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.delete(engine, force=True)
    successor = site.engine("one", gpus=3)  # the same name, and all GPUs

    assert engine.gpus[0] in successor.gpus
    assert successor.uid != engine.uid
    site.until(site.at_rest, "it is put back: the wish is for the old pod's UID")
    time.sleep(1.0)
    assert site.at_rest()


def test_draining_the_node_puts_back(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.node.kubectl("drain", site.node.name, "--ignore-daemonsets", "--force", "--timeout=60s")

    site.until(site.at_rest, "it is put back")
    site.node.kubectl("uncordon", site.node.name)


@pytest.mark.parametrize("containers", [("agent",), ("watchdog",), ("agent", "watchdog")], ids=" and ".join)
def test_killed_containers_start_again_and_know_what_was_set(site: AgentSite, containers: tuple[str, ...]) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    before = {name: site.restarts(name) for name in containers}

    for process in [site.agent_process(name) for name in containers]:
        os.kill(process, signal.SIGKILL)

    site.until(lambda: all(site.restarts(name) > before[name] for name in containers), "they have started again")
    site.rolled_out()
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked, still or again")
    site.node.kubectl("delete", "nodepower", site.node.name)
    site.until(site.at_rest, "the new agent puts back what the old one has set")


HOG = """
import sys
with open(sys.argv[1] + "/cgroup.procs", "w") as file:
    file.write("0")
held = []
while True:
    held.append(bytearray(b"x" * 2**20))
"""


def test_an_agent_out_of_memory_is_survived(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    before, process = site.restarts(), site.agent_process()
    if not Path("/sys/fs/cgroup/memory").is_dir():
        pytest.skip("this machine's control groups are of version 2, which kills a container as a whole")
    group = next(path for path in Path(f"/proc/{process}/cgroup").read_text().splitlines() if ":memory:" in path)
    folder = Path("/sys/fs/cgroup/memory") / group.split(":")[2].lstrip("/")
    (Path(f"/proc/{process}") / "oom_score_adj").write_text("0")  # else a critical pod is spared
    limit = int((folder / "memory.usage_in_bytes").read_text()) + 20 * 2**20
    (folder / "memory.limit_in_bytes").write_text(str(limit))

    hog = subprocess.Popen([sys.executable, "-I", "-S", "-c", HOG, str(folder)], stderr=subprocess.DEVNULL)
    try:
        site.until(lambda: site.restarts() > before, "the agent was killed and has started again")
    finally:
        hog.kill()
        hog.wait()

    (status,) = [each for each in site.agent_pod()["status"]["containerStatuses"] if each["name"] == "agent"]
    assert status["lastState"]["terminated"]["reason"] == "OOMKilled"
    site.rolled_out()
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked, still or again")


def test_the_watchdog_puts_back_what_a_hanging_agent_has_set(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    before, process = site.restarts(), site.agent_process()

    os.kill(process, signal.SIGSTOP)
    try:
        site.until(site.at_rest, "the watchdog has put it back")
        assert site.restarts() == before
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)

    site.until(lambda: site.restarts() > before, "it was killed, or saw that it was fenced off")
    site.until(site.locked(engine, mhz=MHZ), "the next one has locked it again")


def test_a_kubelet_that_starts_again_changes_nothing(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")
    writes = site.driver.write_count

    site.node.hold("kubelet")
    time.sleep(2.0)
    site.node.release("kubelet")
    site.until(lambda: _answers(site), "the kubelet answers again")  # at first it knows of no pod
    site.node.wait_for_gpus(len(site.driver))
    time.sleep(2.0)

    assert site.locked(engine, mhz=MHZ)()
    assert site.driver.write_count == writes


def _answers(site: AgentSite) -> bool:
    with contextlib.suppress(Exception):
        return bool(site.kubelet.claims())
    return False


def test_a_lease_that_nobody_renews_ends_the_wish(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.renew(False)

    site.until(site.at_rest, "it is put back")
    site.renew(True)
    site.until(site.locked(engine, mhz=MHZ), "it is locked again")


def test_a_node_that_lost_power_starts_with_originals(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.node.power_off()
    site.driver.reboot()
    writes = site.driver.write_count
    site.node.power_on()
    site.reach()
    site.rolled_out()
    site.node.wait_for_gpus(len(site.driver))

    site.delete(engine, force=True)  # a kubelet that knows no devices yet refuses a pod that has some, for good
    site.until(site.at_rest, "every GPU is as the driver starts it")
    assert {write.function for write in site.driver.writes(writes)} <= {"nvmlDeviceResetGpuLockedClocks"}
    successor = site.engine("two")
    site.want(successor, mhz=MHZ)
    site.until(site.locked(successor, mhz=MHZ), "the agent works on")


def test_a_driver_that_kept_its_settings_without_an_agent_is_put_back(site: AgentSite) -> None:
    """Every process of the node dies at once and the driver lives on: the next agent finds what the last one set."""
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.renew(False)
    site.node.power_off()
    assert site.locked(engine, mhz=MHZ)()
    site.node.power_on()
    site.reach()

    site.until(site.at_rest, "the agent puts back without a Lease")
    site.rolled_out()


def test_a_storm_ends_with_originals(site: AgentSite) -> None:
    """Everything at once and without waiting: containers killed and stopped, pods of agents and engines taken away, the
    kubelet and containerd killed."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    print(f"seed {seed}")
    engines = [site.engine("one"), site.engine("two")]

    def signalled(container: str, number: int) -> None:
        os.kill(site.agent_process(container), number)

    def replaced() -> None:
        old = engines.pop(0)
        site.delete(old, force=True)
        engines.append(site.engine(f"{old.name}x"))

    def deleted() -> None:
        name = site.agent_pod()["metadata"]["name"]
        site.node.kubectl("delete", "pod", name, "--namespace", SYSTEM, "--grace-period=0", "--force")

    blows = {
        "agent killed": lambda: signalled("agent", signal.SIGKILL),
        "agent stopped": lambda: signalled("agent", signal.SIGSTOP),
        "watchdog killed": lambda: signalled("watchdog", signal.SIGKILL),
        "agent's pod deleted": deleted,
        "engine replaced": replaced,
        "kubelet killed": lambda: site.node.kill("kubelet"),
        "containerd killed": lambda: site.node.kill("containerd"),
    }
    names = [*blows, *chance.choices(list(blows), k=5)]
    chance.shuffle(names)
    for name in names:
        site.want(*engines, mhz=chance.choice((MHZ, 1005, 1200)))
        time.sleep(chance.uniform(0.0, 2.0))
        print(name)
        with contextlib.suppress(CommandError, NodeFailedError, OSError, LookupError, ValueError):
            blows[name]()  # what is down already cannot be hit

    site.clear()
    site.until(site.at_rest, f"every GPU is as it was found (seed {seed}: {', '.join(names)})")
    site.until(lambda: len(site.agent_pods()) == 1, "there is one agent")
    site.rolled_out()
    engine = site.engine("after")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "it works on")


PATCH = """
import json, os, ssl, sys, urllib.error, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
for node in sys.argv[1:]:
    request = urllib.request.Request(
        f"https://{os.environ['KUBERNETES_SERVICE_HOST']}/apis/heliotrope.io/v1alpha1/nodepowers/{node}/status",
        method="PATCH",
        data=json.dumps({"status": {"managedGpus": 7}}).encode(),
        headers={
            "Content-Type": "application/merge-patch+json",
            "Authorization": "Bearer " + open(folder + "token").read(),
        },
    )
    try:
        with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt")) as answer:
            print(node, answer.status)
    except urllib.error.HTTPError as error:
        print(node, error.code, json.load(error)["message"])
"""


def test_an_agent_writes_no_other_nodes_power(site: AgentSite) -> None:
    for name in (site.node.name, "node2"):
        spec = {"enforcement": "Advise", "intents": []}
        metadata = {"name": name}
        site.node.apply(
            {"apiVersion": "heliotrope.io/v1alpha1", "kind": "NodePower", "metadata": metadata, "spec": spec}
        )
    pod = site.agent_pod()["metadata"]["name"]

    python = f"/{images.ENVIRONMENT}/bin/python"
    of_agent = ("exec", pod, "--namespace", SYSTEM, "--container=agent", "--")
    output = site.node.kubectl(*of_agent, python, "-c", PATCH, site.node.name, "node2")

    own, others = output.splitlines()
    assert own == f"{site.node.name} 200"
    assert others.startswith("node2 403 ")  # RBAC allows it: the admission policy does not
    assert "may not write the NodePower of node2" in others
    assert "managedGpus" not in site.node.get("nodepower", "node2").get("status", {})


def test_the_containers_have_no_more_than_they_need(site: AgentSite) -> None:
    for container in site.agent_pod()["spec"]["containers"]:
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"] is True
        assert security["capabilities"] == {"add": ["SYS_ADMIN"], "drop": ["ALL"]}
        assert "privileged" not in security
    status = Path(f"/proc/{site.agent_process()}/status").read_text()
    effective = next(line.split()[1] for line in status.splitlines() if line.startswith("CapEff"))
    assert int(effective, 16) == 1 << 21  # CAP_SYS_ADMIN


def test_uninstalling_puts_back(site: AgentSite) -> None:
    engine = site.engine("one")
    site.want(engine, mhz=MHZ)
    site.until(site.locked(engine, mhz=MHZ), "the GPU is locked")

    site.uninstall()

    site.until(site.at_rest, "it is put back")
    assert site.node.get("nodepowers")["items"]  # the wish is still there
