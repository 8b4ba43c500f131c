"""Engines at rest on a real API server with the chart's rights: emulated engines at the pods' addresses.

What is asked of the pool stands in a table of the operator that planning writes; here the test does.
"""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from tests.contract.operator.cluster import NAMESPACE, Api, Document, conditions, operator_account
from tests.contract.operator.conftest import Start
from tests.support.controlplane import Cluster
from tests.support.resource_documents import COEFFICIENTS

from heliotrope.api.v1alpha1.common import RESTING_LABEL
from heliotrope_epp.demand.page import DemandPage, EndpointLine, ModelLine, PoolName, encode
from heliotrope_operator.activation.controller import ACTIVATION, ActivationController
from heliotrope_operator.activation.engines import Engines
from heliotrope_operator.activation.nodes import ORIGINAL
from heliotrope_operator.activation.part import part
from heliotrope_operator.actuation.wanted import Wanted
from heliotrope_operator.cluster import Cluster as Known
from heliotrope_operator.kinds.catalog import watched
from heliotrope_operator.kube import Kube
from heliotrope_operator.metrics import Metrics
from heliotrope_operator.parts import Context
from heliotrope_operator.recorder import Recorder
from heliotrope_operator.resources import RESOURCES, Key, Kind
from heliotrope_operator.settings import OperatorSettings, Parts
from heliotrope_operator.tables import EngineSeen, PoolDemand, VariantLoad
from heliotrope_operator.writer import Writer
from heliotrope_operator.writes import Writes
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig

pytestmark = [pytest.mark.controlplane, pytest.mark.slow]
PROFILE = "llama-3.1-8b-h100"
SLEEPS_WELL = COEFFICIENTS | {"sleepWatts": "85"}
"""Shipped profiles say that sleep saves nothing, as was measured; here an engine for which it does."""
HOSTS = {"e0": "127.0.0.11", "e1": "127.0.0.12"}


class Leading:
    """A Lease that a test holds, or loses."""

    held = True


