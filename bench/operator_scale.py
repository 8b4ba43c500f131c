"""What the operator costs at the size of a large platform, on a real API server with kwok's nodes and pods.

uv run python -m bench.operator_scale [--quick] [--burst]; results in build/bench/operator.json. Fifty regions, 200
pools with a policy and a picker each, 1,000 variants and 5,000 pods; the operator runs as a process of its own with the
chart's rights. Its CPU is counted by the kernel, so that other work on the machine counts little.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
from aiohttp import web
from bench.machine import cpu_seconds, describe, rss_megabytes
from e2e.controlplane import kwok
from tests.contract.operator.cluster import operator_account
from tests.contract.operator.process import OperatorProcess
from tests.support.controlplane import ControlPlane, Process, free_ports
from tests.support.own_address import own_address

ROOT = Path(__file__).parent.parent
RESULT = Path("build/bench/operator.json")
SYSTEM = "heliotrope-system"
NAMESPACES = 20
APPLY = {"Content-Type": "application/apply-patch+yaml"}
HOUR_G = "250"
QUIET_S = 15.0
"""Steady is a time of this length with writes for fewer than a tenth of the variants."""
LONGEST_SETTLE_S = 300.0
BURST_DWELL = "60s"
"""After which fewer replicas of every target are wanted at once."""
LONGEST_BURST_S = 420.0
BURST_BEGINS_S = 180.0
"""Within which the first target has to be scaled."""
BURST_PAUSE_S = 0.5
"""Between two reactions that are measured meanwhile."""

Document = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    regions: int
    pools: int
    variants_per_pool: int
    pods_per_variant: int
    nodes: int
    settle_s: float
    steady_s: float
    reactions: int


WHOLE = Size(50, 200, 5, 5, 500, settle_s=90.0, steady_s=240.0, reactions=20)
QUICK = Size(5, 10, 5, 2, 10, settle_s=15.0, steady_s=30.0, reactions=5)


def documents(size: Size, host: str, ports: list[int]) -> Iterator[tuple[str, Document]]:
    """Paths and objects, in the order in which they can be created."""
    for n in range(NAMESPACES):
        labels = {"heliotrope.io/allow-scaling": "true", "heliotrope.io/allow-power": "true"}
        yield f"/api/v1/namespaces/{_namespace(n)}", _object("v1", "Namespace", _namespace(n), labels=labels)
    for n in range(size.nodes):
        node = _object("v1", "Node", f"node-{n}", labels={"topology.kubernetes.io/region": f"r{n % size.regions}"})
        node["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
        node["status"] = {"allocatable": {"cpu": "64", "memory": "1Ti", "pods": "110"}}
        yield f"/api/v1/nodes/node-{n}", node
    for n in range(size.regions):
        source = {"static": {"intensityGramsPerKwh": HOUR_G}}
        yield _ours("regionprofiles", f"r{n}"), _own("RegionProfile", f"r{n}", {"zone": f"Z{n}", "source": source})
    for n in range(size.pools):
        yield from _pool(n, size, host, ports[n])


def _pool(n: int, size: Size, host: str, port: int) -> Iterator[tuple[str, Document]]:
    namespace, name = _namespace(n), f"pool-{n}"
    pool = _object("inference.networking.k8s.io/v1", "InferencePool", name, namespace)
    pool["spec"] = {
        "selector": {"matchLabels": {"pool": name}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": {"name": f"picker-{n}", "port": {"number": 9002}},
    }
    yield f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools/{name}", pool
    slices = _object("discovery.k8s.io/v1", "EndpointSlice", f"picker-{n}", namespace)
    slices["metadata"]["labels"] = {"kubernetes.io/service-name": f"picker-{n}"}
    slices |= {
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "http-metrics", "port": port}],
    }
    yield f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices/picker-{n}", slices
    policy = {
        "targetRefs": [{"name": name}],
        "slo": {"ttft": "1s", "tpot": "50ms"},
        # Nothing goes while it is measured: what scaling 1,000 targets costs is no steady state (`burst` measures it).
        "autoscaling": {"actuation": "Scale", "interval": "30s", "scaleDown": {"dwell": "1h"}},
        "power": {},
        "enforcement": "Enforce",
    }
    yield _ours("carbonpolicies", name, namespace), _own("CarbonPolicy", name, policy, namespace)
    for v in range(size.variants_per_pool):
        variant = f"{name}-v{v}"
        labels = {"pool": name, "variant": variant}
        deployment = _object("apps/v1", "Deployment", variant, namespace)
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "engine", "image": "engine"}]}}
        deployment["spec"] = {
            "replicas": size.pods_per_variant,
            "selector": {"matchLabels": labels},
            "template": template,
        }
        yield f"/apis/apps/v1/namespaces/{namespace}/deployments/{variant}", deployment
        spec = {
            "model": f"model-{n}",
            "endpointSelector": {"matchLabels": labels},
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": variant},
            "accelerator": {"type": "H100-SXM-80GB"},
            "regionRef": {"name": f"r{(n + v) % size.regions}"},
            "engine": {"profile": "llama-3.1-8b-h100"},
            "maxReplicas": 8,
        }
        yield _ours("workloadvariants", variant, namespace), _own("WorkloadVariant", variant, spec, namespace)
        for p in range(size.pods_per_variant):
            pod = _object("v1", "Pod", f"{variant}-{p}", namespace, labels=labels)
            number = (n * size.variants_per_pool + v) * size.pods_per_variant + p
            resources = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
            pod["spec"] = {
                "nodeName": f"node-{number % size.nodes}",
                "containers": [{"name": "engine", "image": "engine", "resources": resources}],
            }
            yield f"/api/v1/namespaces/{namespace}/pods/{variant}-{p}", pod


def _namespace(n: int) -> str:
    return f"llm-{n % NAMESPACES}"


def _object(
    api_version: str, kind: str, name: str, namespace: str | None = None, *, labels: dict[str, str] | None = None
) -> Document:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {}) | ({"labels": labels} if labels else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _own(kind: str, name: str, spec: Document, namespace: str | None = None) -> Document:
    return _object("heliotrope.io/v1alpha1", kind, name, namespace) | {"spec": spec}


def _ours(plural: str, name: str, namespace: str | None = None) -> str:
    middle = f"/namespaces/{namespace}" if namespace else ""
    return f"/apis/heliotrope.io/v1alpha1{middle}/{plural}/{name}"


class FakePickers:
    """The pages of all pools' pickers, one port each: every pool is asked for one request per second and variant."""

    def __init__(self, size: Size, host: str, ports: list[int]) -> None:
        self._size, self._host, self._ports = size, host, ports
        self._started = time.time()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._runners: list[web.AppRunner] = []
        self._serving = threading.Event()

    def __enter__(self) -> "FakePickers":
        self._thread.start()
        self._serving.wait(30.0)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        for n, port in enumerate(self._ports):
            self._loop.run_until_complete(self._start(n, port))
        self._serving.set()
        self._loop.run_forever()
        for runner in self._runners:
            self._loop.run_until_complete(runner.cleanup())
        self._loop.close()

    async def _start(self, n: int, port: int) -> None:
        async def page(_: web.Request) -> web.Response:
            return web.json_response(self._page(n))

        application = web.Application()
        application.router.add_get("/v1/demand", page)
        runner = web.AppRunner(application, access_log=None)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, self._host, port).start()

    def _page(self, n: int) -> Document:
        size, now = self._size, time.time()
        per_engine = (now - self._started) / size.pods_per_variant
        requests = (now - self._started) * size.variants_per_pool
        engines = [
            {
                "name": f"pool-{n}-v{v}-{p}",
                "asleep": False,
                "running": 2.0,
                "waiting": 0.0,
                "kv_usage": 0.1,
                "first_tokens_total": per_engine,
                "prompt_tokens_total": per_engine * 500,
                "generation_tokens_total": per_engine * 200,
            }
            for v in range(size.variants_per_pool)
            for p in range(size.pods_per_variant)
        ]
        line = {
            "model": f"model-{n}",
            "requests_total": requests,
            "prompt_tokens_total": requests * 500,
            "output_tokens_total": requests * 200,
            "in_flight": 10,
            "held": 0,
            "oldest_held_s": None,
        }
        return {
            "schema": 1,
            "pool": {"namespace": _namespace(n), "name": f"pool-{n}"},
            "instance": "bench",
            "time_unix_s": now,
            "started_unix_s": self._started,
            "models": [line],
            "endpoints": engines,
        }


