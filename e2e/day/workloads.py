"""Plays the controllers that a cluster has beside ours: Deployments get pods, pods get nodes and an emulated engine.

Each pod has an address of the loopback network of its own and one emulated engine behind it, so that pickers scrape and
gateways reach it as they would in a cluster. Jobs that are not suspended run for their time and complete.
"""

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx

from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig

ENGINE_PORT = 8000
MERGE = {"Content-Type": "application/merge-patch+json"}
LOOK_S = 0.2

Document = dict[str, Any]


@dataclass(slots=True)
class _Pod:
    emulator: Emulator
    deployment: str
    starts: asyncio.Task[None]


class Workloads:
    """Use as an async context manager; `check` raises what went wrong."""

    def __init__(
        self, url: str, namespace: str, *, engine: Mapping[str, Any], start_s: float, job_s: float, network: int = 20
    ) -> None:
        """Nothing runs yet.

        Args:
            url: of an API server, with administrator's rights.
            namespace: whose Deployments and Jobs are played.
            engine: settings of the emulated engines; the name, host and port are the pod's.
            start_s: from a pod's creation until it is ready.
            job_s: how long a Job runs.
            network: pods get addresses of 127.<network>.0.0.
        """
        self._http = httpx.AsyncClient(base_url=url, timeout=30.0)
        self._namespace = namespace
        self._engine = dict(engine)
        self._start_s = start_s
        self._job_s = job_s
        self._numbers = itertools.count(1)
        self._network = network
        self._pods: dict[str, _Pod] = {}
        self._jobs: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None
        self._ending: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Workloads":
        self._task = asyncio.create_task(self._run(), name="workloads")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for pod in self._pods.values():
            pod.starts.cancel()
        await asyncio.gather(*(pod.emulator.__aexit__(None, None, None) for pod in self._pods.values()), *self._ending)
        await self._http.aclose()

    def check(self) -> None:
        """Raise what ended the loop, if anything did."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def _run(self) -> None:
        while True:
            await self._deployments()
            await self._run_jobs()
            await asyncio.sleep(LOOK_S)

    async def _deployments(self) -> None:
        listed = (await self._get(f"/apis/apps/v1/namespaces/{self._namespace}/deployments"))["items"]
        for each in listed:
            name, wanted = each["metadata"]["name"], each["spec"]["replicas"]
            present = sorted(pod for pod, about in self._pods.items() if about.deployment == name)
            for _ in range(wanted - len(present)):
                await self._create(name, each["spec"]["template"])
            for surplus in present[wanted:]:
                await self._delete(surplus)
            if each.get("status", {}).get("replicas", 0) != wanted:
                await self._patch(
                    f"/apis/apps/v1/namespaces/{self._namespace}/deployments/{name}/status",
                    {"status": {"replicas": wanted}},
                )

    async def _create(self, deployment: str, template: Document) -> None:
        number = next(self._numbers)
        name, address = f"{deployment}-{number}", f"127.{self._network}.{number // 250}.{number % 250 + 1}"
        config = EngineConfig.model_validate({"name": name, "host": address, "port": ENGINE_PORT} | self._engine)
        emulator = Emulator(EmulatorConfig(engines=(config,)))
        await emulator.__aenter__()
        region = template["metadata"]["labels"]["heliotrope.io/region"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": template["metadata"]["labels"]},
            "spec": template["spec"] | {"nodeName": f"{region}-{number}"},
        }
        await self._apply_node(f"{region}-{number}", region)
        await self._call("POST", f"/api/v1/namespaces/{self._namespace}/pods", pod)
        starts = asyncio.create_task(self._ready(name, address), name=f"{name} starts")
        self._pods[name] = _Pod(emulator, deployment, starts)

    async def _apply_node(self, name: str, region: str) -> None:
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"topology.kubernetes.io/region": region}},
        }
        await self._call("POST", "/api/v1/nodes", node)

    async def _ready(self, name: str, address: str) -> None:
        await asyncio.sleep(self._start_s)
        since = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        status = {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}],
        }
        await self._patch(f"/api/v1/namespaces/{self._namespace}/pods/{name}/status", {"status": status})

    async def _delete(self, name: str) -> None:
        pod = self._pods.pop(name)
        pod.starts.cancel()
        path = f"/api/v1/namespaces/{self._namespace}/pods/{name}"
        await self._call("DELETE", f"{path}?gracePeriodSeconds=30")  # it stays, terminating, until its kubelet is done
        ending = asyncio.create_task(self._end(pod, path), name=f"{name} ends")
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)

    async def _end(self, pod: _Pod, path: str) -> None:
        """What is in flight ends first, as under a preStop hook."""
        (engine,) = pod.emulator.engines.values()
        for _ in range(200):
            if not engine.driver.unfinished:
                break
            await asyncio.sleep(0.1)
        await pod.emulator.__aexit__(None, None, None)
        await self._call("DELETE", f"{path}?gracePeriodSeconds=0")

    async def _run_jobs(self) -> None:
        now = asyncio.get_running_loop().time()
        path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        for job in (await self._get(path))["items"]:
            name, status = job["metadata"]["name"], job.get("status", {})
            if job["spec"].get("suspend") or status.get("succeeded"):
                continue
            started = self._jobs.setdefault(name, now)
            at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            if not status.get("startTime"):
                await self._patch(f"{path}/{name}/status", {"status": {"startTime": at, "active": 1}})
            elif now - started > self._job_s:
                conditions = [
                    {"type": kind, "status": "True", "lastTransitionTime": at, "lastProbeTime": at}
                    for kind in ("SuccessCriteriaMet", "Complete")
                ]
                ended = {"succeeded": 1, "active": 0, "completionTime": at, "conditions": conditions}
                await self._patch(f"{path}/{name}/status", {"status": ended})

    async def _get(self, path: str) -> Document:
        return await self._call("GET", path)

    async def _patch(self, path: str, patch: Document) -> None:
        await self._call("PATCH", path, patch)

    async def _call(self, method: str, path: str, body: Document | None = None) -> Document:
        headers = MERGE if method == "PATCH" else None
        answer = await self._http.request(method, path, json=body, headers=headers)
        gone = answer.status_code == httpx.codes.NOT_FOUND
        if not answer.is_success and not gone:
            raise RuntimeError(f"{method} {path}: {answer.text}")
        return {} if gone else dict(answer.json())