class Bench:
    """An operator's activation, a pass at a time, over what the API server has."""

    def __init__(self, api: Api, account: Path, port: int) -> None:
        self.api = api
        self.port = port
        self.now_s = time.time()
        self.metrics = Metrics(CollectorRegistry())
        self.kube = Kube(account, self.metrics)
        self.leading = Leading()
        self.asleep: dict[str, bool | None] = {}
        self.running: dict[str, float] = {}
        self.rate: float | None = 0.5
        self.held = 0.0
        self.connections: list[Engines] = []
        """Of all processes; one that was killed closes none."""
        self.start()

    async def close(self) -> None:
        await self.settle()
        for engines in self.connections:
            await engines.close()
        await self.kube.close()

    def start(self) -> None:
        """As a new process: nothing is remembered."""
        parts = Parts(activation=True)
        self.known = Known(watched(parts))
        writes = Writes(self.kube, self.leading)
        recorder = Recorder(self.kube, self.metrics, instance="test", unix_clock=lambda: self.now_s)
        self.metrics = Metrics(CollectorRegistry())
        self.context = Context(
            settings=OperatorSettings(parts=parts),
            kube=self.kube,
            writes=writes,
            writer=Writer(writes, self.known, recorder, self.metrics, refresh_s=0.0, enqueue=lambda _: None),
            cluster=self.known,
            recorder=recorder,
            metrics=self.metrics,
            unix_clock=lambda: self.now_s,
            enqueue=lambda _: None,
        )
        self.part = part(self.context)
        controller = self.part.controllers[Kind.ACTIVATION]
        assert isinstance(controller, ActivationController)
        self.controller = controller
        self.connections.append(controller._sleepers._engines)

    @property
    def pool(self) -> Key:
        return Key(Kind.INFERENCE_POOL, self.api.namespace, "pool")

    @property
    def variant(self) -> Key:
        return Key(Kind.WORKLOAD_VARIANT, self.api.namespace, "v")

    async def passes(self, count: int = 1, *, seconds: float = 61.0) -> None:
        """So many passes, that far apart; what they started has ended before each next one."""
        for _ in range(count):
            await self.settle()
            await self.refresh()
            await self.controller.reconcile(ACTIVATION)
            self.now_s += seconds
        await self.settle()
        await self.refresh()

    async def settle(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task.get_name().startswith("activation ")]
        await asyncio.gather(*tasks)

    async def refresh(self) -> None:
        """Read everything as watches would, and look at engines as pickers do."""
        for kind in (*self.known.specs,):
            seen = set()
            namespace = self.api.namespace if RESOURCES[kind].namespaced else ""
            async for page in self.kube.pages(RESOURCES[kind], namespace):
                for document in page.items:
                    metadata = document["metadata"]
                    seen.add(Key(kind, metadata.get("namespace") or "", metadata["name"]))
                    self.known.observe(kind, document)
            for key in set(self.known.keys(kind)) - seen:
                self.known.forget(key)
        for pod in HOSTS:
            self.asleep[pod] = await self.sleeping(pod)
        tables = self.context.tables
        tables.demand[self.pool] = PoolDemand(
            self.now_s,
            None if self.rate is None else {"llama": self.rate},
            {"llama": self.held} if self.held else {},
            {pod: EngineSeen(self.asleep[pod], self.running.get(pod, 0.0), 0.0) for pod in HOSTS},
        )
        tables.loads[self.variant] = VariantLoad(self.now_s, self.rate, 500.0, 100.0)

    async def sleeping(self, pod: str) -> bool | None:
        try:
            async with httpx.AsyncClient(timeout=5.0) as client:
                answer = await client.get(f"http://{HOSTS[pod]}:{self.port}/is_sleeping")
        except httpx.HTTPError:
            return None
        found = answer.json()["is_sleeping"]
        assert isinstance(found, bool)
        return found

    async def sleepers(self) -> list[str]:
        return [pod for pod in HOSTS if await self.sleeping(pod)]

    def marked(self) -> list[str]:
        found = json.loads(
            self.api.cluster.kubectl("get", "pods", "-n", self.api.namespace, "-l", RESTING_LABEL, "-o", "json")
        )
        return sorted(each["metadata"]["name"] for each in found["items"])

    def moves(self, move: str) -> float:
        return self.metrics.registry.get_sample_value("heliotrope_activation_moves_total", {"move": move}) or 0.0

    def activated(self) -> tuple[str, str] | None:
        return conditions(self.api.get("CarbonPolicy", "green")).get("Activated")


@pytest.fixture(scope="session")
def rights(control_plane: Cluster) -> Path:
    """An account with what the chart allows an operator that may take nodes out of use."""
    return operator_account(control_plane, NAMESPACE, {"operator": {"nodeOff": True}})


@pytest.fixture
def node(api: Api, unique: Callable[[str], str]) -> Iterator[str]:
    name = unique("gpu")
    api.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    yield name
    api.cluster.kubectl("delete", "pods", "-n", api.namespace, "--all", "--force", "--grace-period=0")
    api.cluster.kubectl("delete", "node", name, "--ignore-not-found")


@pytest.fixture
async def bench(api: Api, rights: Path, node: str) -> AsyncIterator[Bench]:
    with socket.create_server((HOSTS["e0"], 0)) as probe:
        port = probe.getsockname()[1]
    async with AsyncExitStack() as stack:
        engines = tuple(
            EngineConfig(name=name, profile=PROFILE, host=host, port=port, time_scale=10.0, model="llama")
            for name, host in HOSTS.items()
        )
        await stack.enter_async_context(Emulator(EmulatorConfig(engines=engines)))
        made = Bench(api, rights, port)
        stack.push_async_callback(made.close)
        pool = api.pool()
        pool["spec"]["targetPorts"] = [{"number": port}]
        api.apply(pool, api.variant("v", target=None, engine={"coefficients": SLEEPS_WELL}))
        for name, host in HOSTS.items():
            _pod(api, name, host, node)
        yield made


