"""Conversations through a real Envoy, the picker's own process and emulated engines: where each turn goes, and why."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from e2e.stack import ENGINE_HEADER, MODEL, Stack, running_stack, start_picker, write_folder, write_regions
from tests.support.gates import trained_gate

from heliotrope_sim.gateway.config import GatewayConfig
from heliotrope_sim.gateway.process import Gateway

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

QUESTION = "Tell me more about the forum and the baths. "


@dataclass
class Chat:
    """A client that resends its history, as chat APIs want it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(
        default_factory=lambda: [{"role": "system", "content": "A guide to Rome. " * 900}]
    )
    turns: int = 0

    async def turn(self) -> tuple[str, str]:
        """Ask once.

        Returns:
            The engine that served the turn, and the request's id.
        """
        self.turns += 1
        self.messages.append({"role": "user", "content": QUESTION * 5})
        request_id = f"{id(self)}-{self.turns}"
        async with httpx.AsyncClient(trust_env=False, timeout=60.0) as client:
            answer = await client.post(
                f"{self.url}/v1/chat/completions",
                json={"model": MODEL, "messages": self.messages, "max_tokens": 16},
                headers={"x-request-id": request_id, **self.headers},
            )
        assert answer.status_code == 200, answer.text
        self.messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
        return answer.headers[ENGINE_HEADER], request_id


async def intensities_are(stack: Stack, wanted: Mapping[str, float]) -> None:
    """Wait until the picker reads these."""
    write_regions(stack.resources, wanted)
    async with asyncio.timeout(20.0):
        while {r["name"]: r["intensity_g_per_kwh"] for r in (await stack.state())["regions"]} != wanted:
            await asyncio.sleep(0.05)


async def verdict(stack: Stack, request_id: str) -> dict[str, Any]:
    """What the decision says of its session."""
    async with httpx.AsyncClient(trust_env=False) as client:
        record = (await client.get(f"http://127.0.0.1:{stack.ports.admin}/debug/decisions/{request_id}")).json()
    session: dict[str, Any] = record["carbon_decision"]["session"]
    return session


HOW = pytest.mark.parametrize("headers", [{"x-session-id": "my-trip"}, {}], ids=["header", "history"])


