"""A day of the operator on a real API server: real grids, real gateway, picker and engines' API; everything moves.

The three resources are applied, a day of two grids passes in a few minutes, with load and a burst. Replicas follow the
cleaner grid, idle engines rest, clocks and Jobs move as the policy says, the promise comes before carbon, and when the
policy goes every original is back. The picture is build/operator-day/report.html.
"""

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from e2e.day.load import Shape, planned, send
from e2e.day.record import Moment, Record, write
from e2e.day.workloads import ENGINE_PORT, Workloads
from tests.contract.operator.cluster import operator_account
from tests.contract.operator.process import OperatorProcess
from tests.support.chart import ROOT
from tests.support.controlplane import Cluster
from tests.support.own_address import own_address

from heliotrope.api.v1alpha1.engine import EngineCoefficients
from heliotrope.engine import profiles
from heliotrope.engine.model import EngineModel
from heliotrope_sim.children import Child
from heliotrope_sim.demo.client import RequestResult
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

pytestmark = [pytest.mark.controlplane, pytest.mark.envoy, pytest.mark.slow]

MODEL = "llama-70b"
PROFILE = "llama-3.1-70b-h100-tp4"
TTFT_S, TPOT_S = 3.0, 0.15
SPEED = 600
"""Seconds of the grids' series in one second: an hour takes six."""
DAY_S = 86_400 / SPEED
SERIES_START = "2022-04-09T17:00:00Z"
"""First California's noon is clean, and half a day later Spain's."""
SPAIN, CALIFORNIA = "es", "ca"
GRIDS = {SPAIN: ("ES", "ES.csv"), CALIFORNIA: ("US-CAL-CISO", "US-CAL-CISO.csv")}
REPLICAS = 2
"""Of each Deployment as its owner wrote it."""
SHAPE = Shape(DAY_S, night=0.8, evening=3.5, burst_at=0.62 * DAY_S, burst_seconds=12.0, burst=7.0)
CLOCKS = (990, 1200, 1410, 1755, 1980)
FROM_THE_VARIANT = ("name", "model", "accelerator", "tensor_parallel")
REPORT = Path("build/operator-day")

Document = dict[str, Any]


def region(name: str, wall_start: str) -> Document:
    zone, file = GRIDS[name]
    replay = {"seriesStart": SERIES_START, "wallStart": wall_start, "speed": SPEED}
    source = {"path": str(ROOT / "data" / "carbon" / file), "valueColumn": "ci_lifecycle", "replay": replay}
    spec = {"zone": zone, "source": {"file": source}, "pollInterval": "1s", "staleAfter": "6h"}
    return {"apiVersion": "heliotrope.io/v1alpha1", "kind": "RegionProfile", "metadata": {"name": name}, "spec": spec}


def deployment(name: str) -> Document:
    labels = {"app": "llm", "variant": name, "heliotrope.io/region": name}
    container = {"name": "engine", "image": "engine", "resources": {"limits": {"nvidia.com/gpu": "4"}}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": REPLICAS,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def engine_model() -> EngineModel:
    """The shipped profile of an engine that draws little in its sleep, so that sleeping is worth something."""
    return replace(profiles.load(PROFILE), max_num_seqs=4, sleep_watts=120.0)


def variant(name: str) -> Document:
    own = {key: value for key, value in engine_model().to_mapping().items() if key not in FROM_THE_VARIANT}
    coefficients = EngineCoefficients(**own).model_dump(by_alias=True, mode="json")
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "WorkloadVariant",
        "metadata": {"name": name},
        "spec": {
            "model": MODEL,
            "endpointSelector": {"matchLabels": {"app": "llm", "variant": name}},
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "accelerator": {"type": "H100-SXM-80GB", "count": 4},
            "regionRef": {"name": name},
            "engine": {"coefficients": coefficients},
            "minReplicas": 1,
            "maxReplicas": 4,
            "clockRange": {"minMhz": CLOCKS[0], "maxMhz": CLOCKS[-1]},
            "energyProfile": [point(phase, clock) for phase in ("prefill", "decode") for clock in CLOCKS],
        },
    }


