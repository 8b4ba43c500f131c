"""What a user asks after the fact: why a request went where it went, and what the policy saved."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from e2e.stack import ENGINE_HEADER, MODEL, Stack, running_stack
from tests.support.metering import metering_has_begun

from heliotrope.decide import recorded
from heliotrope_cli import picker_client
from heliotrope_cli.picker_client import DecisionNotKeptError

pytestmark = [pytest.mark.envoy, pytest.mark.slow, pytest.mark.timeout(300)]

REQUESTS = 40


async def heliotrope(*arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "heliotrope_cli.main",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), " ".join(err.decode().split())


async def hold_out(stack: Stack, percent: int) -> None:
    """Change the policy in the folder and wait until the picker follows it."""
    before = (await stack.state())["generation"]
    path = stack.resources / "policy.yaml"
    policy = yaml.safe_load(path.read_text())
    policy["spec"] |= {"holdoutPercent": percent, "holdoutSeed": 3}
    partial = path.with_suffix(".partial")
    partial.write_text(yaml.safe_dump(policy))
    partial.replace(path)
    async with asyncio.timeout(20):
        while (await stack.state())["generation"] == before:
            await asyncio.sleep(0.05)


async def ask(client: httpx.AsyncClient, stack: Stack, number: int) -> str:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{number} is a number, and this question is about it alone."}],
        "max_tokens": 8,
    }
    answer = await client.post(f"{stack.url}/v1/chat/completions", json=body, headers={"x-request-id": f"ask-{number}"})
    assert answer.status_code == 200, answer.text
    return str(answer.headers[ENGINE_HEADER])


async def test_arms_are_explained_and_compared(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"  # where `start_picker` has it written
    async with running_stack(tmp_path, {"clean": 20.0, "dirty": 400.0}) as stack:
        await hold_out(stack, 25)
        await metering_has_begun(stack.debug_url)
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            served = [await ask(client, stack, number) for number in range(REQUESTS)]
        address = f"http://127.0.0.1:{stack.ports.admin}"
        async with httpx.AsyncClient(trust_env=False) as client:
            shown = (await client.get(f"{address}/debug/decisions?limit={REQUESTS}")).json()
        arms = {document["request_id"]: document["carbon_decision"]["arm"] for document in shown}
        assert Counter(arms.values()) == {"policy": 30, "holdout": 10}
        steered = {engine for number, engine in enumerate(served) if arms[f"ask-{number}"] == "policy"}
        held = {engine for number, engine in enumerate(served) if arms[f"ask-{number}"] == "holdout"}
        assert steered == {"engine-clean"}
        # Blind to carbon, the scorers decide; how often they prefer which depends on what the last scrapes saw.
        assert "engine-dirty" in held

        assert (await measured_energy(address, 0))["joules"] > 0.0
        number = next(n for n in range(REQUESTS) if arms[f"ask-{n}"] == "holdout")
        code, out, err = await heliotrope("explain", f"ask-{number}", f"--picker={address}")
        assert code == 0, err
        assert f"Sent to default/{served[number]} blind to carbon" in out
        assert "Measured: status 200, complete" in out
        with pytest.raises(DecisionNotKeptError, match="only the newest 1000 are"):
            await asyncio.to_thread(picker_client.decision, address, "nobody")

    code, out, err = await heliotrope("savings", str(ledger), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["requests"] == {"policy": 30, "holdout": 10}
    assert found["savings_are"] == "measured"
    joules = found["overall"]["joules_per_request"]
    assert (joules["steered_requests"], joules["holdout_requests"]) == (30, 10)
    assert joules["verdict"] == "not enough"


async def measured_energy(address: str, number: int) -> dict[str, Any]:
    """Counters are read in turns, so a request's energy comes a moment after its end."""
    async with asyncio.timeout(20):
        while True:
            _, document = recorded.read(await asyncio.to_thread(picker_client.decision, address, f"ask-{number}"))
            if document["measured"] is not None:
                energy: dict[str, Any] = document["measured"]["energy"]
                return energy
            await asyncio.sleep(0.2)
