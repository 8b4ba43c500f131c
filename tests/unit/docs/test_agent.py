"""docs/agent.md and examples/agent against what the agent does."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from heliotrope.api import documents
from heliotrope.api.v1alpha1.nodepower import NodePower
from heliotrope_agent.control.metrics import ControlMetrics
from heliotrope_agent.control.reasons import Reason
from heliotrope_agent.driver.interface import Device
from heliotrope_agent.kube.folder import FolderCluster
from heliotrope_agent.kube.metrics import KubeMetrics
from heliotrope_agent.pods.claims import Standing
from heliotrope_agent.pods.folder import FolderOwners

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
MACHINE = ROOT / "examples" / "agent" / "machine"


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_every_reason_is_explained() -> None:
    explained = set(re.findall(r"`([A-Z][A-Za-z]+)`", section("What is seen")))
    said = {"AdviseOnly" if each is Reason.ADVISE else each.value for each in Reason}
    assert said - {Reason.THROTTLED, Reason.DRY_RUN} - explained == set()


def test_every_metric_is_described_and_no_other() -> None:
    registry = CollectorRegistry()
    kube = KubeMetrics(registry, unix_clock=lambda: 0.0)
    kube.show_lease(lambda: 1.0)
    ControlMetrics(registry)
    kinds = {"counter": "_total"}
    there = {family.name + kinds.get(family.type, "") for family in registry.collect()}
    words = re.findall(r"`(heliotrope_agent|…)_([a-z_]+)", section("Metrics"))
    described = {f"heliotrope_agent_{name}" for _, name in words}
    assert there - described - {"heliotrope_agent_looks_total"} == set()
    assert described - there == set()


class OneGpu:
    """A machine with the GPU of the example."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    def devices(self) -> tuple[Device, ...]:
        return (Device(self.uuid, 0, "GPU"),)


def test_the_machine_of_the_example_has_its_wishes_and_owners(tmp_path: Path) -> None:
    folder = tmp_path / "machine"
    shutil.copytree(MACHINE, folder)
    (uuid,) = yaml.safe_load((folder / "gpus.yaml").read_text(encoding="utf-8"))["gpus"]
    cluster = FolderCluster(
        folder, "workstation", lease_s=0.0, clock=lambda: 0.0, wall_clock=lambda: 0.0, changed=lambda: None
    )
    cluster.start()
    wishes = cluster.wishes()
    cluster.stop()
    assert wishes.node_power is not None
    driver: Any = OneGpu(uuid)  # has of a driver what is asked here
    holders = FolderOwners(folder, driver).holders(wishes.node_power.spec.intents)
    assert holders[uuid].standing is Standing.ELIGIBLE


@pytest.mark.parametrize("path", [ROOT / "examples" / "nodepower.yaml", MACHINE / "nodepower.yaml"])
def test_nodepowers_of_examples_are_ones(path: Path) -> None:
    assert isinstance(documents.parse(yaml.safe_load(path.read_text(encoding="utf-8"))), NodePower)
