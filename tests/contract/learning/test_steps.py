"""The picker behind a real Envoy, without any policy, learns the energy of emulated engines' steps and of requests."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from heliotrope.engine.counters import CounterLimits
from heliotrope.predict.schedule import SchedulePolicy
from heliotrope_epp.app import Picker
from heliotrope_epp.clock import Clock
from heliotrope_epp.learning.samples import believable_steps
from heliotrope_epp.learning.settings import LearningSettings, TrainingSettings
from heliotrope_epp.metering.settings import MeteringSettings
from heliotrope_epp.outcomes.energy import MeteredInterval, MeteredSteps, RequestEnergy
from heliotrope_epp.outcomes.finished import FinishedRequest
from heliotrope_epp.settings import EppSettings
from heliotrope_sim.emulator import Emulator, EmulatorConfig, EngineConfig, ServedEngine
from heliotrope_sim.engine.fixed_point import joules
from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import running_gateway

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(400)]

PROFILE = "llama-3.1-8b-h100"
BELIEVED = "llama-3.1-8b-a100-40gb"
"""What the variant says: the analytic model is off by a factor, as it may be of a real engine."""
METERING = MeteringSettings(hold_s=1.0, limits=CounterLimits(shortest_seconds=0.5))
TRAINING = TrainingSettings(SchedulePolicy(first_after=400, every=200, min_interval_seconds=5.0))
CLIENTS = 9


@dataclass(slots=True)
class Told:
    """What the picker's sinks were told."""

    requests: list[FinishedRequest] = field(default_factory=list)
    intervals: list[MeteredInterval] = field(default_factory=list)

    def measured(self, request: FinishedRequest, energy: RequestEnergy | None) -> None:
        self.requests.append(request)

    def metered(self, interval: MeteredInterval) -> None:
        self.intervals.append(interval)


def folder_of(path: Path, engines: Iterable[ServedEngine]) -> Path:
    path.mkdir()
    endpoints = []
    for engine in engines:
        host, _, port = engine.url.removeprefix("http://").rpartition(":")
        endpoints.append({"name": engine.config.name, "address": host, "port": port, "labels": {"app": "llm"}})
    (path / "endpoints.yaml").write_text(yaml.safe_dump({"endpoints": endpoints}))
    variant = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "WorkloadVariant",
        "metadata": {"name": "llm", "namespace": "default"},
        "spec": {
            "model": "m",
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llm"},
            "endpointSelector": {"matchLabels": {"app": "llm"}},
            "accelerator": {"type": "H100-SXM-80GB", "count": 1},
            "engine": {"profile": BELIEVED},
        },
    }
    (path / "variant.yaml").write_text(yaml.safe_dump(variant))
    return path


@asynccontextmanager
async def picking(folder: Path, told: Told) -> AsyncIterator[tuple[Picker, str]]:
    """A picker that learns, and the URL of its gateway."""
    settings = EppSettings(
        folder=folder,
        host="127.0.0.1",
        grpc_port=0,
        health_port=0,
        metrics_port=0,
        metering=METERING,
        learning=LearningSettings(training=TRAINING),
        grace_seconds=1.0,
    )
    picker = Picker(settings, Clock())
    picker._sinks.add(told)
    async with AsyncExitStack() as stack:
        await picker.start(stack)
        source = asyncio.create_task(picker.follow_source())
        await asyncio.wait_for(picker.first_world.wait(), 10.0)
        picker.set_serving()
        try:
            config = GatewayConfig(pickers=(f"127.0.0.1:{picker.ports.grpc_port}",))
            async with running_gateway(config) as gateway:
                await gateway.wait_for_pickers()
                yield picker, gateway.url
        finally:
            source.cancel()
            await asyncio.gather(source, return_exceptions=True)


async def client(url: str, number: int) -> None:
    """One request after the other, with pauses now and then, so that batches differ; every third answer is streamed."""
    async with aiohttp.ClientSession() as session:
        for count in itertools.count():
            streamed = count % 3 == 0
            body: dict[str, object] = {
                "model": "m",
                "messages": [{"role": "user", "content": f"{number} {count} " + "word " * (100 * (1 + count % 7))}],
                "max_tokens": 40 + 40 * ((count + number) % 5),
                "ignore_eos": True,
                "stream": streamed,
            }
            if streamed:
                body["stream_options"] = {"include_usage": True}
            async with session.post(f"{url}/v1/chat/completions", json=body) as response:
                assert response.status == 200
                await response.read()
            await asyncio.sleep(0.2 * ((count // 5 + number) % 4))


def settled(document: dict[str, Any]) -> bool:
    """Whether all samples of steps are in the window."""
    return bool(document["windows"]["steps"]["samples"] == document["samples"]["steps"])


async def test_steps_and_requests_are_learned_from_without_a_policy(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    engines = tuple(EngineConfig(name=name, profile=PROFILE, model="m") for name in names)
    told = Told()
    async with (
        Emulator(EmulatorConfig(engines=engines)) as emulator,
        picking(folder_of(tmp_path / "resources", emulator.engines.values()), told) as (picker, url),
    ):
        learner = picker._learner
        assert learner is not None
        async with asyncio.timeout(240.0), asyncio.TaskGroup() as group:
            clients = [group.create_task(client(url, number)) for number in range(CLIENTS)]
            while "step_joules" not in learner.holder.current.current.models:
                await asyncio.sleep(0.5)
            for task in clients:
                task.cancel()
        async with asyncio.timeout(30.0):
            while not settled(document := learner.document()):
                await asyncio.sleep(0.1)
        true_joules = sum(joules(each.driver.engine.energy.busy_picojoules) for each in emulator.engines.values())
        true_steps = sum(each.driver.metrics.iteration_tokens.count for each in emulator.engines.values())

    scores = document["models"]["targets"]["step_joules"]
    assert scores["mape"] < scores["analytic_mape"], "the variant names the profile of another accelerator"
    assert document["sources"]["step_joules"] == "learned"
    assert "no-features" not in document["samples"]["refused"]
    assert document["samples"]["accepted"] - document["samples"]["steps"] > 100, "requests teach too"
    assert all(request.policy is None for request in told.requests)
    taken = [steps for each in told.intervals if isinstance(steps := believable_steps(each), MeteredSteps)]
    assert {each.endpoint for each in told.intervals} == {f"default/{name}" for name in names}
    # A busy machine serves its engines late, and late time is in the joules: the margin is wide.
    mean_joules = sum(steps.joules for steps in taken) / sum(steps.count for steps in taken)
    assert mean_joules == pytest.approx(true_joules / true_steps, rel=0.2)
