"""Policies change, break and go under load, through a real Envoy and the picker's own process; no request notices."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
import yaml
from e2e.stack import ENGINE_HEADER, MODEL, Stack, running_stack

pytestmark = [pytest.mark.envoy, pytest.mark.slow]

REGIONS = {"clean": 20.0, "dirty": 400.0}
STREAMS = 8


@dataclass
class Load:
    """Clients that send one request after the other."""

    url: str
    statuses: Counter[int] = field(default_factory=Counter)
    since: Counter[str] = field(default_factory=Counter)
    """Served by which engine since the last `mark`."""
    headers: dict[str, str] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    async def run(self) -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
            while True:
                # No two requests begin alike: a session that goes on stays in its region whatever the share.
                content = f"{uuid4()} Hello."
                body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 4}
                try:
                    answer = await client.post(f"{self.url}/v1/chat/completions", json=body, headers=self.headers)
                except httpx.HTTPError as error:
                    self.failed.append(repr(error))
                    continue
                self.statuses[answer.status_code] += 1
                self.since[answer.headers.get(ENGINE_HEADER, "")] += 1

    async def served(self, at_least: int = 60) -> Counter[str]:
        """Engines of the requests that come from now on."""
        await asyncio.sleep(0.3)  # those that were decided before
        self.since.clear()
        async with asyncio.timeout(60.0):
            while self.since.total() < at_least:
                await asyncio.sleep(0.02)
        return Counter(self.since)


@contextlib.asynccontextmanager
async def loaded(stack: Stack) -> AsyncIterator[Load]:
    load = Load(stack.url)
    clients = [asyncio.create_task(load.run()) for _ in range(STREAMS)]
    try:
        yield load
    finally:
        for client in clients:
            client.cancel()
        await asyncio.gather(*clients, return_exceptions=True)


def write_policy(stack: Stack, **spec: Any) -> None:
    document = {
        "apiVersion": "heliotrope.io/v1alpha1",
        "kind": "CarbonPolicy",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "targetRefs": [{"name": "pool"}],
            "slo": {"ttft": "5s", "tpot": "500ms"},
            "enforcement": "Enforce",
            **spec,
        },
    }
    write(stack, yaml.safe_dump(document))


def write(stack: Stack, text: str) -> None:
    path = stack.resources / "policy.yaml"
    path.with_suffix(".tmp").write_text(text)
    path.with_suffix(".tmp").rename(path)


async def policy_becomes(stack: Stack, **wanted: Any) -> dict[str, Any]:
    """Wait until the picker shows a policy with these values."""
    async with asyncio.timeout(20.0):
        while True:
            shown: dict[str, Any] = (await stack.state())["policy"] or {}
            if all(bool(shown.get(name)) == value for name, value in wanted.items()):
                return shown
            await asyncio.sleep(0.05)


async def test_no_request_is_lost_while_policies_change_break_and_go(tmp_path: Path) -> None:
    async with running_stack(tmp_path, REGIONS) as stack, loaded(stack) as load:
        first = await policy_becomes(stack, name=True, enforce=True)
        assert set(await load.served()) == {"engine-clean"}

        write_policy(stack, placement={"allowedRegions": ["dirty"]})
        async with asyncio.timeout(20.0):
            while (second := (await stack.state())["policy"])["revision"] == first["revision"]:
                await asyncio.sleep(0.05)
        assert set(await load.served()) == {"engine-dirty"}
        assert second["since_unix_s"] > first["since_unix_s"]

        for broken in ("{", "kind: CarbonPolicy\napiVersion: heliotrope.io/v1alpha1\nmetadata: {name: p}\nspec: {}\n"):
            write(stack, broken)
            kept = await policy_becomes(stack, outdated_because=True)
            assert kept["revision"] == second["revision"]
            assert set(await load.served()) == {"engine-dirty"}
        assert await stack.metric("heliotrope_policy_outdated") == 1.0

        write_policy(stack, placement={"largestRegionSharePercent": 50})
        await policy_becomes(stack, outdated_because=False)
        assert await stack.metric("heliotrope_policy_outdated") == 0.0
        assert set(await load.served()) == {"engine-clean"}  # the other has had more than its share
        async with asyncio.timeout(60.0):
            while not load.since["engine-dirty"]:
                await asyncio.sleep(0.05)

        (stack.resources / "policy.yaml").unlink()
        await policy_becomes(stack, name=False)
        assert (await load.served()).total() >= 60

        write_policy(stack)
        await policy_becomes(stack, name=True)
        assert set(await load.served()) == {"engine-clean"}

        assert load.failed == []
        assert set(load.statuses) == {200}
        assert await stack.metric("heliotrope_decider_failures_total") == 0.0
        assert await stack.metric("heliotrope_policy_changes_total") >= 6.0


async def test_a_refused_wish_is_seen_by_the_client_and_not_by_the_engine(tmp_path: Path) -> None:
    async with running_stack(tmp_path, REGIONS) as stack, httpx.AsyncClient(trust_env=False, timeout=30.0) as client:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello."}], "max_tokens": 4}

        async def send(**headers: str) -> httpx.Response:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            return await client.post(f"{stack.url}/v1/chat/completions", json=body, headers=named)

        refused = await send(x_heliotrope_regions="dirty", x_request_id="refused-1")
        assert (refused.status_code, refused.headers[ENGINE_HEADER]) == (200, "engine-clean")
        assert refused.headers["x-heliotrope-refused"] == "regions: not allowed by the policy"
        assert (await send(x_heliotrope_priority="high")).status_code == 400

        write_policy(stack, overrides={"allowed": ["Regions"]})
        async with asyncio.timeout(20.0):
            while (await send(x_heliotrope_regions="dirty")).headers[ENGINE_HEADER] != "engine-dirty":
                await asyncio.sleep(0.05)
        nothing = await send(x_heliotrope_regions="mars")
        assert nothing.status_code == 503
        assert nothing.headers["x-llm-d-request-dropped-reason"] == "rejected-nothing-feasible"
        assert "region not allowed (2)" in nothing.json()["error"]["message"]