@HOW
async def test_a_session_stays_for_a_little_cleaner_and_moves_for_much_cleaner(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    async with running_stack(tmp_path, {"north": 300.0, "south": 400.0}) as stack:
        chat = Chat(stack.url, headers)
        engine, first = await chat.turn()
        assert engine == "engine-north"
        assert (await verdict(stack, first))["movement"] == "new"
        await intensities_are(stack, {"north": 300.0, "south": 250.0})
        for earlier in (1, 2):
            engine, request_id = await chat.turn()
            assert engine == "engine-north", "what a move recomputes costs more than 17 % cleaner power saves"
            found = await verdict(stack, request_id)
            assert (found["movement"], found["turns"]) == ("stayed", earlier)
            assert found["previous_endpoint"] == "default/engine-north"
            assert found["history_tokens"] > 3_000
        assert (await Chat(stack.url, {"x-session-id": "another"}, [{"role": "user", "content": "Hi"}]).turn())[
            0
        ] == "engine-south", "who has no cache goes where it is cleanest"
        await intensities_are(stack, {"north": 300.0, "south": 5.0})
        engine, request_id = await chat.turn()
        assert engine == "engine-south"
        found = await verdict(stack, request_id)
        assert (found["movement"], found["because"]) == ("moved", "no validated gate")
        state = (await stack.state())["sessions"]
        assert state["sessions"] == 2
        assert state["gate"]["state"] == "none"
        assert "my-trip" not in json.dumps(await stack.state())
        assert await stack.metric("heliotrope_sessions") == 2
        assert await stack.metric("heliotrope_session_turns_total") == 5


async def test_a_gate_from_a_file_keeps_a_session_that_the_price_would_move(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    trained_gate(0.25).dump(path)
    async with running_stack(tmp_path, {"north": 300.0, "south": 400.0}, [f"--session-gate={path}"]) as stack:
        chat = Chat(stack.url, {"x-session-id": "kept"})
        await chat.turn()
        await intensities_are(stack, {"north": 300.0, "south": 5.0})
        engine, request_id = await chat.turn()
        assert engine == "engine-north"
        found = await verdict(stack, request_id)
        assert (found["movement"], found["gate_threshold"]) == ("kept", 0.05)
        assert found["gate_value"] == pytest.approx(0.25, abs=0.02)
        assert (await stack.state())["sessions"]["gate"]["state"] == "on"


async def test_a_gate_that_is_cut_off_is_said_and_the_picker_serves_on(tmp_path: Path) -> None:
    path = tmp_path / "gate"
    path.write_text(trained_gate(0.25).to_text()[:-50])
    async with running_stack(tmp_path, {"north": 300.0}, [f"--session-gate={path}"]) as stack:
        assert (await Chat(stack.url).turn())[0] == "engine-north"
        state = await stack.state()
        assert state["sessions"]["gate"]["state"] == "unusable"
        assert any("cut off" in problem for problem in state["problems"])
        assert await stack.metric("heliotrope_resource_problems") == 1


async def test_a_region_that_disappears_in_the_middle_of_a_session(tmp_path: Path) -> None:
    async with running_stack(tmp_path, {"north": 300.0, "south": 400.0}) as stack:
        chat = Chat(stack.url, {"x-session-id": "left-alone"})
        assert (await chat.turn())[0] == "engine-north"
        write_folder(stack.resources, [stack.engines["south"]], {"south": 400.0})
        async with asyncio.timeout(20.0):
            while len((await stack.state())["endpoints"]) != 1:
                await asyncio.sleep(0.05)
        engine, request_id = await chat.turn()
        assert engine == "engine-south"
        found = await verdict(stack, request_id)
        assert (found["movement"], found["because"], found["turns"]) == (
            "moved",
            "previous endpoint is gone or not offered",
            1,
        )
        engine, request_id = await chat.turn()
        assert engine == "engine-south"
        assert (await verdict(stack, request_id))["movement"] == "stayed"


async def test_a_forged_name_of_another_tenant_is_a_new_session(tmp_path: Path) -> None:
    async with running_stack(tmp_path, {"north": 300.0}) as stack:
        name = {"x-session-id": "secret-trip"}
        await Chat(stack.url, {**name, "x-llm-d-inference-fairness-id": "owner"}).turn()
        _, forged = await Chat(stack.url, {**name, "x-llm-d-inference-fairness-id": "forger"}).turn()
        assert (await verdict(stack, forged))["movement"] == "new"
        _, owner = await Chat(stack.url, {**name, "x-llm-d-inference-fairness-id": "owner"}).turn()
        assert (await verdict(stack, owner))["turns"] == 1


@asynccontextmanager
async def second_picker(stack: Stack, folder: Path) -> AsyncIterator[tuple[Stack, str]]:
    """Another picker with an Envoy of its own, on the same engines and resources."""
    await asyncio.to_thread(folder.mkdir)
    picker, ports = await start_picker(folder, stack.resources)
    gateway = await Gateway.start(GatewayConfig(pickers=(f"127.0.0.1:{ports.grpc}",)), directory=folder / "envoy")
    try:
        await gateway.wait_for_pickers()
        yield Stack(stack.engines, picker, ports, gateway, stack.resources), gateway.url
    finally:
        await gateway.stop()
        await picker.stop()


async def test_a_session_whose_turns_meet_two_pickers_is_new_to_the_second_and_finds_its_home_there(
    tmp_path: Path,
) -> None:
    async with (
        running_stack(tmp_path, {"north": 300.0, "south": 400.0}) as stack,
        second_picker(stack, tmp_path / "second") as (second, url),
    ):
        chat = Chat(stack.url, {"x-session-id": "travels"})
        assert (await chat.turn())[0] == "engine-north"
        chat.url = url
        engine, request_id = await chat.turn()
        assert engine == "engine-north", "the second picker knows no cache and takes the cleanest region"
        assert (await verdict(second, request_id))["movement"] == "new"
        await intensities_are(second, {"north": 300.0, "south": 250.0})
        await intensities_are(stack, {"north": 300.0, "south": 250.0})
        for picker in (second, stack, second):
            chat.url = picker.url
            engine, request_id = await chat.turn()
            assert engine == "engine-north", "both know its home from what they sent there themselves"
            assert (await verdict(picker, request_id))["movement"] == "stayed"
