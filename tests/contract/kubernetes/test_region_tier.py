"""A region scheduler on a real Kubernetes API: policy and grids come from there, requests follow them."""

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from tests.support.controlplane import Cluster
from tests.support.picker_cluster import policy, region
from tests.unit.epp.region.bench import chat
from tests.unit.epp.region.builders import Client, load, page, tier

from heliotrope_epp.clock import Clock
from heliotrope_epp.datalayer.resources import PoolRef
from heliotrope_epp.plugins.sessions.settings import SessionSettings
from heliotrope_epp.region.app import RegionPicker
from heliotrope_epp.region.settings import RegionSettings
from heliotrope_epp.serving import cancelled
from heliotrope_epp.settings import KubernetesSettings

pytestmark = pytest.mark.controlplane


async def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


async def test_policy_and_grids_come_from_the_api(
    control_plane: Cluster, namespace: str, unique_name: Callable[[str], str]
) -> None:
    clean, dirty = unique_name("clean"), unique_name("dirty")
    enforced = policy(namespace, "regions", ttft="5s")
    enforced["spec"] |= {"enforcement": "Enforce", "placement": {"window": "5ms"}}
    control_plane.apply(enforced, intensity(clean, 20), intensity(dirty, 400))
    settings = RegionSettings(
        tier=tier(clean, dirty, extra="polling: {interval: 60s, longestInterval: 60s, lostAfterPolls: 100}"),
        kubernetes=KubernetesSettings(PoolRef(namespace, "pool"), control_plane.kubeconfig),
        host="127.0.0.1",
        grpc_port=0,
        health_port=0,
        metrics_port=0,
        sessions=SessionSettings(10),
    )
    picker = RegionPicker(settings, Clock())
    async with contextlib.AsyncExitStack() as stack:
        await picker.start(stack)
        following = asyncio.create_task(picker.follow_source())
        stack.push_async_callback(cancelled, following)
        await asyncio.wait_for(picker.first_world.wait(), 60.0)
        assert await place(picker, clean, dirty) == clean
        control_plane.apply(intensity(clean, 400), intensity(dirty, 20))
        await until(lambda: picker._store.regions()[dirty].signal.reading.intensity_g_per_kwh == 20.0)  # type: ignore[union-attr]
        assert await place(picker, clean, dirty) == dirty
        enforced["spec"]["placement"]["allowedRegions"] = [clean]
        control_plane.apply(enforced)
        await until(lambda: picker._store.policy().allowed_regions is not None)  # type: ignore[union-attr]
        assert await place(picker, clean, dirty) == clean


async def place(picker: RegionPicker, *names: str) -> str:
    """Where one request goes; the regions have just told their state."""
    clock = Clock()
    for name in names:
        picker._provisioner.feeds[name].accept(page(load(name)), clock.monotonic(), clock.unix())
    client = Client(chat())
    picker._director.decide(client)
    await until(lambda: client.answered)
    assert client.rejected is None, client.rejected
    return client.sent["x-heliotrope-region"]


def intensity(name: str, grams_per_kwh: int) -> dict[str, object]:
    return region(name, source={"static": {"intensityGramsPerKwh": f"{grams_per_kwh}"}})