def point(phase: str, clock_mhz: int) -> Document:
    """A labelled model, not a measurement: decode hardly slows down with the clock, prefill in proportion."""
    share = clock_mhz / CLOCKS[-1]
    speed = 9_000.0 * share if phase == "prefill" else 300.0 * share**0.25
    watts = round(900 + 1_700 * share**2.5)
    return {
        "phase": phase,
        "smClockMhz": clock_mhz,
        "tokensPerSecond": f"{speed:.1f}",
        "joulesPerToken": f"{watts / speed:.5f}",
        "watts": watts,
    }


def policy() -> Document:
    return {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "day"},
        "spec": {
            "targetRefs": [{"name": "llm"}],
            "slo": {"ttft": f"{TTFT_S:g}s", "tpot": f"{TPOT_S * 1e3:.0f}ms"},
            "enforcement": "Enforce",
            "autoscaling": {
                "actuation": "Scale",
                "interval": "2s",
                "lookAhead": "40s",
                "scaleUp": {"maxReplicasPerStep": 2, "dwell": "0s"},
                "scaleDown": {"maxReplicasPerStep": 1, "dwell": "5s"},
                "activation": {"depths": ["IdleClock", "EngineSleep"], "warmReservePercent": 10},
            },
            "power": {"minimumDwell": "3s"},
            "deferral": {"safetyMargin": "0s"},
        },
    }


def job(name: str, **annotations: str) -> Document:
    given = {f"heliotrope.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "batch", "image": "batch"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"heliotrope.io/deferrable": "true"}, "annotations": given},
        "spec": {"suspend": True, "template": template},
    }


@dataclass(slots=True)
class Site:
    """A namespace with everything of the story that is there before Heliotrope."""

    cluster: Cluster
    folder: Path
    namespace: str
    system: str

    def apply(self, *documents: Document) -> None:
        for each in documents:
            if each["kind"] not in ("RegionProfile", "Namespace"):
                each["metadata"]["namespace"] = self.namespace
        self.cluster.apply(*documents)

    def deployment(self, name: str) -> Document:
        return self.cluster.get("deployment", name, "--namespace", self.namespace, "--show-managed-fields")


@asynccontextmanager
async def picker_and_gateway(site: Site) -> AsyncIterator[str]:
    """The picker on the pool, found by the operator through its Service's EndpointSlice, and Envoy; yields its URL."""
    host = own_address()
    command = [
        sys.executable,
        "-m",
        "heliotrope_cli.main",
        "epp",
        "--pool-name=llm",
        f"--pool-namespace={site.namespace}",
        f"--kubeconfig={site.cluster.kubeconfig}",
        "--grpc-port=0",
        "--health-port=0",
        "--metrics-port=0",
        "--host=0.0.0.0",
        "--no-secure-serving",
        "--no-learn",
        "--no-ledger",
        "--announce",
    ]
    child = await Child.start("picker", command, site.folder / "picker.log")
    gateway = None
    try:
        ports = json.loads(await child.first_line(120.0))
        site.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {"name": "picker", "labels": {"kubernetes.io/service-name": "picker"}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
                "ports": [{"name": "http-metrics", "port": ports["metrics_port"]}],
            }
        )
        config = GatewayConfig(pickers=(f"127.0.0.1:{ports['grpc_port']}",))
        gateway = await Gateway.start(config, directory=site.folder / "envoy")
        await gateway.wait_for_pickers()
        yield gateway.url
    finally:
        if gateway is not None:
            await gateway.stop()
        await child.stop()


