"""The processes of an arm: emulated engines, and for Heliotrope's arm the picker with its folder of resources."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from heliotrope_sim.children import Child
from heliotrope_sim.demo.grids import region_documents
from heliotrope_sim.demo.levers import ABLATIONS, Lever
from heliotrope_sim.demo.scenario import Scenario

READY_SECONDS = 60.0
NAMESPACE = "demo"
POOL = "demo"
LEDGER = "ledger"
"""The picker's ledger within an arm's folder; its slots are short, because hours of grid pass in seconds."""


@dataclass(frozen=True, slots=True)
class RunningEngine:
    """An emulated engine that takes requests."""

    name: str
    region: str
    address: str
    """`ip:port`."""

    @property
    def url(self) -> str:
        """Base of its HTTP API."""
        return f"http://{self.address}"


@dataclass(frozen=True, slots=True)
class PickerPorts:
    """Where the picker listens on 127.0.0.1."""

    grpc: int
    admin: int


async def start_engines(
    scenario: Scenario, folder: Path, *, time_scale: float = 1.0
) -> tuple[Child, list[RunningEngine]]:
    """Start all emulated engines in one process; `time_scale` 1000 makes them answer almost at once.

    Raises:
        ChildError: if they do not come up.
    """
    names = [(f"{r.name}-{i}", r.name) for r in scenario.regions for i in range(r.engines)]
    config = {
        "engines": [
            {
                "name": name,
                "port": 0,
                "profile": scenario.profile,
                "model": scenario.model,
                "max_num_seqs": scenario.max_num_seqs,
                "time_scale": time_scale,
                "seed": scenario.seed + index,
            }
            for index, (name, _) in enumerate(names)
        ]
    }
    path = folder / "engines.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    child = await Child.start(
        "engines", [sys.executable, "-m", "heliotrope_sim.emulator", "--config", str(path)], folder / "engines.log"
    )
    announced = json.loads(await child.first_line(READY_SECONDS))
    addresses = {entry["name"]: f"{entry['host']}:{entry['port']}" for entry in announced["engines"]}
    return child, [RunningEngine(name, region, addresses[name]) for name, region in names]


def write_resources(
    scenario: Scenario,
    engines: Sequence[RunningEngine],
    folder: Path,
    wall_start_unix_s: float,
    without: Lever = Lever.NOTHING,
) -> None:
    """Write the folder that the picker watches: endpoints, regions, policy (without a lever) and variants."""
    folder.mkdir(parents=True, exist_ok=True)
    write_endpoints(engines, folder)
    write_regions(scenario, folder, wall_start_unix_s)
    _write(folder / "policy.yaml", [_policy(scenario, without)])
    _write(folder / "variants.yaml", [_variant(scenario, region.name) for region in scenario.regions])


def write_endpoints(engines: Sequence[RunningEngine], folder: Path) -> None:
    """(Re)write where the engines are."""
    _write(folder / "endpoints.yaml", [{"endpoints": [_endpoint(engine) for engine in engines]}])


def write_regions(scenario: Scenario, folder: Path, wall_start_unix_s: float) -> None:
    """(Re)write the RegionProfiles, for instance with another start of the replay."""
    _write(folder / "regions.yaml", region_documents(scenario, wall_start_unix_s))


async def start_picker(folder: Path, resources: Path, *flags: str) -> tuple[Child, PickerPorts]:
    """Start `heliotrope epp` on the folder of resources, with further flags.

    Raises:
        ChildError: if it does not come up.
    """
    child = await Child.start(
        "picker",
        [
            sys.executable,
            "-m",
            "heliotrope_cli.main",
            "epp",
            f"--folder={resources}",
            "--grpc-port=0",
            "--health-port=0",
            "--metrics-port=0",
            "--host=127.0.0.1",
            "--no-secure-serving",
            f"--ledger-dir={folder / LEDGER}",
            "--ledger-slot-seconds=1",
            "--announce",
            *flags,
        ],
        folder / "picker.log",
    )
    ports = json.loads(await child.first_line(READY_SECONDS))
    return child, PickerPorts(grpc=ports["grpc_port"], admin=ports["metrics_port"])


def _write(path: Path, documents: Sequence[dict[str, Any]]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    partial.replace(path)


def _endpoint(engine: RunningEngine) -> dict[str, Any]:
    address, _, port = engine.address.rpartition(":")
    return {
        "name": engine.name,
        "namespace": NAMESPACE,
        "address": address,
        "port": port,
        "labels": {"heliotrope.io/region": engine.region, "app": f"llm-{engine.region}"},
    }


def _policy(scenario: Scenario, without: Lever) -> dict[str, Any]:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "demo", "namespace": NAMESPACE},
        "spec": {
            "targetRefs": [{"name": POOL}],
            "slo": {
                "ttft": f"{round(scenario.ttft_slo_seconds * 1000)}ms",
                "tpot": f"{round(scenario.tpot_slo_seconds * 1000)}ms",
            },
            "enforcement": "Enforce",
            **ABLATIONS[without].spec,
        },
    }


def _variant(scenario: Scenario, region: str) -> dict[str, Any]:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "WorkloadVariant",
        "metadata": {"name": f"llm-{region}", "namespace": NAMESPACE},
        "spec": {
            "model": scenario.model,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"llm-{region}"},
            "endpointSelector": {"matchLabels": {"app": f"llm-{region}"}},
            "accelerator": {"type": "H100-SXM-80GB", "count": 4},
            "regionRef": {"name": region},
            "engine": {"profile": scenario.profile, "maxNumSeqs": scenario.max_num_seqs},
        },
    }