def create(cluster: ControlPlane, objects: list[tuple[str, Document]]) -> None:
    """Apply all objects, a kind after the other, with progress."""
    url = cluster.proxy()
    done = 0
    with httpx.Client(base_url=url, timeout=60.0) as http, ThreadPoolExecutor(8) as pool:

        def apply(entry: tuple[str, Document]) -> None:
            path, document = entry
            answer = http.patch(f"{path}?fieldManager=bench&force=true", json=document, headers=APPLY)
            if answer.status_code >= httpx.codes.BAD_REQUEST:
                raise RuntimeError(f"{path}: {answer.text[:500]}")

        kinds = list(dict.fromkeys(document["kind"] for _, document in objects))
        for kind in kinds:
            chosen = [entry for entry in objects if entry[1]["kind"] == kind]
            list(pool.map(apply, chosen))
            done += len(chosen)
            print(f"  {done} of {len(objects)} objects ({kind}s)", file=sys.stderr, flush=True)


def reaction_s(cluster: ControlPlane, region: str, grams: int) -> float:
    """Seconds from a region's new value until its status says so."""
    path = _ours("regionprofiles", region)
    with httpx.Client(base_url=cluster.proxy(), timeout=30.0) as http:
        patch = {"spec": {"source": {"static": {"intensityGramsPerKwh": str(grams)}}}}
        http.patch(path, json=patch, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()
        started = time.monotonic()
        while time.monotonic() - started < 60.0:
            status = http.get(path).json().get("status", {})
            if float(status.get("intensity", {}).get("value", "nan")) == grams:
                return time.monotonic() - started
            time.sleep(0.02)
    raise RuntimeError(f"{region} did not react within a minute")


def settle(operator: OperatorProcess, size: Size) -> None:
    """Wait for as long as statuses are written for the first time: on a busy machine that takes a while."""
    print(f"  settling for {size.settle_s:.0f} s or more", file=sys.stderr, flush=True)
    time.sleep(size.settle_s)
    patches, writes = {"method": "PATCH"}, "heliotrope_kubernetes_requests_total"
    few = size.pools * size.variants_per_pool / 10
    deadline, before = time.monotonic() + LONGEST_SETTLE_S, operator.metric(writes, patches)
    while time.monotonic() < deadline:
        time.sleep(QUIET_S)
        now = operator.metric(writes, patches)
        if now - before < few:
            return
        before = now
    print("  it never settled: what follows is no steady state", file=sys.stderr, flush=True)


def burst(cluster: ControlPlane, operator: OperatorProcess, size: Size) -> dict[str, Any]:
    """How late statuses of regions are while fewer replicas of all targets come due at once."""
    print("  a burst: fewer replicas of all targets at once", file=sys.stderr, flush=True)
    dwell = {"spec": {"autoscaling": {"scaleDown": {"dwell": BURST_DWELL}}}}
    with httpx.Client(base_url=cluster.proxy(), timeout=30.0) as http:
        for n in range(size.pools):
            path = _ours("carbonpolicies", f"pool-{n}", _namespace(n))
            http.patch(path, json=dwell, headers={"Content-Type": "application/merge-patch+json"}).raise_for_status()

    scaled = {"action": "scale", "outcome": "success"}

    def done() -> float:
        return operator.metric("heliotrope_actuations_total", scaled)

    before, counted = done(), "heliotrope_kubernetes_requests_total"
    waited = time.monotonic()
    while done() == before:
        if time.monotonic() - waited > BURST_BEGINS_S:
            raise RuntimeError("no target was scaled")
        time.sleep(0.2)
    reactions: list[float] = []
    started, requests, cpu = time.monotonic(), operator.metric(counted), cpu_seconds(operator.pid)
    newest, last = done(), started
    # Targets go step by step; the burst is over once none has moved for as long as steady is told by.
    while time.monotonic() - last < QUIET_S and time.monotonic() - started < LONGEST_BURST_S:
        reactions.append(reaction_s(cluster, f"r{len(reactions) % size.regions}", 1_000 + len(reactions)))
        if (now := done()) != newest:
            newest, last = now, time.monotonic()
        time.sleep(BURST_PAUSE_S)
    seconds = time.monotonic() - started
    return {
        "writes": newest - before,
        "seconds": round(last - started, 1),
        "cores": round((cpu_seconds(operator.pid) - cpu) / seconds, 3),
        "api_requests_per_minute": round((operator.metric(counted) - requests) / seconds * 60.0, 1),
        "reactions": len(reactions),
        "signal_reaction_s": {"p50": sorted(reactions)[len(reactions) // 2], "max": max(reactions)},
    }


def measure(size: Size, folder: Path, *, with_burst: bool) -> dict[str, Any]:
    """All but the allocation."""
    host = own_address()
    ports = free_ports(size.pools)
    with ExitStack() as stack:
        cluster = stack.enter_context(ControlPlane.start(folder))
        cluster.apply_crds(*sorted((ROOT / "crds").glob("*.yaml")))
        cluster.apply_crds(*sorted((ROOT / "tests" / "support" / "crds").glob("*inferencepools*.yaml")))
        stack.enter_context(FakePickers(size, host, ports))
        arguments = [str(kwok.ensure()), f"--kubeconfig={cluster.kubeconfig}", "--manage-all-nodes=true"]
        node_keeper = Process(arguments, folder / "kwok.log")
        stack.callback(node_keeper.stop)
        objects = list(documents(size, host, ports))
        create(cluster, objects)
        kubeconfig = operator_account(cluster, SYSTEM)
        parts = dict.fromkeys(("scaling", "activation", "power", "deferral"), True)
        operator = OperatorProcess(
            kubeconfig,
            folder / "operator.log",
            namespace=SYSTEM,
            parts=parts,
            status_refresh_s=60.0,
            scale_poll_s=60.0,
            lease={},
        )
        with operator:
            operator.wait_ready()
            pid = operator.pid
            settle(operator, size)
            counted = "heliotrope_kubernetes_requests_total"
            before_cpu, before_requests, started = cpu_seconds(pid), operator.metric(counted), time.monotonic()
            print(f"  measuring for {size.steady_s:.0f} s", file=sys.stderr, flush=True)
            peak_mb = 0.0
            while time.monotonic() - started < size.steady_s:
                time.sleep(2.0)
                peak_mb = max(peak_mb, rss_megabytes(pid))
            seconds = time.monotonic() - started
            cores = (cpu_seconds(pid) - before_cpu) / seconds
            per_minute = (operator.metric(counted) - before_requests) / seconds * 60.0
            reactions = [reaction_s(cluster, f"r{n % size.regions}", 300 + n) for n in range(size.reactions)]
            found = {"burst": burst(cluster, operator, size)} if with_burst else {}
        return {
            "steady_cores": round(cores, 4),
            "rss_mb": round(peak_mb, 1),
            "signal_reaction_s": {"p50": sorted(reactions)[len(reactions) // 2], "max": max(reactions)},
            "api_requests_per_minute": round(per_minute, 1),
            **found,
        }


def allocation(quick: bool) -> float:
    """Seconds of the program of 200 variants over 20 regions, as bench/allocation.py measures it."""
    command = [sys.executable, str(Path(__file__).parent / "allocation.py"), *(["--repeats", "3"] if quick else [])]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return float(json.loads(Path("build/bench/allocation.json").read_text(encoding="utf-8"))["allocation_200x20_s"])


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, in about two minutes")
    parser.add_argument(
        "--burst", action="store_true", help="also measure while fewer replicas of all targets come due, some minutes"
    )
    parser.add_argument("--pools", type=int, help="fewer pools than usual, each with a policy and five variants")
    parser.add_argument("--steady", type=float, help="seconds to measure the steady state for")
    arguments = parser.parse_args()
    quick = arguments.quick
    size = QUICK if quick else WHOLE
    size = replace(size, pools=arguments.pools or size.pools, steady_s=arguments.steady or size.steady_s)
    with tempfile.TemporaryDirectory(prefix="heliotrope-bench-") as name:
        found = measure(size, Path(name), with_burst=arguments.burst)
    result = found | {
        "allocation_200x20_s": allocation(quick),
        "regions": size.regions,
        "policies": size.pools,
        "variants": size.pools * size.variants_per_pool,
        "pods": size.pools * size.variants_per_pool * size.pods_per_variant,
        "machine": describe(),
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