@pytest.fixture
def site(bare_cluster: Cluster, tmp_path: Path) -> Site:
    cluster = bare_cluster
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        cluster.apply_crds(path)
    run = uuid.uuid4().hex[:6]
    namespace = cluster.namespace(
        f"day-{run}", **{"heliotrope.io/allow-scaling": "true", "heliotrope.io/allow-power": "true"}
    )
    REPORT.mkdir(parents=True, exist_ok=True)  # logs stay beside the picture
    return Site(cluster, REPORT, namespace, f"system-{run}")


@pytest.mark.timeout(600)
async def test_a_day_moves_everything_and_the_end_of_the_policy_restores_it(site: Site) -> None:
    kubeconfig = operator_account(site.cluster, site.system)
    pool = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "llm"},
        "spec": {
            "selector": {"matchLabels": {"app": "llm"}},
            "targetPorts": [{"number": ENGINE_PORT}],
            "endpointPickerRef": {"name": "picker", "port": {"number": 9002}},
        },
    }
    site.apply(pool, *(deployment(name) for name in GRIDS))
    profile = site.folder / "engine.json"
    profile.write_text(json.dumps({"model": engine_model().to_mapping()}))
    engine = {"profile": str(profile), "model": MODEL}
    async with AsyncExitStack() as stack:
        url = site.cluster.proxy()
        workloads = await stack.enter_async_context(
            Workloads(url, site.namespace, engine=engine, start_s=2.0, job_s=10.0)
        )
        gateway = await stack.enter_async_context(picker_and_gateway(site))
        operator = stack.enter_context(
            OperatorProcess(
                kubeconfig,
                site.folder / "operator.log",
                namespace=site.system,
                parts=dict.fromkeys(("scaling", "activation", "power", "deferral"), True),
                demand_poll_s=1.0,
                status_refresh_s=1.0,
            )
        )
        await asyncio.to_thread(operator.wait_ready)
        workloads.check()
        record = await stack.enter_async_context(Record(url, site.namespace))
        wall_start = datetime.now(UTC)
        deadline = (wall_start + timedelta(seconds=DAY_S)).isoformat(timespec="seconds").replace("+00:00", "Z")
        started = wall_start.isoformat(timespec="seconds").replace("+00:00", "Z")
        site.apply(*(region(name, started) for name in GRIDS), *(variant(name) for name in GRIDS), policy())
        site.apply(
            job("flexible", deadline=deadline, expected_duration="10s", region=SPAIN),
            job("urgent", deadline=started, expected_duration="10s", region=SPAIN),
            {**job("foreign"), "metadata": {"name": "foreign"}},
        )
        begun = record.now

        def on_result(result: RequestResult) -> None:
            if result.violates(TTFT_S, TPOT_S):
                record.late.append(begun + result.arrival_seconds)

        requests = planned(SHAPE, MODEL, seed=7)
        record.sent += [begun + each.arrival_seconds for each in requests]
        results = await send(gateway, requests, on_result)
        workloads.check()
        record.check()
        ended = record.now
        removed = await asyncio.to_thread(
            site.cluster.kubectl, "delete", "carbonpolicy", "day", "--namespace", site.namespace, "--wait=false"
        )
        assert "deleted" in removed
        marks = {
            "burst": begun + SHAPE.burst_at,
            "burst ends": begun + SHAPE.burst_at + SHAPE.burst_seconds,
            "policy deleted": ended,
        }
        try:
            await _restored(site, record)
        finally:
            print(write(REPORT, record.moments, marks))

    _everything_was_answered(results, len(record.late))
    _carbon_moved_replicas(record.between(begun + 15.0, ended))
    _engines_rested(record.between(begun, ended))
    burst = record.between(marks["burst"], marks["burst ends"] + 5.0)
    _the_promise_came_first(burst, record.between(begun, marks["burst"]))
    _clocks_moved(record.between(begun, ended))
    _jobs_waited_as_told(record.between(begun, ended))


