"""Reading the energy counters of whole nodes."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import web

from heliotrope_epp.datalayer.endpoint import Endpoint
from heliotrope_epp.datalayer.node_energy import Accelerator, NodeEnergy, NodeEnergySettings, node_reading
from heliotrope_epp.datalayer.state import EndpointState

PAGE = b"""# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu="0",UUID="GPU-a",pci_bus_id="00000000:07:00.0",device="nvidia0",pod="llm-0"} 1980
# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy consumption since boot (in mJ).
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",namespace="prod",pod="llm-0"} 18446744073709551557
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b",container="vllm",namespace="prod",pod="llm-1"} 7.5e+06
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="1",UUID="GPU-b",container="x",namespace="dev",pod="other"} 7.5e+06
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="2",UUID="GPU-c",container="",namespace="",pod=""} 12
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="3",UUID="GPU-d",pod_name="old",pod_namespace="prod"} NaN
"""


def test_a_page_of_the_dcgm_exporter() -> None:
    reading = node_reading(PAGE, 12.0)

    assert reading.read_s == 12.0
    assert reading.accelerators == {
        "GPU-a": Accelerator((1 << 64) - 59, frozenset({("prod", "llm-0")})),  # a float would have lost the end
        "GPU-b": Accelerator(7_500_000, frozenset({("prod", "llm-1"), ("dev", "other")})),
        "GPU-c": Accelerator(12, frozenset()),
        "GPU-d": Accelerator(None, frozenset({("prod", "old")})),
    }


@pytest.mark.parametrize("page", [b"", b"\xff\xfe\n", b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION 5\n"])
def test_pages_without_a_known_accelerator(page: bytes) -> None:
    assert node_reading(page, 0.0).accelerators == {}


class Node:
    """An exporter on a real port."""

    def __init__(self) -> None:
        self.port = 0
        self.status = 200
        self.body = PAGE
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        assert request.path == "/energy"
        return web.Response(status=self.status, body=self.body)


@pytest.fixture
async def exporter() -> AsyncIterator[Node]:
    node = Node()
    app = web.Application()
    app.router.add_get("/{any}", node.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    node.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    yield node
    await runner.cleanup()


def reader(node: Node, **settings: float) -> NodeEnergy:
    return NodeEnergy(NodeEnergySettings(node.port, "/energy", **{"interval_s": 0.01} | settings))  # type: ignore[arg-type]


def state(name: str, node: str | None = "127.0.0.1") -> EndpointState:
    return EndpointState(Endpoint(name, "prod", "10.0.0.1", 8000, node_address=node, pod=name))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not holds():
            await asyncio.sleep(0.01)


async def test_nodes_with_endpoints_are_read_once_each(exporter: Node) -> None:
    async with reader(exporter) as energy:
        energy.added(state("a"))
        energy.added(state("b"))
        energy.added(state("c", node=None))
        await until(lambda: energy.counts.succeeded > 2)

        assert energy.readings.keys() == {"127.0.0.1"}
        assert energy.readings["127.0.0.1"].accelerators.keys() == {"GPU-a", "GPU-b", "GPU-c", "GPU-d"}
        assert len(asyncio.all_tasks()) < 8

        energy.removed("prod/a")
        assert energy.readings
        energy.removed("prod/b")
        assert energy.readings == {}
        await asyncio.sleep(0.05)
        asked = exporter.asked
        await asyncio.sleep(0.1)
        assert exporter.asked == asked


@pytest.mark.parametrize(
    ("status", "body", "reason"), [(503, b"", "status"), (200, b"x" * 2_000, "size")], ids=["status", "size"]
)
async def test_what_cannot_be_read_is_counted_and_the_last_reading_stays(
    exporter: Node, status: int, body: bytes, reason: str
) -> None:
    async with reader(exporter, max_page_bytes=1_500) as energy:
        energy.added(state("a"))
        await until(lambda: energy.counts.succeeded > 0)
        before = energy.readings["127.0.0.1"]

        exporter.status, exporter.body = status, body
        await until(lambda: energy.counts.failed.get(reason, 0) > 1)

        assert energy.readings["127.0.0.1"].accelerators == before.accelerators


async def test_a_node_that_does_not_answer_is_asked_less_and_less() -> None:
    energy = NodeEnergy(NodeEnergySettings(1, interval_s=0.01, longest_interval_s=0.2))
    async with energy:
        energy.added(state("a"))
        await asyncio.sleep(1.0)

    assert 3 <= energy.counts.failed["connection"] <= 14