def _pod(api: Api, name: str, host: str, node: str, labels: dict[str, str] | None = None) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": api.namespace, "labels": labels or {"app": "vllm"}},
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "engine", "image": "engine"}],
            "tolerations": [{"operator": "Exists"}],
        },
    }
    api.cluster.apply(pod)
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "conditions": [ready], "podIP": host, "podIPs": [{"ip": host}]}
    api.cluster.kubectl(
        "patch", "pod", name, "-n", api.namespace, "--subresource=status", "--type=merge", "-p",
        json.dumps({"status": status}),
    )  # fmt: skip


def policy(bench: Bench, *depths: str, enforcement: str = "Enforce", **activation: Any) -> None:
    """The policy, accepted as the statuses' part would say."""
    api = bench.api
    spec: Document = {"activation": {"depths": list(depths) or ["EngineSleep"], **activation}}
    api.apply(api.policy("green", autoscaling=spec, enforcement=enforcement))
    accepted = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "it holds",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    ancestor = {
        "ancestorRef": {"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "pool"},
        "controllerName": "heliotrope.io/operator",
        "conditions": [accepted],
    }
    api.merge("CarbonPolicy", "green", {"status": {"ancestors": [ancestor]}}, "status")


def grant(bench: Bench) -> None:
    bench.api.cluster.kubectl("label", "namespace", bench.api.namespace, "heliotrope.io/allow-scaling=true")


async def test_an_engine_that_is_not_needed_sleeps_and_wakes_when_requests_wait(bench: Bench) -> None:
    policy(bench)
    grant(bench)
    await bench.passes(4)
    assert await bench.sleepers() == ["e1"]
    assert bench.marked() == ["e1"]
    assert bench.activated() == ("True", "Activated")
    assert bench.api.get("WorkloadVariant", "v")["status"]["activeEngines"] == 1

    bench.rate = 60.0
    await bench.passes(2)
    assert (await bench.sleepers(), bench.marked()) == ([], [])
    assert (bench.moves("sleep"), bench.moves("wake")) == (1.0, 1.0)


async def test_a_pool_without_demand_sleeps_whole_and_the_first_request_wakes_one(bench: Bench) -> None:
    policy(bench, leastAwake=0)
    grant(bench)
    bench.rate = 0.0
    await bench.passes(4)
    assert await bench.sleepers() == ["e0", "e1"]
    bench.rate, bench.held = None, 1.0  # nobody serves, so that rates are unknown
    await bench.passes(2)
    assert len(await bench.sleepers()) == 1


async def test_an_engine_with_requests_is_kept_from_more_and_never_put_to_sleep(bench: Bench) -> None:
    policy(bench)
    grant(bench)
    async with httpx.AsyncClient(timeout=60.0) as client:
        body = {"model": "llama", "prompt": "x", "max_tokens": 15_000, "ignore_eos": True}
        url = f"http://{HOSTS['e1']}:{bench.port}/v1/completions"
        answer = asyncio.create_task(client.post(url, json=body))
        bench.running["e1"] = 1.0
        await asyncio.sleep(0.2)
        await bench.passes(4)
        assert bench.marked() == ["e1"]
        assert await bench.sleepers() == []
        done = await answer
        assert done.json()["choices"][0]["finish_reason"] == "length", "its answer is whole"
        bench.running["e1"] = 0.0
        await bench.passes(1)
        assert await bench.sleepers() == ["e1"]


@pytest.mark.parametrize("ended", ["advise", "policy gone", "grant gone"])
async def test_whatever_ends_the_right_to_rest_wakes(bench: Bench, ended: str) -> None:
    policy(bench)
    grant(bench)
    await bench.passes(4)
    assert await bench.sleepers() == ["e1"]
    if ended == "advise":
        policy(bench, enforcement="Advise")
    elif ended == "policy gone":
        bench.api.delete("CarbonPolicy", "green")
    else:
        bench.api.cluster.kubectl("label", "namespace", bench.api.namespace, "heliotrope.io/allow-scaling-")
    await bench.passes(1)
    assert (await bench.sleepers(), bench.marked()) == ([], [])
    if ended != "policy gone":
        assert bench.activated() == ("False", "AdviseOnly" if ended == "advise" else "NotGranted")


async def test_without_the_right_nothing_is_touched_and_the_plan_is_told(bench: Bench) -> None:
    policy(bench)
    await bench.passes(4)
    assert (await bench.sleepers(), bench.marked()) == ([], [])
    assert bench.activated() == ("False", "NotGranted")
    labels = {"depth": "EngineSleep", "reason": "Surplus", "enforced": "false"}
    place = {"namespace": bench.api.namespace, "pool": "pool", "model": "llama", "role": "both"}
    assert bench.metrics.registry.get_sample_value("heliotrope_activation_engines", labels | place) == 1.0


async def test_where_sleep_saves_nothing_engines_stay_awake(bench: Bench) -> None:
    api = bench.api
    api.apply(api.variant("v", target=None, engine={"profile": PROFILE}))
    policy(bench)
    grant(bench)
    await bench.passes(4)
    assert (await bench.sleepers(), bench.marked()) == ([], [])


async def test_a_new_process_finds_what_another_put_to_sleep_and_a_stop_wakes_all(bench: Bench) -> None:
    policy(bench)
    grant(bench)
    await bench.passes(4)
    bench.start()  # the one before was killed
    await bench.passes(1, seconds=1.0)
    assert await bench.sleepers() == ["e1"], "it is meant to rest on"
    bench.start()
    policy(bench, enforcement="Advise")
    await bench.passes(1, seconds=1.0)
    assert (await bench.sleepers(), bench.marked()) == ([], []), "an orphan is woken at once"

    policy(bench)
    await bench.passes(4)
    assert await bench.sleepers() == ["e1"]
    assert bench.part.close is not None
    await bench.part.close()
    assert (await bench.sleepers(), bench.marked()) == ([], [])


async def test_a_replica_that_does_not_lead_leaves_engines_alone_at_its_end(bench: Bench) -> None:
    policy(bench)
    grant(bench)
    await bench.passes(4)
    bench.leading.held = False
    assert bench.part.close is not None
    await bench.part.close()
    assert await bench.sleepers() == ["e1"]
    bench.leading.held = True
    bench.start()
    bench.api.delete("CarbonPolicy", "green")
    await bench.passes(1)
    assert await bench.sleepers() == []


async def test_the_idle_clock_is_power_s_to_set(bench: Bench) -> None:
    policy(bench, "IdleClock")
    grant(bench)
    await bench.passes(3)
    assert bench.context.tables.resting == {bench.variant: frozenset({"e1"})}
    assert bench.marked() == []
    policy(bench, "IdleClock", enforcement="Advise")
    await bench.passes(1)
    assert bench.context.tables.resting == {}


async def test_a_node_that_nothing_needs_is_drained_and_comes_back_as_it_was(
    bench: Bench, node: str, unique: Callable[[str], str]
) -> None:
    api, spare = bench.api, unique("gpu")
    api.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": spare}})
    try:
        api.cluster.kubectl("delete", "pod", "e1", "-n", api.namespace, "--force", "--grace-period=0")
        _pod(api, "e1", HOSTS["e1"], spare)
        policy(bench, "NodeOff")
        grant(bench)
        await bench.passes(3)
        cordoned = json.loads(api.cluster.kubectl("get", "node", spare, "-o", "json"))
        assert cordoned["spec"]["unschedulable"] is True
        assert cordoned["metadata"]["annotations"][ORIGINAL] == "false"
        assert bench.moves("evict") == 0.0, "as many are wanted as there are"

        bench.context.tables.wanted.put(
            bench.variant,
            Wanted(1, "Scale", True, "DemandMet", "", bench.now_s),  # type: ignore[arg-type]
        )
        await bench.passes(1)
        assert bench.moves("evict") == 1.0
        await bench.passes(2)
        assert json.loads(api.cluster.kubectl("get", "node", spare, "-o", "json"))["spec"]["unschedulable"] is True

        policy(bench, "NodeOff", enforcement="Advise")
        await bench.passes(1)
        restored = json.loads(api.cluster.kubectl("get", "node", spare, "-o", "json"))
        assert "unschedulable" not in restored["spec"]
        assert ORIGINAL not in restored["metadata"].get("annotations", {})
    finally:
        api.cluster.kubectl("delete", "node", spare, "--ignore-not-found")


async def test_a_node_with_anybody_elses_pod_stays(bench: Bench, node: str, unique: Callable[[str], str]) -> None:
    api, spare = bench.api, unique("gpu")
    api.cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": spare}})
    try:
        api.cluster.kubectl("delete", "pod", "e1", "-n", api.namespace, "--force", "--grace-period=0")
        _pod(api, "e1", HOSTS["e1"], spare)
        _pod(api, "other", "127.0.0.99", spare, {"app": "something"})
        policy(bench, "NodeOff")
        grant(bench)
        await bench.passes(4)
        assert "unschedulable" not in json.loads(api.cluster.kubectl("get", "node", spare, "-o", "json"))["spec"]
    finally:
        api.cluster.kubectl("delete", "node", spare, "--ignore-not-found")


def own_address() -> str:
    """An address of this machine that an EndpointSlice may have, which takes none of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback's")
        return str(probe.getsockname()[0])


class _PickerPage:
    """A picker's `/v1/demand`, as `heliotrope_epp.demand.page` writes it."""

    def __init__(self, bench: Bench) -> None:
        self.held = 0
        self.pool = PoolName(bench.api.namespace, "pool")
        self.asleep = dict.fromkeys(HOSTS, True)
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = encode(page.page())
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer((own_address(), 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def page(self) -> DemandPage:
        line = ModelLine(
            model="llama",
            requests_total=self.held,
            prompt_tokens_total=0,
            output_tokens_total=0,
            in_flight=0,
            held=self.held,
            oldest_held_s=1.0 if self.held else None,
        )
        engines = tuple(
            EndpointLine(name=pod, asleep=asleep, running=0.0, waiting=0.0) for pod, asleep in self.asleep.items()
        )
        return DemandPage(
            schema=1,
            pool=self.pool,
            instance="i",
            time_unix_s=time.time(),
            started_unix_s=1.0,
            models=(line,),
            endpoints=engines,
        )

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


async def test_a_whole_operator_wakes_a_sleeping_pool_for_the_first_request_and_the_rest_when_it_stops(
    bench: Bench,
    start: Start,
    refusals_allowed: None,  # it also tells of policies in namespaces of earlier tests, which are on their way out
) -> None:
    api = bench.api
    page = _PickerPage(bench)
    try:
        api.cluster.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": "epp",
                    "namespace": api.namespace,
                    "labels": {"kubernetes.io/service-name": "epp"},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http-metrics", "port": page.server.server_port, "protocol": "TCP"}],
                "endpoints": [{"addresses": [own_address()], "conditions": {"ready": True}}],
            }
        )
        policy(bench, leastAwake=0)
        grant(bench)
        async with httpx.AsyncClient() as client:
            for pod, host in HOSTS.items():  # as an operator that was killed left them
                await client.post(f"http://{host}:{bench.port}/sleep?level=1")
                label = f"{RESTING_LABEL}=EngineSleep"
                api.cluster.kubectl("label", "pod", pod, "-n", api.namespace, label)
        operator = start(parts={"activation": True}).wait_ready()
        await asyncio.sleep(8.0)
        assert await bench.sleepers() == ["e0", "e1"], "nothing is asked of them, so they rest on"

        page.held = 1
        asleep = await until(bench.sleepers, lambda found: len(found) == 1)
        page.asleep = {pod: pod in asleep for pod in HOSTS}
        await until(lambda: asyncio.to_thread(bench.marked), lambda found: found == asleep)
        page.held = 0

        await asyncio.to_thread(operator.terminate)
        assert (await bench.sleepers(), bench.marked()) == ([], [])
    finally:
        page.close()


async def until(look: Callable[[], Awaitable[list[str]]], so: Callable[[list[str]], bool]) -> list[str]:
    async with asyncio.timeout(40.0):
        while not so(found := await look()):
            await asyncio.sleep(0.2)
    return found