async def _restored(site: Site, record: Record) -> None:
    """Wait until every field that was taken is back."""
    async with asyncio.timeout(60.0):
        while True:
            found = [await asyncio.to_thread(site.deployment, name) for name in GRIDS]
            back = all(
                each["spec"]["replicas"] == REPLICAS
                and "heliotrope.io/original" not in each["metadata"].get("annotations", {})
                for each in found
            )
            newest = record.moments[-1]
            if back and not any(newest.resting.values()) and all(clock is None for clock in newest.clocks_mhz.values()):
                break
            await asyncio.sleep(0.5)
    for each in found:
        managed = each["metadata"]["managedFields"]
        owners = {entry["manager"] for entry in managed if "f:replicas" in json.dumps(entry["fieldsV1"])}
        assert "heliotrope-operator" not in owners, f"replicas of {each['metadata']['name']} are half owned"


def _everything_was_answered(results: list[RequestResult], late: int) -> None:
    failed = [result for result in results if result.failed]
    assert not failed, [(each.status, each.error) for each in failed[:3]]
    assert late <= 0.1 * len(results), f"{late} of {len(results)} requests broke their promise"


def _carbon_moved_replicas(moments: list[Moment]) -> None:
    """Where one grid is much cleaner, the other one's engines go or rest; both directions come up in a day."""
    for clean, dirty in ((SPAIN, CALIFORNIA), (CALIFORNIA, SPAIN)):
        clear = [m for m in moments if m.grams_per_kwh.get(clean, 1e9) < 0.7 * m.grams_per_kwh.get(dirty, 0.0)]
        late = clear[len(clear) // 2 :]  # the first half is the way there
        assert len(late) >= 10, f"{clean} was hardly ever cleaner"
        right = sum((m.awake(clean) or 0) >= (m.awake(dirty) or 0) for m in late)
        assert right >= 0.7 * len(late), f"{clean} was cleaner and had fewer engines awake: {right} of {len(late)}"


def _engines_rested(moments: list[Moment]) -> None:
    """Some engine rested while its replica stayed."""
    assert any(
        (moment.active.get(name) is not None and moment.active[name] < (moment.current.get(name) or 0))  # type: ignore[operator]
        or moment.resting.get(name, 0)
        for moment in moments
        for name in GRIDS
    ), "no engine ever rested"


def _the_promise_came_first(burst: list[Moment], before: list[Moment]) -> None:
    """In the burst engines were added, in the dirty region too where the clean one was full."""
    most = max(sum(value or 0 for value in moment.desired.values()) for moment in burst)
    usual = [sum(value or 0 for value in moment.desired.values()) for moment in before[-10:]]
    assert most > max(usual), (most, usual)


def _clocks_moved(moments: list[Moment]) -> None:
    clocks = {clock for moment in moments for clock in moment.clocks_mhz.values() if clock is not None}
    assert clocks, "no NodePower ever asked for a clock"
    assert min(clocks) < 1980


def _jobs_waited_as_told(moments: list[Moment]) -> None:
    first_run = {
        name: next((m.seconds for m in moments if m.suspended.get(name) is False), None)
        for name in ("flexible", "urgent", "foreign")
    }
    assert first_run["foreign"] is None, "a Job that did not opt in was touched"
    assert first_run["urgent"] is not None
    assert first_run["flexible"] is not None
    assert first_run["urgent"] < first_run["flexible"], "the flexible Job did not wait for cleaner hours"


def test_the_page_is_whole(tmp_path: Path) -> None:
    number = {"v": 1}
    moment = Moment(
        seconds=0.0,
        grams_per_kwh={"no": 1.0},
        desired=number,
        current=number,
        active={"v": None},
        told={"v/Scaled": ""},
        clocks_mhz={"v": None},
        resting={"v": 0},
        suspended={"j": True},
        sent_per_second=1.0,
        late=0,
    )
    page = write(tmp_path, [moment], {"mark": 0.0})
    assert "data:image/png;base64," in page.read_text(encoding="utf-8")
    assert json.loads((tmp_path / "timeline.json").read_text(encoding="utf-8"))["moments"]
