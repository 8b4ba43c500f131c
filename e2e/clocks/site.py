"""A node with a prefill and a decode engine on GPUs of the stand-in driver, a sidecar in front, and the node agent."""

import json
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.support.nvml.node import FakeNode
from tests.support.nvml.products import A100_40GB

from heliotrope.api.v1alpha1.common import Role
from heliotrope_sim.children import Child

PROFILE = "llama-3.1-8b-a100-40gb"
NODE = "gpu-node"
GPUS = {Role.PREFILL: 0, Role.DECODE: 1}
READY_S = 60.0


@dataclass(slots=True)
class Site:
    """What runs, and how it is told and asked."""

    folder: Path
    node: FakeNode
    agent: Child
    url: str
    """Where clients ask."""
    prefiller: str
    """Host and port, for the header that names it."""

    def wish(self, settings: Mapping[Role, Mapping[str, int]]) -> None:
        """What the operator would write into the NodePower: `smClockMhz` and `watts` by role; none: left alone."""
        intents = [
            {
                "namespace": "llm",
                "variant": f"llama-{role.value}",
                "role": role.value,
                "pods": [{"name": f"llama-{role.value}-0", "uid": f"uid-{role.value}"}],
                **each,
            }
            for role, each in settings.items()
            if each
        ]
        document = {
            "apiVersion": "heliotrope.io/v1alpha1",
            "kind": "NodePower",
            "metadata": {"name": NODE},
            "spec": {"enforcement": "Enforce", "intents": intents},
        }
        new = self.folder / "wishes" / "nodepower.new"
        new.write_text(yaml.safe_dump(document), encoding="utf-8")
        new.rename(new.with_suffix(".yaml"))

    @property
    def millijoules(self) -> dict[Role, int]:
        """The driver's counters."""
        return {role: self.node.read(gpu).energy_millijoules for role, gpu in GPUS.items()}

    @property
    def clocks_mhz(self) -> dict[Role, int]:
        """What the GPUs run at."""
        return {role: self.node.read(gpu).sm_mhz for role, gpu in GPUS.items()}

    @property
    def locks_mhz(self) -> dict[Role, tuple[int, int] | None]:
        """What their clocks are locked at."""
        return {role: self.node.read(gpu).sm_lock_mhz for role, gpu in GPUS.items()}

    @property
    def limits_watts(self) -> dict[Role, int]:
        """Their power limits."""
        return {role: self.node.read(gpu).power_limit_milliwatts // 1_000 for role, gpu in GPUS.items()}

    def status(self) -> dict[str, Any]:
        """What the agent says."""
        path = self.folder / "wishes" / "status" / f"{NODE}.yaml"
        return dict(yaml.safe_load(path.read_text(encoding="utf-8"))) if path.exists() else {}


class StartedSite:
    """Starts all processes and stops them in order, the agent first, which puts the GPUs back."""

    def __init__(self, folder: Path, *, time_scale: float) -> None:
        """Nothing runs yet; the folder is empty, `time_scale` is engine seconds per second."""
        self._folder = folder
        self._time_scale = time_scale
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Site:
        await self._stack.__aenter__()
        try:
            return await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> Site:
        folder, stack = self._folder, self._stack
        node = stack.enter_context(FakeNode.create(folder / "gpus", A100_40GB, A100_40GB))
        engines = await self._child("engines", node, "heliotrope_sim.emulator", "--config", str(self._emulated(node)))
        found = {each["name"]: each for each in json.loads(await engines.first_line(READY_S))["engines"]}
        decode = found[Role.DECODE.value]["url"]
        sidecar = await self._child("sidecar", node, "heliotrope_sim.sidecar", "--decoder-url", decode)
        url = json.loads(await sidecar.first_line(READY_S))["url"]
        wishes = folder / "wishes"
        wishes.mkdir()
        owners = {node.uuid(gpu): {"namespace": "llm", "pod": f"llama-{role.value}-0"} for role, gpu in GPUS.items()}
        (wishes / "gpus.yaml").write_text(yaml.safe_dump({"gpus": owners}), encoding="utf-8")
        options = {
            "--node": NODE,
            "--folder": wishes,
            "--state-folder": folder / "state",
            "--metrics-port": 0,
            # Days are short here; a clock that goes down may go down again soon.
            "--look-seconds": 0.2,
            "--lower-dwell-seconds": 0,
            "--raise-dwell-seconds": 0,
            "--gpu-changes-per-hour": 100_000,
        }
        command = [str(each) for option in options.items() for each in option]
        agent = await self._child("agent", node, "heliotrope_cli.main", "agent", *command)
        prefill = found[Role.PREFILL.value]
        site = Site(folder, node, agent, url, f"{prefill['host']}:{prefill['port']}")
        site.wish({})
        return site

    def _emulated(self, node: FakeNode) -> Path:
        path = self._folder / "engines.json"
        engines = [
            {
                "name": role.value,
                "profile": PROFILE,
                "time_scale": self._time_scale,
                "kv_transfer": {},
                "gpu": {"uuids": [node.uuid(gpu)]},
            }
            for role, gpu in GPUS.items()
        ]
        path.write_text(json.dumps({"engines": engines}), encoding="utf-8")
        return path

    async def _child(self, name: str, node: FakeNode, module: str, *arguments: str) -> Child:
        command = [sys.executable, "-m", module, *arguments]
        child = await Child.start(name, command, self._folder / f"{name}.log", env=node.environment)
        self._stack.push_async_callback(child.stop, 15.0)
        return child
